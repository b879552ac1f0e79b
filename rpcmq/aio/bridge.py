"""The bridge by which tasks of event loops use the engines of a process in the plain-thread shell, and never block.

Functions that do not wait are handed over to the thread that owns the sockets, and their results are awaited. Those
that have to wait run in a few threads.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import Context, copy_context
from functools import partial
from inspect import isawaitable
from typing import Any, TypeVar

from rpcmq.aio.loop_port import LoopPort, Waiting, resolve
from rpcmq.client.thread_process import ThreadProcess
from rpcmq.core.process.call import Call
from rpcmq.errors import UsageError
from rpcmq.transport.thread_parking import Event

__all__ = ["Bridge", "RaisedStopIteration", "ThreadPool", "running_loop"]

T = TypeVar("T")

#: Threads for what has to wait: to subscribe, to start and stop a service, to close, to ask the router.
_THREADS = 16


def running_loop() -> asyncio.AbstractEventLoop:
    """The event loop that runs in this thread.

    Raises:
        UsageError: none does.
    """
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        raise UsageError(
            "no event loop runs in this thread: use rpcmq.aio in a coroutine, such as one that asyncio.run() runs; "
            "elsewhere use rpcmq.rpc or rpcmq.threads"
        ) from None


class Bridge:
    """Into the engines of ``process``, for the tasks of any number of event loops.

    Raises:
        UsageError: gevent or eventlet has patched this program.
    """

    def __init__(self, process: ThreadProcess) -> None:
        if process.thread_shell.is_patched:
            raise UsageError(
                "gevent or eventlet has patched this program: its threads are green, and rpcmq.aio needs real ones; "
                "use rpcmq.Client there"
            )
        self.process = process
        #: Whether tasks may encode, start and decode calls themselves: a trust policy has state that the lock guards.
        self.posts = process.posts
        self._ports: dict[asyncio.AbstractEventLoop, LoopPort] = {}
        self._latest: LoopPort | None = None
        self._pool = ThreadPool(process, _THREADS, inside=True)

    def port(self) -> LoopPort:
        """The way into the event loop that runs here.

        Raises:
            UsageError: none does.
        """
        loop = running_loop()
        latest = self._latest
        if latest is not None and latest.loop is loop:
            return latest
        port = self._ports.get(loop)
        if port is None:
            port = self._ports[loop] = LoopPort(loop, self.process, self._forget)
        self._latest = port
        return port

    def _forget(self, port: LoopPort) -> None:
        self._ports.pop(port.loop, None)
        if self._latest is port:
            self._latest = None
        if self.process.connection.closed:
            self._pool.close()

    # --- to be awaited -----------------------------------------------------------------------

    async def wait(
        self, call: Call, until_item: bool = False, on_progress: Callable[[Call, bytes], object] | None = None
    ) -> None:
        """Wait until ``call`` is done, or has an item; cancel it if the task is cancelled.

        Args:
            on_progress: called with each report; what it returns is awaited if it can be.
        """
        port = self.port()
        try:
            while True:
                call.waiter = waiting = Waiting(port)
                # Only now: it may have ended, or got an item, before it had a waiter.
                if call.progress:
                    await self._report(call, on_progress)
                elif call.answer is not None or call.error is not None or (until_item and call.items):
                    break
                else:
                    await waiting.future
        except BaseException:
            self.process.cancel(call)
            raise
        finally:
            call.waiter = None

    async def _report(self, call: Call, on_progress: Callable[[Call, bytes], object] | None) -> None:
        for message in await self.run(_take_progress, call):
            if on_progress is not None:
                made = on_progress(call, message)
                if isawaitable(made):
                    await made

    async def run(self, function: Callable[..., T], *args: Any) -> T:
        """Call ``function``, which must not wait, in the sockets' thread, after all that was handed over before."""
        port = self.port()
        future: asyncio.Future[tuple[T, BaseException | None]] = port.loop.create_future()
        self.process.post(_settle, port, future, partial(function, *args))
        return _value(*await future)

    async def in_thread(
        self, function: Callable[..., T], *args: Any, undo: Callable[[T], object] | None = None, **options: Any
    ) -> T:
        """Call ``function``, which may wait, in a thread that holds the engines' lock.

        Args:
            undo: called, in such a thread, with what ``function`` returns, if the task does not wait for it any more.
        """
        return await self._pool.run(self.port(), partial(function, *args, **options), undo)

    async def wait_for(self, event: Event, seconds: float | None) -> bool:
        """Wait until ``event`` is set; return whether it is."""
        waiting = Waiting(self.port())
        self.process.post(event.resume_when_set, waiting)
        return await self._resumed(waiting, seconds, event.forget, waiting)

    async def _resumed(
        self, waiting: Waiting, seconds: float | None, forget: Callable[..., object], *args: Any
    ) -> bool:
        try:
            async with asyncio.timeout(seconds):
                await waiting.future
        except TimeoutError:
            self.process.post(forget, *args)
            return False
        except BaseException:
            self.process.post(forget, *args)
            raise
        return True

    async def wait_ready(self, seconds: float, restart_seconds: float = 0.0) -> None:
        """See :meth:`rpcmq.transport.connection.Connection.wait_ready`."""
        connection = self.process.connection
        status = connection.status
        await self.run(connection.start)
        is_ready = await self.wait_for(status.ready, seconds)  # type: ignore[arg-type]
        if not is_ready and (longer := status.seconds_to_restart(seconds, restart_seconds)):
            await self.wait_for(status.ready, longer)  # type: ignore[arg-type]
            seconds = restart_seconds
        await self.run(status.check_ready, seconds)

    async def wait_for_room(self, address: bytes, seconds: float, name: str) -> None:
        """See :meth:`rpcmq.client.cast_window.CastWindow.wait`."""
        process = self.process
        window = process.cast_window
        deadline = asyncio.get_running_loop().time() + seconds
        while not window.has_room(address):
            left = deadline - asyncio.get_running_loop().time()
            if left <= 0.0:
                raise await self.run(window.no_room, address, name, seconds)
            waiting = Waiting(self.port())
            process.post(window.resume_when_room, address, waiting)
            await self._resumed(waiting, left, window.forget, address, waiting)
            process.connection.check_open()

    async def send_cast(self, payload: bytes, *arguments: Any) -> bool:
        """See :meth:`rpcmq.client.process.Process.send_cast`, whose arguments these are."""
        process = self.process
        if not self.posts or process.must_count(payload) or process.has_fallen_behind:
            return await self.run(process.send_cast_if_room, payload, *arguments)
        return process.send_cast(payload, *arguments)


