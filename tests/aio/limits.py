"""A timeout that is over when the test says so."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any


async def time_out_when(condition: Callable[[], Any], coroutine: Coroutine[Any, Any, Any]) -> None:
    """Await ``coroutine`` within an :func:`asyncio.timeout` that is over once ``condition()`` is true."""
    async with asyncio.timeout(None) as limit:
        task = asyncio.ensure_future(coroutine)
        while not condition():
            await asyncio.sleep(0.005)
        limit.reschedule(0.0)
        await task
