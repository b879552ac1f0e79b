"""Consume messages as they come, and answer them now or later, from any thread.

A :class:`~rpcmq.Service` looks up a method and answers with what it returns. A :class:`MessageConsumer` leaves both to
the adapter: it gets each message whole, and decides what runs it, where, and when it is answered.
"""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import Any

from rpcmq.client.consumer import ANSWERED, Consumer
from rpcmq.client.later import Kept
from rpcmq.client.request import Request
from rpcmq.client.router_consumers import new_consumer, running_tasks
from rpcmq.client.task_answers import is_done
from rpcmq.client.verbs import ClientVerbs
from rpcmq.core.process.task import Task
from rpcmq.transport.home import Home, at_home
from rpcmq.wire import Address

__all__ = ["KEPT", "IncomingMessage", "MessageConsumer", "is_serving"]

#: Returned by a handler that keeps the message, which then runs until any thread ends it, and none waits for that.
KEPT: Any = object()
#: Longest wait until all that was delivered has reached the handler, and pause between two looks (seconds).
_GIVEN_WITHIN, _LOOK_AGAIN = 2.0, 0.005
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

    __slots__ = ("_consumer", "_is_let_go", "body", "items_sent", "kept", "shell")

    def __init__(self, consumer: Consumer, task: Task, body: dict[str, Any]) -> None:
        super().__init__(task, consumer.progress)
        self._consumer = consumer
        self.shell = consumer.shell
        self.body = body
        self.items_sent = 0
        #: Answered once the message has ended; of use to the consumer where the handler has kept it.
        self.kept: Kept[Any] = Kept()
        self._is_let_go = False

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

    @at_home
    def settle(self) -> bool:
        """End a cast that the handler has kept: it is given to nobody else any more.

        Returns:
            Whether it still was this process's, which it is not if its router has taken this process for lost since,
            and may have given it to another one. Always False for calls, of which nothing is changed.
        """
        if self.is_call:
            return False
        is_ours = self._task.is_wanted
        self._let_go()
        return is_ours

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

    @at_home
    def reply(self, value: Any) -> None:
        """Answer the call with its result; after items, that is the last of them. The call is done.

        Nothing is sent for a cast, nor once the call is done.

        Raises:
            PayloadError: ``value`` cannot be encoded; the call is not done.
        """
        if not self.is_call:
            return
        if not self.done:
            if self.items_sent:
                self.send_item(value)
                self.end()
            else:
                self._consumer.answers.reply(self._task, value)
        self._let_go()

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
    ) -> None:
        self._handle = handle
        #: Tasks that the handler was called with; those that have ended are forgotten now and then.
        self._given: set[Task] = set()
        self._most_given = concurrency + _MOST_ENDED
        self._consumer = client.home.run(
            new_consumer, client, address, self._invoke, concurrency=concurrency, group=group, direct=direct,
            beats=beats,
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
        self._given.add(task)
        if len(self._given) > self._most_given:
            self._given = {each for each in self._given if not each.has_ended}
        return message.kept if self._handle(message) is KEPT else ANSWERED


def is_serving(client: ClientVerbs) -> bool:
    """Whether a consumer or service of ``client`` takes messages, or runs some that it has taken."""
    return client.home.run(lambda: bool(client.process.tasks.registrations) or client.consumer_links().serves)
