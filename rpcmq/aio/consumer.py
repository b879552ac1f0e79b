"""A consumer whose tasks run in an event loop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from contextvars import Context
from functools import partial
from inspect import isawaitable
from time import monotonic
from typing import Any

from rpcmq.aio.bridge import Bridge, RaisedStopIteration, ThreadPool
from rpcmq.aio.loop_port import LoopPort
from rpcmq.aio.request_stream import RequestStream, TaskChanges
from rpcmq.aio.turns import TurnShare
from rpcmq.client.consumer import PLAIN_VALUES, Consumer
from rpcmq.client.interrupts import is_interrupt
from rpcmq.client.methods import is_async
from rpcmq.client.request import set_current_request
from rpcmq.client.request_stream import stream_of
from rpcmq.client.router_links import ServingLink
from rpcmq.client.served_methods import ServedMethods
from rpcmq.client.task_answers import accepted_by
from rpcmq.core.common.stream_credit import UNASKED_BYTES, UNASKED_ITEMS
from rpcmq.core.process.task import Task
from rpcmq.core.process.task_states import TaskState
from rpcmq.errors import Outcome
from rpcmq.transport.shell import Handle, Workers
from rpcmq.wire import Address, Kind

__all__ = ["LoopConsumer"]

log = logging.getLogger("rpcmq.service")

_REPLY, _ITEM, _ALIVE = int(Kind.REPLY), int(Kind.ITEM), int(Kind.ALIVE)
_END: Any = object()
#: Bytes that may be sent where nobody counts them.
_UNCOUNTED = 1 << 60
_CANCELLED = TaskState.CANCELLED


class LoopConsumer(Consumer):
    """Takes the calls and casts of an address, and runs each in a task of its own.

    Args:
        bridge: into the engines of ``client``.
        methods: run for the tasks; those that are not ``async`` in a thread.
        threads: for those.
        link, address, concurrency, group, direct: as for :class:`rpcmq.client.consumer.Consumer`.
    """

    def __init__(
        self, bridge: Bridge, methods: ServedMethods, threads: ThreadPool, link: ServingLink, address: Address,
        concurrency: int, group: str, direct: bool,
    ) -> None:  # fmt: skip
        super().__init__(link, address, methods.invoke, concurrency=concurrency, group=group, direct=direct)
        self._bridge = bridge
        self._methods = methods
        self._process = link.process
        self._post = bridge.process.post
        self._threads = threads
        #: Taken by each task, where those of several consumers may not all run at once.
        self._turns: TurnShare | None = None
        self._port: LoopPort | None = None
        self._context = Context()
        #: Methods, and whether they are async.
        self._runs_here: dict[str, bool] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def _new_workers(self, concurrency: int) -> Workers[Task]:
        return _Tasks(self._begin)

    def attach(self, port: LoopPort, context: Context, turns: TurnShare | None) -> None:
        """Serve in this event loop. To be called before :meth:`start`.

        Args:
            context: each request gets a copy of it.
            turns: taken by each request; None: as many are delivered as may run.
        """
        self._port = port
        self._turns = turns
        self._context = context
        port.owners.append(self._loop_closed)

    def detach(self) -> None:
        """The service has ended."""
        if self._port is not None and self._loop_closed in self._port.owners:
            self._port.owners.remove(self._loop_closed)

    @property
    def _loop_is_closed(self) -> bool:
        return self._port is not None and self._port.loop.is_closed()

    # --- in the sockets' thread --------------------------------------------------------------

    def _begin(self, task: Task) -> None:
        assert self._port is not None
        self._port.post(self._begin_in_loop, task)

    def _loop_closed(self) -> None:
        self.shell.spawn(self._abandon)

    def _abandon(self) -> None:
        """End what runs, and leave: the event loop was closed without :meth:`stop`."""
        registration = self._registration
        if registration is None:
            return
        text = f"the event loop of the service on {self.address} was closed before the service was stopped"
        log.error("%s; it is not consumed here any more", text)
        self.leave()
        for task in list(registration.running.values()):
            self.answers.fail(task, RuntimeError(text))
            self._finish(task, None)

    # --- in the event loop -----------------------------------------------------------------------

    def _begin_in_loop(self, task: Task) -> None:
        assert self._port is not None
        running = self._port.loop.create_task(self._serve(task), context=self._context.copy())
        self._tasks.add(running)
        running.add_done_callback(self._tasks.discard)

    async def _serve(self, task: Task) -> None:
        process, bridge = self._process, self._bridge
        set_current_request(task, self.progress)
        keepalive: Handle | None = None
        has_turn = False
        try:
            if self._turns is not None:
                await self._turns.acquire()
                has_turn = True
                if not self._is_awaited(task):
                    self._post(self._drop, task)
                    return
            elif task.state is _CANCELLED:
                self._post(self._drop, task)
                return
            body = self._body(task) if bridge.posts else await bridge.in_thread(self._body, task)
            if task.is_call and "keepalive" in body:
                keepalive = await bridge.run(self._keep_alive, task, float(body["keepalive"]))
            result = await self._result(task, body)
            kind = type(result)
            if kind not in PLAIN_VALUES and (hasattr(kind, "__anext__") or hasattr(kind, "__next__")):
                await self._stream_items(task, result)
            elif not task.is_call:
                self._post(process.tasks.settle, monotonic(), task, Outcome.OK)
            elif bridge.posts:
                form, payload = process.encode(result, accepted_by(task))
                self._post(self.answers.answer, process, task, _REPLY, form, payload)
            else:
                await bridge.in_thread(self.answers.reply, task, result)
        except BaseException as error:
            if isinstance(error, GeneratorExit) and self._loop_is_closed:
                raise  # nothing can be awaited any more
            await self._fail(task, error)
            # Anything else, such as SystemExit, has been reported to the caller and ends here.
            if is_interrupt(error) or isinstance(error, asyncio.CancelledError):
                raise
        finally:
            if has_turn and self._turns is not None:
                self._turns.release()
            self._post(self._finish, task, keepalive)

    async def _result(self, task: Task, body: dict[str, Any]) -> Any:
        """Run the method: one that is not ``async`` in a thread."""
        method = self._methods.bound(task, body)
        runs_here = self._runs_here.get(task.method)
        if runs_here is None:
            runs_here = self._runs_here[task.method] = is_async(method)
        if runs_here:
            result = method()
        else:
            assert self._port is not None
            result = await self._threads.run(self._port, method)
        return await result if type(result) not in PLAIN_VALUES and isawaitable(result) else result

    async def _fail(self, task: Task, error: BaseException) -> None:
        raised = error.error if isinstance(error, RaisedStopIteration) else error
        await self._bridge.in_thread(self.answers.fail, task, raised)

    async def _stream_items(self, task: Task, items: AsyncIterator[Any] | Iterator[Any]) -> None:
        try:
            self._check_asked_for_items(task)
            items_left, bytes_left = UNASKED_ITEMS, UNASKED_BYTES
            while (item := await self._next(items)) is not _END:
                if not task.is_call:
                    continue
                if items_left <= 0 or bytes_left <= 0:
                    items_left, bytes_left = await self._granted(task)
                if not task.is_wanted:
                    break
                bytes_left -= await self._send(task, item)
                items_left -= 1
        finally:
            await self._close(items)
        if task.is_call:
            self._post(self.streams.end, task)
        else:
            self._post(self._process.tasks.settle, monotonic(), task, Outcome.OK)

    async def _next(self, items: AsyncIterator[Any] | Iterator[Any]) -> Any:
        if isinstance(items, AsyncIterator):
            return await anext(items, _END)
        assert self._port is not None
        return await self._threads.run(self._port, partial(next, items, _END))

    async def _close(self, items: AsyncIterator[Any] | Iterator[Any]) -> None:
        if isinstance(items, AsyncIterator):
            if (aclose := getattr(items, "aclose", None)) is not None:
                await aclose()
        elif (close := getattr(items, "close", None)) is not None:
            assert self._port is not None
            await self._threads.run(self._port, close)

    def _credit_left(self, task: Task) -> tuple[int, int]:
        """The items of its answer, and bytes of payloads, that may be sent now. In the sockets' thread."""
        credit = self._process.tasks.answered_streams.credit_of(task)
        return credit.items, credit.size_bytes if credit.counts_bytes else _UNCOUNTED

    async def _granted(self, task: Task) -> tuple[int, int]:
        """Wait until the caller of a stream takes more items; return as :meth:`_credit_left` does."""
        changes = self._changes_of(task)
        while True:
            change = changes.expect()
            try:
                # After all items that were handed over to be sent.
                items_left, bytes_left = await self._bridge.run(self._credit_left, task)
                if (items_left > 0 and bytes_left > 0) or not task.is_wanted:
                    return items_left, bytes_left
                await changes.wait(change)
            finally:
                changes.forget(change)

    def _changes_of(self, task: Task) -> TaskChanges:
        """The changes of ``task``, as they are told in the event loop."""
        if isinstance(task.on_change, TaskChanges):
            return task.on_change
        assert self._port is not None
        former = self.answers.changed(task).set
        task.on_change = changes = TaskChanges(self._port.post, former)
        return changes

    def _add_stream(self, task: Task, body: dict[str, Any]) -> None:
        stream = stream_of(self._link, self.answers, task, body, RequestStream)
        if isinstance(stream, RequestStream):
            stream.bridge, stream.changes = self._bridge, self._changes_of(task)
            body["args"][stream.name] = stream

    async def _send(self, task: Task, item: Any) -> int:
        """Send an item; return how many bytes of credit that uses up at most."""
        if self._bridge.posts:
            form, payload = self._process.encode(item, accepted_by(task))
            self._post(self.answers.send_encoded, task, _ITEM, form, payload)
            return len(payload) + (self._process.payloads.overhead if task.seal is not None else 0)
        await self._bridge.in_thread(self.streams.send_item, task, item)  # which waits for credit itself
        return 0

    def progress(self, task: Task, value: Any) -> None:
        """See :meth:`TaskAnswers.progress`; from any thread."""
        if not self._bridge.posts:
            super().progress(task, value)
        elif task.is_call:
            form, payload = self._process.encode(value, accepted_by(task))
            self._post(self.answers.send_encoded, task, _ALIVE, form, payload)


class _Tasks:
    """Begins each item where it is; see :class:`rpcmq.transport.shell.Workers`."""

    def __init__(self, begin: Callable[[Task], None]) -> None:
        self.start = begin

    def close(self) -> None:
        """Nothing waits for an item."""
