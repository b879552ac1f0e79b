"""Consumers: a registration on a topic, and the execution of its calls and casts."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from time import monotonic
from typing import Any

from rpcmq.client.arguments import check_group
from rpcmq.client.interrupts import is_interrupt
from rpcmq.client.later import Kept, Later
from rpcmq.client.methods import ASYNC_RESULTS, not_awaited
from rpcmq.client.process import Process
from rpcmq.client.request import set_current_request
from rpcmq.client.request_stream import body_of, stream_of
from rpcmq.client.router_links import ServingLink
from rpcmq.client.stream_answers import StreamAnswers, streams
from rpcmq.client.task_answers import TaskAnswers, is_done
from rpcmq.core.process.call import Call
from rpcmq.core.process.task import Registration, Task, free_tag
from rpcmq.core.process.task_states import TaskState
from rpcmq.errors import Outcome, UsageError
from rpcmq.payload import Format
from rpcmq.payload.remote_exception import mark_not_run
from rpcmq.transport.home import Home, at_home
from rpcmq.transport.shell import Handle, Workers
from rpcmq.wire import Address, Kind

__all__ = ["ANSWERED", "PLAIN_VALUES", "UNREGISTER_SECONDS", "Consumer"]

log = logging.getLogger("rpcmq.service")

#: Makes workers that run tasks by the function that it is given.
NewWorkers = Callable[[Callable[[Task], None]], Workers[Task]]
#: Returned by a handler that answers the call itself through
#: :attr:`Consumer.answers`, now or later.
ANSWERED: Any = object()
#: Types that are never iterators: checking them first is four times as fast as looking for ``__next__``.
PLAIN_VALUES = frozenset({type(None), bool, int, float, str, bytes, list, tuple, dict, set})
_END: Any = object()
_CANCELLED = TaskState.CANCELLED
#: Longest wait of a stopping consumer for the router's confirmation (seconds); the router may be gone.
UNREGISTER_SECONDS = 2.0
#: Time within which a router that is away, and comes back, is told so (seconds); later it knows of no registration.
_UNTIL_FORGOTTEN = 60.0


class Consumer:
    """Takes the calls and casts of an address, and runs each beside the others: in a greenlet or OS thread of its own.

    Args:
        link: the connection to serve over: a client, or one link of it to one of several routers.
        address: what is consumed.
        invoke: called with (task, body), where body is the decoded payload. What it returns, yields or
            raises goes back to the caller; :data:`ANSWERED` if it answers by itself, now or later; a
            :class:`~rpcmq.client.later.Later`: what that is answered with, which is :data:`ANSWERED` if it has
            answered by itself.
        concurrency: how many run at once; more wait in the router.
        group: consume a group of the topic: it gets a copy of each message, for one of its consumers.
        direct: also listen for direct calls, which do not pass the router.
        beats: send signs of life to callers that ask for them, while the process lives.
        sets_aside: casts are set aside when they are delivered: others may be given them until they are settled.
        new_workers: makes the workers that run tasks, which may wait for a worker; default: workers of its own.

    Raises:
        UsageError: a wrong argument.
    """

    def __init__(
        self,
        link: ServingLink,
        address: Address,
        invoke: Callable[[Task, dict[str, Any]], Any],
        *,
        concurrency: int = 64,
        group: str = "",
        direct: bool = False,
        beats: bool = True,
        sets_aside: bool = False,
        new_workers: NewWorkers | None = None,
    ) -> None:
        if not 1 <= concurrency <= 65535:
            raise UsageError(f"concurrency must be 1 to 65535, not {concurrency!r}")
        check_group(group)
        self._link = link
        self.shell = shell = link.shell
        self.address = address
        address.encode()
        self._invoke = invoke
        self._concurrency, self._group, self._direct = concurrency, group, direct
        self._beats, self._sets_aside = beats, sets_aside
        self._workers = self._new_workers(concurrency) if new_workers is None else new_workers(self._run_if_awaited)
        self._outside = shell.outside
        self._registration: Registration | None = None
        #: Whether it takes no more, and whether the router has confirmed that it delivers no more.
        self.stopping = self._left = False
        #: Whether the router has been silent since it was asked to deliver no more.
        self.unanswered = False
        self._idle = shell.event()
        self.answers = TaskAnswers(link, address)
        self.streams = StreamAnswers(link, self.answers)

    def _new_workers(self, concurrency: int) -> Workers[Task]:
        """Make what runs the tasks beside one another."""
        return self.shell.workers(self._run, concurrency)

    # --- lifecycle --------------------------------------------------------------------------------

    @property
    def home(self) -> Home:
        """The home of the client. All methods but :meth:`progress` must be called there."""
        return self._link.home

    @property
    def process(self) -> Process:
        """The engines of the link over which it serves."""
        return self._link.process

    @property
    def started(self) -> bool:
        """Whether :meth:`start` was called, and succeeded."""
        return self._registration is not None

    def has(self, task: Task) -> bool:
        """Return whether ``task`` was delivered to this consumer."""
        return task.registration is self._registration

    def at(self, task: Task) -> Consumer:
        """The consumer that ``task`` was delivered to: this one."""
        return self

    def start(self, timeout: float = 30.0) -> None:
        """See :meth:`Service.start`."""
        if self.started:
            raise UsageError(f"the consumer of {self.address} was started already")
        process = self._link.process
        deadline = monotonic() + timeout
        process.connection.wait_ready(timeout)
        peer_url = process.direct.listen() if self._direct else ""
        tag = free_tag(process.tasks.registrations)
        registration = Registration(
            tag, self.address, self._concurrency, peer_url, self._workers.start, self._group, self._not_begun,
            self._sets_aside,
        )  # fmt: skip
        self._registration = registration
        try:
            left = max(0.001, deadline - monotonic())
            self._ask(process.tasks.register(monotonic(), registration, left))
        except BaseException:
            process.tasks.remove(registration)
            self._registration = None
            raise

    def take_back(self) -> None:
        """Undo :meth:`start`, whose caller does not know that it has succeeded; it can be called again."""
        registration = self._registration
        if registration is None:
            return
        self.leave(0.0)
        if not registration.running:
            self._link.process.tasks.remove(registration)
        self._registration = None
        self.stopping = self._left = False

    def stop(self, timeout: float) -> bool:
        """Stop deliveries, and let running tasks finish.

        Args:
            timeout: seconds to wait for what runs. What runs longer goes on, and answers as ever.

        Returns:
            Whether all that ran has finished.
        """
        registration = self._registration
        if registration is None:
            return True
        deadline = monotonic() + timeout
        self.leave(timeout)
        if registration.running:
            self._idle.wait(max(0.0, deadline - monotonic()))
        if registration.running:
            return False
        self._link.process.tasks.remove(registration)
        self._workers.close()
        return True

    def leave(self, timeout: float = UNREGISTER_SECONDS) -> None:
        """Stop deliveries. Call :meth:`stop` once running tasks are done.

        Args:
            timeout: seconds to wait for the router to know, a few at most.
        """
        process, registration = self._link.process, self._registration
        if self.stopping or registration is None:
            return
        self.stopping = True
        if process.connection.connected:
            self._unregister(process, registration, max(0.1, min(UNREGISTER_SECONDS, timeout)))
        else:
            process.tasks.unregister(monotonic(), registration, _UNTIL_FORGOTTEN)
        self._left = True

    def _unregister(self, process: Process, registration: Registration, patience: float) -> None:
        """Ask the router to deliver no more; one from which nothing comes is not waited for as long as a busy one."""
        asked = monotonic()
        call = process.tasks.unregister(asked, registration, patience)
        answered = self.shell.event()
        call.waiter = answered.set
        process.connection.schedule()
        try:
            answered.wait(min(patience, max(0.1, process.config.linger_seconds)))
            if not call.done and process.connection.connected and process.uplink.heard > asked:
                answered.wait(max(0.0, asked + patience - monotonic()))
        finally:
            process.cancel(call)
        if call.done and call.error is None:
            return
        self.unanswered = process.uplink.heard <= asked
        reason = call.error or process.connection.condition
        log.warning("%s: the router has not confirmed that it delivers no more: %s", self.address, reason)

    def _ask(self, call: Call) -> None:
        process = self._link.process
        process.connection.schedule()
        process.wait(call)
        if call.error is not None:
            raise call.error

    # --- tasks -------------------------------------------------------------------------------

    def _not_begun(self, task: Task, error: BaseException) -> None:
        """Answer ``task``, for which there is no thread, or which has ended by raising ``error`` here."""
        if not task.has_ended:
            text = f"{task.method!r} was not begun: {type(error).__name__}: {error}"
            self.answers.fail(task, mark_not_run(RuntimeError(text)))
            self._finish(task, None)

    def _run_if_awaited(self, task: Task) -> None:
        """Run ``task``, which may have waited for a worker, unless nobody wants it any more."""
        if self._is_awaited(task):
            self._run(task)
        else:
            self._drop(task)
            self._finish(task, None)

    def _is_awaited(self, task: Task) -> bool:
        """Return whether ``task``, which has waited here, is still to be begun."""
        if task.is_call:
            # That its caller gives up, or is gone, is told; its deadline is the caller's.
            return task.is_wanted
        # A cast also where its router is gone: the router's next life is told that we have it.
        return task.ttl is None or monotonic() < task.received_at + task.ttl

    def _drop(self, task: Task) -> None:
        """End ``task``, which was not begun."""
        if task.is_call:
            self.answers.decline(task)
        else:
            self._link.process.tasks.settle(monotonic(), task, Outcome.TIMEOUT)

    def _run(self, task: Task) -> None:
        """Run ``task``, beside the loop, which has started it; not one whose caller has given up meanwhile."""
        if task.state is _CANCELLED:
            self._run_if_awaited(task)
            return
        set_current_request(task, self.progress)
        keepalive: Handle | None = None
        try:
            body = self._body(task)
            if task.is_call and self._beats and "keepalive" in body:
                keepalive = self._keep_alive(task, float(body["keepalive"]))
            result = self._call(self._invoke, task, body)
            kind = type(result)
            if kind is Kept or (kind is Later and task.is_call):
                result.then(partial(self._end_later, task, keepalive), partial(self._fail_later, task, keepalive))
                keepalive = None
            elif kind not in PLAIN_VALUES and (kind in ASYNC_RESULTS or hasattr(kind, "__next__")):
                self._stream(task, result)
            elif not task.is_call:
                self._end(task)
            elif result is not ANSWERED:
                self.answers.reply(task, result)
            else:
                if not is_done(task):
                    self.answers.wait(task)
                if not task.has_ended:
                    self._end(task)
        except BaseException as error:
            self.answers.fail(task, error)
            # Anything else, such as SystemExit or a gevent.Timeout, has been reported to the caller and ends here.
            if is_interrupt(error):
                raise
        finally:
            self._finish(task, keepalive)

    def _end_later(self, task: Task, keepalive: Handle | None, result: Any) -> None:
        """End ``task``, whose method has returned before it had the result."""
        try:
            if result is not ANSWERED:
                self.answers.reply(task, result)
            elif not task.has_ended:
                self._end(task)
        except BaseException as error:
            self.answers.fail(task, error)
            if is_interrupt(error):
                raise
        finally:
            self._finish(task, keepalive)

    def _end(self, task: Task) -> None:
        """End ``task`` without an answer: a cast is done, and a call has been lost with its router."""
        if task.is_call:
            self.streams.end(task)
        else:
            self._link.process.tasks.settle(monotonic(), task, Outcome.OK)

    def _fail_later(self, task: Task, keepalive: Handle | None, error: BaseException) -> None:
        """Answer ``task``, whose method has returned before it failed."""
        try:
            self.answers.fail(task, error)
        finally:
            self._finish(task, keepalive)

    def _finish(self, task: Task, keepalive: Handle | None) -> None:
        process = self._link.process
        if keepalive is not None:
            keepalive.stop()
            keepalive.close()
        if self.answers.waited_for:
            self.answers.waited_for.pop(task, None)
        process.schedule()
        process.start_soon()
        if self._left and not task.registration.running:
            # Not earlier: the router uses the tag while any of its tasks runs.
            process.tasks.remove(task.registration)
            self._idle.set()

    def _body(self, task: Task) -> dict[str, Any]:
        body = body_of(self._link, task)
        if self._link.process.tasks.streams.open:
            self._add_stream(task, body)
        return body

    def _add_stream(self, task: Task, body: dict[str, Any]) -> None:
        """Put the stream that the caller may send among the arguments in ``body``."""
        stream = stream_of(self._link, self.answers, task, body)
        if stream is not None:
            body["args"][stream.name] = stream

    def _call(self, function: Callable[..., Any], *args: Any) -> Any:
        """Call the application's ``function`` where blocking is allowed."""
        return function(*args) if self._outside is None else self._outside(function, *args)

    def _stream(self, task: Task, items: Any) -> None:
        if type(items) in ASYNC_RESULTS:
            raise not_awaited(task.method, items)
        try:
            self._check_asked_for_items(task)
            while (item := self._call(next, items, _END)) is not _END:
                if task.is_call and not self.streams.send_item(task, item):
                    break
        finally:
            close = getattr(items, "close", None)
            if close is not None:
                self._call(close)
        if task.is_call:
            self.streams.end(task)
        else:
            self._link.process.tasks.settle(monotonic(), task, Outcome.OK)

    def _check_asked_for_items(self, task: Task) -> None:
        if task.is_call and (not streams(task) or self._link.process.tasks.streams.wants_whole(task)):
            raise UsageError(
                f"{task.method!r} on {str(self.address)!r} gives its result item by item: ask for it with "
                "multicall (rpcmq call --multi); no item was made"
            )

    @at_home
    def progress(self, task: Task, value: Any) -> None:
        """See :meth:`TaskAnswers.progress`; from any thread."""
        self.answers.progress(task, value)

    def _keep_alive(self, task: Task, seconds: float) -> Handle:
        process = self._link.process

        def beat() -> None:
            process.tasks.send_item(task, Kind.ALIVE, Format.JSON, b"")
            process.schedule()

        return self.shell.call_every(max(0.05, seconds), beat)
