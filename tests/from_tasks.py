"""Clients and services of ``rpcmq.aio`` behind blocking verbs, each awaited in an event loop of another thread."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import wraps
from typing import Any

from rpcmq import aio
from tests.from_threads import in_thread

__all__ = ["client", "service", "worker"]

_loop: asyncio.AbstractEventLoop | None = None
_END: Any = object()
_VERBS = {
    "call", "cancel", "cast", "close", "connect", "declare", "declare_periodic", "declare_queue", "describe",
    "fanout_cast", "kick", "multicall", "notify", "publish", "purge", "put", "put_many", "query", "receipt",
    "remove_periodic", "result", "start", "state", "statistics", "stop", "subscribe", "wait",
}  # fmt: skip


def awaited(coroutine: Any) -> Any:
    """Run ``coroutine`` in the event loop; return its result or raise its exception."""
    global _loop
    if _loop is None:
        _loop = asyncio.new_event_loop()
        threading.Thread(target=_loop.run_forever, name="event loop", daemon=True).start()

    async def outcome() -> tuple[Any, BaseException | None]:
        try:
            return await coroutine, None
        except (SystemExit, KeyboardInterrupt) as error:  # they would end the event loop
            return None, error

    result, error = asyncio.run_coroutine_threadsafe(outcome(), _loop).result()
    if error is not None:
        raise error
    return result


class _Blocking:
    """An object of ``rpcmq.aio`` whose verbs block, and have the names and arguments of the plain ones."""

    def __init__(self, target: Any, others: Any) -> None:
        self.target = target
        #: Has what tests look at besides.
        self._others = others

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.target, name, None)
        if isinstance(found, aio.Client):
            return _Blocking(found, found.threads)
        if not callable(found):
            return found if found is not None else getattr(self._others, name)

        @wraps(found)
        def verb(*args: Any, **options: Any) -> Any:
            if name == "subscribe" and len(args) > 1 and callable(args[1]):
                args = (args[0], _beside_the_loop(args[1]), *args[2:])
            made = found(*args, **options)
            if isinstance(made, AsyncIterator):
                return _Items(made)
            result = awaited(made) if inspect.isawaitable(made) else made
            if name in ("put", "put_many", "receipt"):
                return [_Blocking(each, each) for each in result] if name == "put_many" else _Blocking(result, result)
            return _Blocking(result, result) if name == "subscribe" else result

        return verb

    def __str__(self) -> str:
        return str(self.target)

    def __enter__(self) -> Any:
        awaited(self.target.__aenter__())
        return self

    def __exit__(self, *error: object) -> None:
        awaited(self.target.__aexit__(*error))


class _Items:
    def __init__(self, items: Any) -> None:
        self._items = items

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        item = awaited(anext(self._items, _END))
        if item is _END:
            raise StopIteration
        return item

    def close(self) -> None:
        awaited(self._items.aclose())


def _beside_the_loop(handler: Any) -> Any:
    """``handler``, which blocks as those of these tests may, for an event loop: it has a thread of its own."""
    thread = ThreadPoolExecutor(1)

    async def handle(*event: Any) -> None:
        await asyncio.get_running_loop().run_in_executor(thread, handler, *event)

    return handle


# --- for tests that live in gevent ----------------------------------------------------------------


class _Driven:
    """An object whose verbs run in threads."""

    def __init__(self, driven: Any) -> None:
        object.__setattr__(self, "driven", driven)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.driven, name)
        if name not in _VERBS:
            return _Driven(found) if name == "client" else found

        @wraps(found)
        def verb(*args: Any, **options: Any) -> Any:
            result = in_thread(found, *args, **options)
            if name == "multicall":
                return _DrivenItems(result)
            if name in ("put", "put_many", "receipt"):
                return [_Driven(each) for each in result] if name == "put_many" else _Driven(result)
            return _Driven(result) if name == "subscribe" else result

        return verb

    def __str__(self) -> str:
        return str(self.driven)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self.driven, name, value)

    def __enter__(self) -> Any:
        in_thread(self.driven.__enter__)
        return self

    def __exit__(self, *error: object) -> None:
        in_thread(self.driven.__exit__, *error)


class _DrivenItems:
    """A stream whose items are waited for in threads."""

    _END: Any = object()

    def __init__(self, items: Iterator[Any]) -> None:
        self._items = items

    def __iter__(self) -> Any:
        return self

    def __next__(self) -> Any:
        item = in_thread(next, self._items, self._END)
        if item is self._END:
            raise StopIteration
        return item

    def close(self) -> None:
        in_thread(self._items.close)  # type: ignore[attr-defined]


def client(*args: Any, **settings: Any) -> Any:
    """An :class:`rpcmq.aio.Client` for use in greenlets."""
    made = in_thread(aio.Client, *args, **settings)
    return _Driven(_Blocking(made, made.threads))


def service(*args: Any, **settings: Any) -> Any:
    """An :class:`rpcmq.aio.Service` for use in greenlets."""
    if "client" in settings:
        settings["client"] = settings["client"].driven.target
    made = in_thread(aio.Service, *args, **settings)
    return _Driven(_Blocking(made, made))


def worker(*args: Any, **settings: Any) -> Any:
    """An :class:`rpcmq.aio.Worker` for use in greenlets."""
    if "client" in settings:
        settings["client"] = settings["client"].driven.target
    made = in_thread(aio.Worker, *args, **settings)
    return _Driven(_Blocking(made, made))
