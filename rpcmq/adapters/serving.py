"""Consume messages as they come, and answer them now or later, from any thread.

A :class:`~rpcmq.Service` looks up a method and answers with what it returns. A :class:`MessageConsumer` leaves both to
the adapter: it gets each message whole, and decides what runs it, where, and when it is answered.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import copy_context
from time import monotonic
from typing import Any

from rpcmq.client.consumer import ANSWERED, Consumer
from rpcmq.client.later import Kept
from rpcmq.client.request import Request
from rpcmq.client.router_consumers import new_consumer, running_tasks
from rpcmq.client.task_answers import accepted_by, is_done
from rpcmq.client.thread_process import ThreadProcess
from rpcmq.client.verbs import ClientVerbs
from rpcmq.core.process.task import Task
from rpcmq.transport.home import Home, at_home
from rpcmq.transport.thread_shell import ThreadShell
from rpcmq.wire import Address, Flag, Kind

__all__ = ["KEPT", "IncomingMessage", "MessageConsumer", "is_serving"]

#: Returned by a handler that keeps the message, which then runs until any thread ends it, and none waits for that.
KEPT: Any = object()
#: Longest wait until all that was delivered has reached the handler, and pause between two looks (seconds).
_GIVEN_WITHIN, _LOOK_AGAIN = 2.0, 0.005
#: Longest pause between two looks for a router that is away (seconds).
_LONGEST_PAUSE = 0.25
#: Messages that have ended and are remembered before they are forgotten.
_MOST_ENDED = 256
#: Signs of life in the time after which a caller gives up without one.
_BEATS = 3


class IncomingMessage(Request):
    """A call or cast that a consumer was given. Any thread and greenlet may answer it.

    Attributes:
        body: the decoded payload. ``context`` and ``args`` are the sender's; further keys are what it put beside them.
        items_sent: how many items :meth:`send_item` has sent.

    The attributes of :class:`~rpcmq.Request` are here, too: ``method``, ``topic``, ``is_call``, ``attempt``, ``trace``,
    ``deadline``, ``remaining``, ``cancelled`` and ``progress()``.
    """

    __slots__ = ("_consumer", "_is_aside", "_is_let_go", "_occupies", "body", "items_sent", "kept", "shell")

    def __init__(self, consumer: Consumer, task: Task, body: dict[str, Any]) -> None:
        super().__init__(task, consumer.progress)
        self._consumer = consumer
        self.shell = consumer.shell
        self.body = body
        self.items_sent = 0
        #: Answered once the message has ended; of use to the consumer where the handler has kept it.
        self.kept: Kept[Any] = Kept()
        self._is_let_go = self._occupies = False
        #: Also where its session is over already, and others may have it.
        self._is_aside = task.registration.sets_aside and not task.is_call and not self._is_fanout

    @property
    def home(self) -> Home:
        """The home of the client."""
        return self._consumer.home

    @property
    def id(self) -> str:
        """Names the request in the whole system; a cast that is delivered again keeps it."""
        return self._task.key.hex()

    @property
    def done(self) -> bool:
        """Whether nothing more is sent. A call was answered, or its caller is gone; a cast is acknowledged."""
        return is_done(self._task)

    @property
    def longest_silence(self) -> float | None:
        """Seconds after which the caller gives up without a sign of life, or None if it asks for none."""
        beat: Any = self.body.get("keepalive") if self.is_call else None
        # A peer may have put anything there.
        is_time = type(beat) in (int, float) and 0 < beat < 1e9
        return round(beat * _BEATS, 3) if is_time else None

    def show_life(self) -> None:
        """Tell the caller of a call that it is being worked at; for consumers with ``beats=False``."""
        if self.is_call and not self.done:
            self.progress(None)

    def set_aside(self) -> None:
        """Say that a cast is not to be run here, or not now: if its router is gone before it is given back, it ends.

        Its sender has the next router deliver it, to this consumer or another one.
        """
        if not self.is_call and not self._is_fanout and not self._is_let_go:
            # In this order: it may be taken out in between, by the loop.
            self._task.registration.set_aside.add(self._task)
            self._is_aside = True

    @property
    def _is_fanout(self) -> bool:
        return bool(self._task.flags & Flag.FANOUT)

    @property
    def _is_for_others(self) -> bool:
        """Whether it was set aside when its router was gone."""
        return self._is_aside and self._task not in self._task.registration.set_aside

    @at_home
    def settle(self, runs_on: bool = False) -> bool:
        """End a cast that the handler has kept: it is given to nobody else any more.

        Args:
            runs_on: it runs from now on, and counts as running until :meth:`ran` is called: the router does not give
                this consumer another one in its place.

        Returns:
            Whether it still was this process's, which it is not if its router has taken this process for lost since,
            or is gone, and another one may be given it. A copy of a fanout is for nobody else. Always False for calls,
            of which nothing is changed. Of one that is set aside this is not known while there is no connection, or
            the router is silent: then this waits, until the consumer leaves.
        """
        if self.is_call or (self._is_aside and not self._is_certain()):
            return False
        is_ours = self._task.is_wanted or self._is_fanout or (self._is_aside and not self._is_for_others)
        if runs_on and is_ours and not self._is_let_go:
            self._occupies = True
            self._consumer.process.tasks.occupy(self._task.registration, 1)
        self._let_go()
        return is_ours

    def _is_certain(self) -> bool:
        """Wait until it is known whether the router still counts on this process; False: that has not come."""
        consumer = self._consumer
        uplink, ready = consumer.process.uplink, consumer.process.connection.status.ready
        while not self._is_for_others:
            is_ready = uplink.ready
            if is_ready and not self._task.registration.is_lapsed and not uplink.silent_seconds(monotonic()):
                return True
            if consumer.stopping:
                return False
            if is_ready:
                self.shell.sleep(_LONGEST_PAUSE)
            else:
                ready.wait(_LONGEST_PAUSE)
        return True

    def ran(self) -> None:
        """A cast that was settled with ``runs_on`` runs no more: the router may give the consumer another message."""
        if self._occupies:
            self._occupies = False
            self._do(self._vacate, is_urgent=False)

    def _vacate(self) -> None:
        process = self._consumer.process
        process.tasks.occupy(self._task.registration, -1)
        process.schedule()

    @at_home
    def give_back(self) -> bool:
        """Have the router give a message that the handler has kept to another consumer, or to this one again.

        It goes to the head of its queue, at once: who gives back what nobody else wants either waits before that.

        Returns:
            Whether it was given back, or is this process's no more because its router is gone. Nothing is changed if
            it has ended or sent items, is a copy of a fanout or a direct call, or if the router is of an earlier
            version, or away.
        """
        if self._is_let_go or not (self._is_for_others or self._consumer.process.tasks.give_back(self._task)):
            return False
        self._let_go()
        return True

    @at_home
    def send_item(self, value: Any) -> bool:
        """Send one item of a stream; waits while the caller takes none.

        A plain ``call`` gets the last item. Nothing is sent for a cast, nor once the call is done.

        Returns:
            Whether it was sent; if not, the caller takes no more.

        Raises:
            PayloadError: ``value`` cannot be encoded.
        """
        if not self.is_call or self.done or not self._consumer.streams.send_item(self._task, value):
            return False
        self.items_sent += 1
        return True

    def reply(self, value: Any) -> None:
        """Answer the call with its result; after items, that is the last of them. The call is done.

        Nothing is sent for a cast, nor once the call is done.

        Raises:
            PayloadError: ``value`` cannot be encoded; the call is not done.
        """
        if not self.is_call:
            return
        if self.items_sent:
            self._reply_after_items(value)
        elif not self.done:
            # Encoded first, and without the lock where there is one.
            self._do(self._reply_encoded, *self._consumer.process.encode(value, accepted_by(self._task)))
        else:
            self._do(self._let_go)

    @at_home
    def _do_at_home(self, function: Callable[..., object], *args: Any) -> None:
        function(*args)

    def _reply_encoded(self, form: int, payload: bytes) -> None:
        if not self.done:
            consumer = self._consumer
            consumer.answers.answer(consumer.process, self._task, int(Kind.REPLY), form, payload)
        self._let_go()

    @at_home
    def _reply_after_items(self, value: Any) -> None:
        if not self.done:
            self.send_item(value)
            self.end()
        self._let_go()

    def _do(self, function: Callable[..., object], *args: Any, is_urgent: bool = True) -> None:
        """Call ``function``, which must not wait, at home: at once, or soon in the thread of the sockets."""
        process = self._consumer.process
        if isinstance(process, ThreadProcess) and process.posts and not self.shell.is_current:
            process.answer_soon(is_urgent and self._task.registration.unended <= 1, function, *args)
        else:
            self._do_at_home(function, *args)

    @at_home
    def end(self) -> None:
        """End the stream; without an item, a plain ``call`` returns None. The call is done."""
        if self.is_call and not self.done:
            self._consumer.streams.end(self._task)
        self._let_go_call()

    @at_home
    def fail(self, error: BaseException) -> None:
        """Answer the call with an exception, which is logged here and raised at the caller. The call is done.

        Nothing is done for a cast, nor once the call is answered: raise in ``handle`` instead.
        """
        if self.is_call and (self.cancelled or not self.done):
            self._consumer.answers.fail(self._task, error)
        self._let_go_call()

    @at_home
    def wait(self) -> None:
        """Wait until the call is done, or its caller has given up."""
        if self.is_call:
            self._consumer.answers.wait(self._task)

    def _let_go_call(self) -> None:
        if self.is_call:
            self._let_go()

    def _let_go(self) -> None:
        """Let the consumer go on to the next message, if the handler has kept this one."""
        if not self._is_let_go:
            self._is_let_go = True
            if self._is_aside:
                self._task.registration.set_aside.discard(self._task)
            self.kept.answer(ANSWERED)


class MessageConsumer:
    """Consumes an address: ``handle`` is called with each message, side by side up to ``concurrency``.

    Args:
        client: the connection to consume over.
        address: what is consumed.
        handle: called with an :class:`IncomingMessage`, in a greenlet of its own; in one of ``concurrency`` threads
            where the client lives in plain threads. What it returns is ignored. A call that it has not answered stays
            open, and counts as running, until somebody answers it or the caller gives up, and a thread or greenlet
            waits for that. A cast is acknowledged when it returns. What it raises fails the call, and is logged. Where
            it returns :data:`KEPT` nothing waits: a call runs until it is answered, a cast until it is settled, from
            any thread, also where the caller gives up meanwhile.
        concurrency: how many messages may run at once, 1 to 65535; more wait in the router.
        group: consume a group of the topic: it gets a copy of each message, for one of its consumers.
        direct: also listen for direct calls, which do not pass the router.
        beats: send signs of life to callers that ask for them (``sign_of_life``), as long as this process lives; if
            not, :meth:`IncomingMessage.show_life` does.
        is_prompt: asked before each message whether ``handle`` is sure to return :data:`KEPT` at present, and not to
            wait: where the client lives in plain threads that nobody has patched, it is then called in the
            thread of the sockets, once that has seen to all that came, which spares the waking of another one. It must
            not use verbs there.

    Raises:
        UsageError: a wrong argument.
    """

    def __init__(
        self,
        client: ClientVerbs,
        address: Address,
        handle: Callable[[IncomingMessage], object],
        *,
        concurrency: int = 64,
        group: str = "",
        direct: bool = False,
        beats: bool = True,
        begun_when_settled: bool = False,
        is_prompt: Callable[[], bool] | None = None,
    ) -> None:
        self._handle = handle
        #: Tasks that the handler was called with; those that have ended are forgotten now and then.
        self._given: set[Task] = set()
        self._most_given = concurrency + _MOST_ENDED
        self._consumer = client.home.run(
            new_consumer, client, address, self._invoke, concurrency=concurrency, group=group, direct=direct,
            beats=beats, sets_aside=begun_when_settled, is_prompt=is_prompt,
        )  # fmt: skip
        self.shell = self._consumer.shell

    @property
    def home(self) -> Home:
        """The home of the client."""
        return self._consumer.home

    @at_home
    def start(self, timeout: float = 30.0) -> None:
        """Register; returns when the router will deliver.

        Args:
            timeout: seconds to wait for the router.

        Raises:
            RouterUnreachable: there is no router.
            IdentityTaken: another live process has this identity.
            CallError: the router refuses the registration.
            UsageError: it was started already.
        """
        self._consumer.start(timeout)

    @at_home
    def leave(self) -> None:
        """Take no more messages. What runs goes on, and can be answered still; :meth:`stop` is to follow.

        Returns when the handler was called with all that was delivered.
        """
        self._consumer.leave()
        deadline = monotonic() + _GIVEN_WITHIN
        while not self._given.issuperset(running_tasks(self._consumer)) and monotonic() < deadline:
            self.shell.sleep(_LOOK_AGAIN)

    @at_home
    def stop(self, timeout: float) -> bool:
        """Take no more messages, and wait for what runs. What runs longer goes on, and can be answered still.

        Args:
            timeout: seconds to wait.

        Returns:
            Whether all that ran has finished.
        """
        return self._consumer.stop(timeout)

    def _invoke(self, task: Task, body: dict[str, Any]) -> Any:
        message = IncomingMessage(self._consumer.at(task), task, body)
        shell = self.shell
        if isinstance(shell, ThreadShell) and not shell.can_wait:
            shell.call_at_end_of_turn(copy_context().run, self._give_kept, shell, task, message)
            return message.kept
        self._note_given(task)
        return message.kept if self._handle(message) is KEPT else ANSWERED

    def _give_kept(self, shell: ThreadShell, task: Task, message: IncomingMessage) -> None:
        """Call the handler, which keeps ``message``, in the thread of the sockets, without the lock."""
        try:
            if self._handle(message) is not KEPT and not message.is_call:
                shell.inside(message.kept.answer, ANSWERED)
        except BaseException as error:
            shell.inside(message.kept.fail, error)
        # Not before: who leaves waits for it.
        self._note_given(task)

    def _note_given(self, task: Task) -> None:
        self._given.add(task)
        if len(self._given) > self._most_given:
            # In steps that no other thread comes between: these add to the same set.
            self._given.difference_update([each for each in tuple(self._given) if each.has_ended])


def is_serving(client: ClientVerbs) -> bool:
    """Return whether a consumer or service of ``client`` takes messages, or runs some that it has taken."""
    return client.home.run(lambda: bool(client.process.tasks.registrations) or client.consumer_links().serves)
