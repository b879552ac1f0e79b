"""Event loops for tests: asyncio's and uvloop's, each in a thread beside the router, which lives in this one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import uvloop

from tests.from_threads import in_thread

Main = Callable[[], Coroutine[Any, Any, Any]]
_LIMIT = 40.0


@pytest.fixture(params=["asyncio", "uvloop"])
def new_loop(request: pytest.FixtureRequest) -> Any:
    """Makes event loops."""
    return asyncio.new_event_loop if request.param == "asyncio" else uvloop.new_event_loop


@pytest.fixture
def run(new_loop: Any) -> Callable[[Main], Any]:
    """Runs a coroutine function in an event loop of its own, and returns its result."""

    async def limited(main: Main) -> Any:
        async with asyncio.timeout(_LIMIT):
            return await main()

    def run_in_thread(main: Main) -> Any:
        with asyncio.Runner(loop_factory=new_loop) as runner:
            return runner.run(limited(main))

    return lambda main: in_thread(run_in_thread, main)