class ThreadPool:
    """A few threads, each of which ends when it has had nothing to do for a while.

    Args:
        inside: whether they hold the engines' lock.
    """

    def __init__(self, process: ThreadProcess, most: int, *, inside: bool) -> None:
        self._process = process
        self._outside = None if inside else process.thread_shell.monitor.outside
        self._workers = process.thread_shell.workers(self._do, most)

    async def run(self, port: LoopPort, function: Callable[[], T], undo: Callable[[T], object] | None = None) -> T:
        """Call ``function`` in one of the threads, in the context of the task; see :meth:`Bridge.in_thread`."""
        future: asyncio.Future[tuple[T, BaseException | None]] = port.loop.create_future()
        job = _Job(port, future, copy_context(), function)
        self._process.post(self._workers.start, job)
        if undo is None:
            return _value(*await future)
        try:
            return _value(*await asyncio.shield(future))
        except asyncio.CancelledError:
            future.add_done_callback(partial(self._undo, port, undo))
            raise

    def _do(self, job: _Job) -> None:
        function = partial(job.context.run, job.function)
        _settle(job.port, job.future, function if self._outside is None else partial(self._outside, function))

    def _undo(self, port: LoopPort, undo: Callable[[Any], object], future: asyncio.Future[Any]) -> None:
        value, error = future.result()
        if error is None:
            undone: asyncio.Future[Any] = port.loop.create_future()
            job = _Job(port, undone, copy_context(), partial(undo, value))
            self._process.post(self._workers.start, job)

    def close(self) -> None:
        """End the threads, each once its work is done."""
        self._process.post(self._workers.close)


class _Job:
    __slots__ = ("context", "function", "future", "port")

    def __init__(
        self, port: LoopPort, future: asyncio.Future[Any], context: Context, function: Callable[[], Any]
    ) -> None:
        self.port = port
        self.future = future
        self.context = context
        self.function = function


def _settle(port: LoopPort, future: asyncio.Future[Any], function: Callable[[], Any]) -> None:
    """Call ``function``, and tell the task what comes of it."""
    error: BaseException | None = None
    value: Any = None
    try:
        value = function()
    except BaseException as raised:
        error = raised
    port.post(resolve, future, (value, error))


class RaisedStopIteration(RuntimeError):
    """A function has raised StopIteration, which no coroutine can."""

    def __init__(self, error: StopIteration) -> None:
        super().__init__("the function raised StopIteration")
        self.error = error


def _value(value: T, error: BaseException | None) -> T:
    if error is None:
        return value
    try:
        if isinstance(error, StopIteration):
            raise RaisedStopIteration(error) from error
        raise error
    finally:
        del error


def _take_progress(call: Call) -> list[bytes]:
    messages, call.progress = call.progress, []
    return messages
