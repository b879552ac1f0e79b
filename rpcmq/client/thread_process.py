"""A process whose calls and casts are handed to the loop's thread, without the lock around the engines.

Whoever calls only appends to a queue, wakes the loop, and waits on a lock of its own; the loop's thread starts what
it finds, all of one wake-up in one batch. So threads that call at once do not wait for each other, and a signal that
interrupts one of them finds no engine in the middle of its work. Threads whose answers are there wake one another.

A call that is the only one of its process is sent by the thread that makes it, which then waits at the socket itself:
to hand it over would only take time. The main thread, in which handlers of signals raise, uses the engines only while
these can be held back, and hands everything over where they cannot: where there are other threads.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from math import inf
from time import monotonic
from typing import Any, TypeVar

from rpcmq.client.payloads import Payloads
from rpcmq.client.process import Process, closed_error
from rpcmq.config import ClientConfig
from rpcmq.core.process.call import Call, taken_of
from rpcmq.errors import CallError
from rpcmq.payload import Codec
from rpcmq.transport.connection import Connection
from rpcmq.transport.current_hub import current_hub
from rpcmq.transport.handoff import new_handoff_lock
from rpcmq.transport.shell import ClientShell
from rpcmq.transport.thread_shell import ThreadShell
from rpcmq.transport.thread_signals import may_be_interrupted, uninterrupted
from rpcmq.wire import Address

__all__ = ["ThreadProcess"]

T = TypeVar("T")

log = logging.getLogger("rpcmq.client")

#: Calls and casts handed over after which the next cast waits until the loop's thread has had its turn.
_MOST_POSTED = 256
#: Casts below the limit of the window from which on they are counted before the verb returns: more than there are
#: threads that look and hand over at the same moment.
_NEAR = 64
#: Largest cast that is only handed over (bytes): a larger one is counted in the window before the verb returns.
_LARGE = 64 * 1024
#: Pause while too much is handed over (seconds).
_A_TURN = 0.0005


class ThreadProcess(Process):
    """The engines of a process in a plain thread, and the queue into it."""

    def __init__(self, config: ClientConfig, codec: Codec, shell: ClientShell) -> None:
        assert isinstance(shell, ThreadShell)
        super().__init__(config, codec, shell)
        self.thread_shell = shell
        # A trust policy has state of its own, and green threads wait in other ways: there the lock is taken.
        self.posts = not shell.is_patched and type(self.payloads) is Payloads
        self._is_inside = shell.monitor.is_held
        #: Functions and their arguments.
        self._inbox = shell.new_inbox(self.do_posted)
        self._posted: deque[tuple[Callable[..., object], tuple[Any, ...]]] = self._inbox.waiting
        self._given_up = shell.new_inbox(self._end_given_up)
        # A function of C. Its calls end when the loop wakes up, if a second signal keeps this thread from ringing.
        self.give_up = self._given_up.waiting.append
        #: Whether the loop looks into the inbox no more: the process was closed.
        self._is_gone = False
        self._wake_soon = shell.wakes.append
        self._lone_caller = shell.lone_caller(self.connection)
        #: The payloads of casts and events that came too late, for the verbs that are about to raise.
        self._unsent: list[bytes] = []
        # What verbs have handed over that had found the client open.
        self.connection.call_when_closed(self.do_posted)

    # --- in any thread -----------------------------------------------------------------------

    def check_usable(self) -> None:
        """See :meth:`Process.check_usable`."""
        self.thread_shell.check_waits()
        self.connection.check_open()

    def wait_ready(self, timeout: float, restart_timeout: float) -> None:
        """See :meth:`Process.wait_ready`."""
        # The first wait makes the connection.
        self.thread_shell.inside_undisturbed(partial(super().wait_ready, timeout, restart_timeout))

    def wait_for_room(self, address: bytes, seconds: float, name: str) -> None:
        """See :meth:`Process.wait_for_room`."""
        self.thread_shell.inside(super().wait_for_room, address, seconds, name)

    def start_call(
        self, now: float, call: Call, kind: int, payload: bytes, form: int, address: bytes, method: bytes, trace: bytes
    ) -> None:
        """See :meth:`Process.start_call`."""
        arguments = now, call, kind, payload, form, address, method, trace
        if self._is_inside():
            if may_be_interrupted():
                self.post(self._start, *arguments)
            else:
                uninterrupted(self._after_posted, super().start_call, *arguments)
        elif (
            self.calls.open
            or not self._is_alone(0)
            or may_be_interrupted()
            or not uninterrupted(self.thread_shell.monitor.inside_if_free, self._start_now, *arguments)
        ):
            self._inbox.put_before_waiting((self._start, arguments))
            if self._is_gone:
                self._do_posted_after_close()

    def run_inside(self, function: Callable[[], T]) -> T:
        """See :meth:`Process.run_inside`; it may wait, and a handler of a signal may raise in it where it does."""
        return self.thread_shell.inside(function)

    @property
    def posts_confirmed(self) -> bool:  # type: ignore[override]
        """See :class:`Process`: where the window is nearly full, they are counted in it with the lock."""
        return self.posts and not self.must_count(b"")

    def _is_alone(self, calls: int) -> bool:
        """Return whether so many ``calls`` are all that this process waits for."""
        return len(self.calls.open) == calls and not self._posted and self._lone_caller.is_free

    def send_cast(
        self, payload: bytes, flags: int, form: int, address: bytes, method: bytes, trace: bytes, ttl: int | None
    ) -> bool:
        """See :meth:`Process.send_cast`."""
        arguments = payload, flags, form, address, method, trace, ttl
        if self._is_inside():
            if not may_be_interrupted():
                return bool(uninterrupted(self._after_posted, self.send_cast_if_room, *arguments))
            self.thread_shell.wait_for_turn()
            if not self.cast_window.has_room(address):
                return False
            self.post_message(self.connection, self._cast, *arguments)
            # Whoever casts next finds it counted.
            self.thread_shell.wait_for_turn()
            return True
        if self.must_count(payload):
            return self.thread_shell.inside(self.send_cast, *arguments)
        while self.has_fallen_behind:
            self.thread_shell.inside(self.thread_shell.sleep, _A_TURN)
        self.post_message(self.connection, self._cast, *arguments)
        return True

    def must_count(self, payload: bytes, open_messages: int | None = None) -> bool:
        """Return whether a cast or event of ``payload`` is to be counted in the window before the verb returns.

        Args:
            open_messages: those in its window; default: the casts.
        """
        count = self.casts.open if open_messages is None else open_messages
        near_limit = count + len(self._posted) + _NEAR >= self.config.cast_window
        return near_limit or len(payload) > _LARGE

    @property
    def has_fallen_behind(self) -> bool:
        """Whether so much is handed over that the next cast is to wait until the loop's thread has had its turn."""
        return len(self._posted) >= _MOST_POSTED

    def wait(
        self, call: Call, until_item: bool = False, on_progress: Callable[[Call, bytes], object] | None = None
    ) -> None:
        """See :meth:`Process.wait`."""
        if self._is_inside():
            super().wait(call, until_item, on_progress)
        else:
            self._wait_outside(call, on_progress)

    def wait_within(
        self,
        seconds: float,
        call: Call,
        cancel: Callable[[], object],
        on_progress: Callable[[Call, bytes], object] | None = None,
    ) -> bool:
        """See :meth:`Process.wait_within`."""
        if self._is_inside():
            return super().wait_within(seconds, call, cancel, on_progress)
        if self._wait_outside(call, on_progress, monotonic() + seconds):
            return True
        return self.thread_shell.inside_undisturbed(partial(self._end_expired, call, cancel))

    def _wait_outside(
        self, call: Call, on_progress: Callable[[Call, bytes], object] | None, until: float = inf
    ) -> bool:
        """Wait for ``call`` without the lock; return whether it has ended before ``until`` (monotonic seconds)."""
        try:
            if on_progress is None and len(self.calls.open) == 1 and self._is_alone(1) and current_hub() is None:
                self.thread_shell.inside(self._lone_caller.wait, call, until)
                if call.done:
                    return True
            lock = new_handoff_lock()
            call.waiter = partial(self._wake_soon, lock.release)
            while True:
                # First: it may have ended before it had a waiter, and what it has reported came before its end.
                has_ended = call.answer is not None or call.error is not None
                if call.progress:
                    for message in self.thread_shell.inside(_take_progress, call):
                        if on_progress is not None:
                            on_progress(call, message)
                if has_ended:
                    return True
                if monotonic() >= until:
                    return False
                self._inbox.wait(lock, until)
        except BaseException:
            self.give_up(call)
            self._given_up.hurry()
            raise

    def post(self, function: Callable[..., object], *args: Any) -> None:
        """Call ``function``, which must not wait, in the loop's thread: after what was handed over before."""
        self._inbox.put((function, args))
        if self._is_gone:
            self._do_posted_after_close()

    def answer_soon(self, is_alone: bool, function: Callable[..., object], *args: Any) -> None:
        """Call ``function``, which must not wait, and send what it queues: from any thread, without the lock.

        Args:
            is_alone: nothing else is about to be sent, so that it goes out from here. What comes together is sent
                together, by the loop's thread.
        """
        self.thread_shell.check_not_patched_since()
        if (
            not is_alone
            or self._posted
            or may_be_interrupted()
            or not uninterrupted(self.thread_shell.monitor.inside_if_free, self._answer_now, function, args)
        ):
            self.post(function, *args)

    def _answer_now(self, function: Callable[..., object], args: tuple[Any, ...]) -> None:
        self.do_posted()
        self.connection.send_with(function, *args)

    def post_message(self, connection: Connection, send: Callable[..., object], payload: bytes, *args: Any) -> None:
        """Call ``send(payload, *args)``, which must not wait and sends over ``connection``, in the loop's thread.

        Raises:
            UsageError: the client was closed before; it is not called.
        """
        self.post(self._send_posted, connection, send, payload, args)
        # In this order: what is handed over before the client is closed is sent, and nobody asks about it.
        if connection.closed:
            self.thread_shell.inside(self._check_sent, connection, payload)

    def _do_posted_after_close(self) -> None:
        # Nobody else does: the client was closed in another thread since this one has looked.
        self.thread_shell.inside(self.do_posted)

    def grant(self, call: Call) -> None:
        """See :meth:`Process.grant`."""
        if self._is_inside() and not may_be_interrupted():
            uninterrupted(super().grant, call)
        else:
            self.post(self.calls.grant, monotonic(), call, *taken_of(call))

    def cancel(self, call: Call) -> None:
        """See :meth:`Process.cancel`."""
        if self._is_inside() and not may_be_interrupted():
            uninterrupted(self._after_posted, super().cancel, call)
        else:
            self.post(super().cancel, call)

    # --- with the lock -----------------------------------------------------------------------

    def _end_expired(self, call: Call, cancel: Callable[[], object]) -> bool:
        """Have ``cancel`` called unless ``call`` has ended; return whether it has."""
        call.waiter = None
        if not call.done:
            cancel()
        return call.done

    def _after_posted(self, function: Callable[..., T], *args: Any) -> T:
        self.do_posted()
        return function(*args)

    def send_cast_if_room(
        self, payload: bytes, flags: int, form: int, address: bytes, method: bytes, trace: bytes, ttl: int | None
    ) -> bool:
        """See :meth:`send_cast`; with the lock, and not before what was handed over."""
        # Others may have cast since the caller has looked: it encodes without the lock.
        if not self.cast_window.has_room(address):
            return False
        return super().send_cast(payload, flags, form, address, method, trace, ttl)

    def _end_given_up(self) -> None:
        self.do_posted()
        given_up = self._given_up.waiting
        while given_up:
            super().cancel(given_up.popleft())

    def _send_posted(
        self, connection: Connection, send: Callable[..., object], payload: bytes, args: tuple[Any, ...]
    ) -> None:
        if connection.ended:
            self._unsent.append(payload)
        else:
            send(payload, *args)

    def _check_sent(self, connection: Connection, payload: bytes) -> None:
        """Raise if ``connection`` was closed before ``payload`` could be sent."""
        self.do_posted()
        for index, unsent in enumerate(self._unsent):
            if unsent is payload:
                del self._unsent[index]
                connection.check_open()
                return

    def do_posted(self) -> None:
        """See :meth:`Process.do_posted`; in its order."""
        posted = self._posted
        if posted:
            self._lone_caller.dismiss()
            while posted:
                function, arguments = posted.popleft()
                function(*arguments)
            self.connection.schedule()

    def _start_now(self, now: float, call: Call, kind: int, payload: bytes, form: int, *names: bytes) -> None:
        if self.connection.closed:
            raise closed_error()
        self.do_posted()
        address, method, trace = names
        self.calls.start(now, call, kind, payload, format=form, address=address, method=method, trace=trace)
        # A stream, and a call whose service has to give signs of life, are looked at before their timeout.
        self.connection.send_now(now if call.timeout is None or call.silence is not None else now + call.timeout)

    def _start(
        self, now: float, call: Call, kind: int, payload: bytes, form: int, address: bytes, method: bytes, trace: bytes
    ) -> None:
        try:
            if self.connection.closed:
                raise closed_error()
            self.calls.start(now, call, kind, payload, format=form, address=address, method=method, trace=trace)
        except Exception as error:
            call.error = error if isinstance(error, CallError) else CallError(f"{type(error).__name__}: {error}")
            if call.waiter is not None:
                self.switch(call.waiter)

    def _cast(
        self, payload: bytes, flags: int, form: int, address: bytes, method: bytes, trace: bytes, ttl: int | None
    ) -> None:
        try:
            super().send_cast(payload, flags, form, address, method, trace, ttl)
        except Exception as error:
            log.error("cast to %s not sent: %s", Address.decode(address), error)

    def close(self, linger_seconds: float | None = None) -> None:
        """See :meth:`Process.close`."""
        try:
            super().close(linger_seconds)
        finally:
            self._leave_loop()

    def _leave_loop(self) -> None:
        self._lone_caller.close()
        self.thread_shell.remove_inbox(self._inbox)
        self.thread_shell.remove_inbox(self._given_up)
        self._is_gone = True
        self.do_posted()


def _take_progress(call: Call) -> list[bytes]:
    messages, call.progress = call.progress, []
    return messages
