"""Methods of a stub that are told rather than asked, for asyncio: as those of rpcmq, and awaited."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, ParamSpec

from rpcmq.client import stubs

__all__ = ["as_cast", "as_fanout"]

P = ParamSpec("P")

_Method = Callable[P, Coroutine[Any, Any, object] | AsyncIterator[object]]


def as_cast(method: _Method[P], /) -> Callable[P, Coroutine[Any, Any, None]]:
    """A method of a stub, to be sent by :meth:`Client.cast`; see :func:`rpcmq.as_cast`."""
    cast: Any = stubs.as_cast(method)
    return cast  # type: ignore[no-any-return]


def as_fanout(method: _Method[P], /) -> Callable[P, Coroutine[Any, Any, int | None]]:
    """A method of a stub, to be sent by :meth:`Client.fanout_cast`; see :func:`rpcmq.as_fanout`."""
    fanout: Any = stubs.as_fanout(method)
    return fanout  # type: ignore[no-any-return]
