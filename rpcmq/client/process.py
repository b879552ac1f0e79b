"""This process's RoundRobin link to its router, under one identity, shared by callers and services."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from time import monotonic
from typing import TypeVar

from rpcmq.client.cast_window import CastWindow
from rpcmq.client.hello import default_identity, hello_of
from rpcmq.client.limited_log import RateLimitedLog
from rpcmq.client.payloads import Payloads
from rpcmq.client.peer import DirectLinks
from rpcmq.client.task_starts import FLUSH_AFTER, FLUSH_MESSAGES, TaskStarts
from rpcmq.client.trust import payload_checker_for
from rpcmq.config import ClientConfig
from rpcmq.core.process.call import Call, taken_of
from rpcmq.core.process.calls import Calls
from rpcmq.core.process.casts import Casts
from rpcmq.core.process.sent_streams import StreamingCall
from rpcmq.core.process.task import Registration
from rpcmq.core.process.task_table import TaskTable
from rpcmq.core.process.uplink import Uplink
from rpcmq.core.process.welcome import Welcome
from rpcmq.errors import AccessDenied, CallError, CallTimeout, LinkLost, PayloadError, RpcError, UsageError
from rpcmq.payload import Codec
from rpcmq.payload.format import REQUEST_STREAMS
from rpcmq.transport.connection import Connection
from rpcmq.transport.key_files import KeyFile, curve_for, read_key_file
from rpcmq.transport.shell import ClientShell, Handle
from rpcmq.wire import NO_TTL, Flag, Kind, address_of, method_block_of, pack, parse, with_payload

__all__ = ["Process", "keys_for"]

T = TypeVar("T")

log = logging.getLogger("rpcmq.client")

# Looking up a member of an enum costs a cast as much as a few of its steps.
_CAST = int(Kind.CAST)
#: Pause before a registration that the router refused after a reconnect is tried again (seconds).
_ASK_AGAIN = 2.0


def keys_for(config: ClientConfig) -> KeyFile | None:
    """The keys that ``config`` names; None: it names none.

    Raises:
        ConfigError: the file is missing, wrong, or others can read it.
    """
    return read_key_file(config.key_file, client=True) if config.key_file else None


class Process:
    """The engines of a process on one connection, and those who wait for them.

    Args:
        config: router, identity, limits and times.
        codec: encodes and decodes payloads.
        shell: the loop that they live in.
        role: ``CONSUMER_ROLE`` of a link that only consumes.
        payloads: the checker of payloads, where the process has one already.

    Attributes:
        posts: whether calls and casts may be started, and calls be waited for, from any thread.
        posts_confirmed: whether casts may be started, and their confirmation be waited for, from any thread.
    """

    posts = False
    posts_confirmed = False

    def __init__(
        self, config: ClientConfig, codec: Codec, shell: ClientShell, role: str = "process",
        payloads: Payloads | None = None,
    ) -> None:  # fmt: skip
        self.config = config
        self.shell = shell
        self.codec = codec
        self.keys = keys_for(config)
        self.identity = config.identity or default_identity(self.keys.name if self.keys is not None else "")
        self.payloads, self._audit = payload_checker_for(config, codec, self.identity, shell, payloads)
        hello = hello_of(self.identity, "roundrobin", codec.accepted, role)
        hello = replace(hello, keeps=True, wants_drops=True, accepts=(*hello.accepts, REQUEST_STREAMS))
        self.uplink = Uplink(hello, self._welcomed, self._refused)
        self.casts = Casts(self.uplink, self._cast_refused, config.cast_kept, config.cast_kept_bytes)
        self.calls = Calls(self.uplink, self.casts)
        self._limited_log = RateLimitedLog(log)
        self.casts.losses.on_loss = partial(log.warning, "%s")
        self.tasks = TaskTable(self.uplink, self.calls, self._not_registered, config.answers_kept_bytes)
        self.connection = Connection(
            config.router, self.uplink, (self.calls,), self._after_receive, self._before_flush, shell,
            config.reconnect_max_seconds, config.connect_timeout, curve_for(self.keys), config.linger_seconds,
        )  # fmt: skip
        self.connection.call_when_denied(self._denied)
        self.direct = DirectLinks(self)
        #: Starts the handlers of delivered tasks; returns whether more was received meanwhile.
        self.start_tasks = TaskStarts(self.tasks, self.uplink, self.connection, shell, self.switch).start
        self._closing = False
        #: Does as :meth:`cancel`, for an exception that a signal's handler may follow: none raises in it.
        self.give_up: Callable[[Call], object] = self.cancel
        self.cast_window = CastWindow(config, self.casts, self.uplink, self.connection, shell)
        #: Of topics whose consumers have refused a format, by address.
        self.accepted_formats: dict[bytes, int] = {}

    # --- in the loop --------------------------------------------------------------------------

    def _welcomed(self, now: float, welcome: Welcome) -> None:
        self.calls.welcome(now, welcome)
        self.tasks.welcome(now, welcome)
        self.connection.on_ready()

    def _refused(self, reason: str, text: str) -> None:
        self.connection.on_refused(reason, text)

    def _denied(self, text: str) -> None:
        """Fail everything that waits, because our key is not accepted any more."""
        self.calls.fail_all(AccessDenied(text, {"started": "unknown"}))
        self.connection.schedule()

    def _before_flush(self) -> None:
        self.tasks.flush(monotonic())

    def _not_registered(self, registration: Registration, error: CallError) -> None:
        if self._closing:
            return
        if belongs_at := error.details.get("router"):
            self.connection.go_to(str(belongs_at))
        text = "%s is not consumed any more: the router refuses the registration: %s; retrying in %g s"
        log.error(text, registration.address, error, _ASK_AGAIN)
        self.shell.call_later(_ASK_AGAIN, partial(self._register_again, registration))

    def _register_again(self, registration: Registration) -> None:
        if not self._closing:
            self.tasks.register_again(monotonic(), registration)
            self.connection.schedule()

    def _after_receive(self) -> None:
        while self.calls.changed or self.tasks.delivered or self.tasks.changed:
            calls = self.calls.take_changed()
            try:
                self._resume(calls)
            except BaseException:
                # A signal's handler: who was resumed already looks for what it waits for once more.
                self.calls.changed[:0] = calls
                raise
            if self.start_tasks():
                # What has come meanwhile has to wait for the next wake-up: others in the loop have their turn before.
                break
        if self.cast_window.waiting:
            self.cast_window.wake(self.switch)

    def _resume(self, calls: list[Call]) -> None:
        flush_at = monotonic() + FLUSH_AFTER
        outbox = self.uplink.outbox
        for call in calls:
            if call.waiter is not None:
                self.switch(call.waiter)
                if len(outbox) >= FLUSH_MESSAGES or monotonic() > flush_at:
                    self.connection.flush()
                    flush_at = monotonic() + FLUSH_AFTER
        if self.calls.streams.open:
            for call in calls:
                if isinstance(call, StreamingCall):
                    call.changed()

    def switch(self, switch: Callable[[], object]) -> None:
        """Resume somebody who waits, from the loop; an exception does not affect later ones."""
        try:
            switch()
        except BaseException as error:
            self.shell.print_exception(switch, error)

    def _cast_refused(self, message: bytes, error: CallError) -> bytes | None:
        """Handle the refusal of an unconfirmed cast: retry it in another format, or log it."""
        accepts = error.details.get("accepts")
        if type(accepts) is int:
            try:
                value = self.payloads.own(message)
                form, payload = self.codec.encode(value, accepts)
            except (PayloadError, RpcError) as problem:
                self._limited_log.error((address_of(message), type(error)), f"cast not delivered: {error}; {problem}")
                return None
            return with_payload(message, form, self._signed_again(message, form, payload))
        self._limited_log.error((address_of(message), type(error)), f"cast not delivered: {error}")
        return None

    def _signed_again(self, message: bytes, form: int, payload: bytes) -> bytes:
        """Return ``message`` with another ``payload``, signed as before."""
        header = parse(message)
        if not header.flags & Flag.SEALED:
            return payload
        life = None if header.ttl == NO_TTL else header.ttl / 1000
        names = address_of(message), method_block_of(message)
        return self.payloads.sign_request(header.kind, None, header.flags, form, payload, *names, life)[1]

    # --- in the caller's thread of control ------------------------------------------------------------

    def check_usable(self) -> None:
        """Raise where a verb cannot be used.

        Raises:
            UsageError: another OS thread, a closed client, or the loop itself, which must never wait.
            IdentityTaken: another live process has our identity.
        """
        if not self.shell.may_wait:
            self.connection.check_thread()
            raise UsageError(self.shell.cannot_wait)
        self.connection.check_open()

    def wait(
        self, call: Call, until_item: bool = False, on_progress: Callable[[Call, bytes], object] | None = None
    ) -> None:
        """Wait until ``call`` is done, or has an item.

        If the wait is interrupted, the call is cancelled.
        """
        resume, park = self.shell.parking()
        try:
            # `done`, written out.
            while call.answer is None and call.error is None and not (until_item and call.items):
                call.waiter = resume
                park()
                call.waiter = None  # the callback below may wait for something else
                if call.progress:
                    messages, call.progress = call.progress, []
                    if on_progress is not None:
                        for message in messages:
                            on_progress(call, message)
        except BaseException:
            self.give_up(call)
            raise
        finally:
            call.waiter = None

    def wait_within(
        self,
        seconds: float,
        call: Call,
        cancel: Callable[[], object],
        on_progress: Callable[[Call, bytes], object] | None = None,
    ) -> bool:
        """Wait until ``call`` is done; if it is not within ``seconds``, call ``cancel``, and return False."""
        expired = CallTimeout("")
        timer = self.end_within(seconds, call, cancel, expired)
        try:
            self.wait(call, on_progress=on_progress)
        finally:
            timer.stop()
            timer.close()
        return call.error is not expired

    def end_within(self, seconds: float, call: Call, cancel: Callable[[], object], error: CallError) -> Handle:
        """Have ``cancel`` called, and ``call`` end with ``error``, unless it is done within ``seconds``."""

        def expire() -> None:
            if not call.done:
                cancel()
                call.error = error
                if call.waiter is not None:
                    self.switch(call.waiter)

        return self.shell.call_later(max(0.0, seconds), expire)

    def wait_ready(self, timeout: float, restart_timeout: float) -> None:
        """See :meth:`rpcmq.transport.connection.Connection.wait_ready`."""
        self.connection.wait_ready(timeout, restart_timeout)

    def wait_for_room(self, address: bytes, seconds: float, name: str) -> None:
        """See :meth:`rpcmq.client.cast_window.CastWindow.wait`."""
        self.cast_window.wait(address, seconds, name)

    def start_call(
        self, now: float, call: Call, kind: int, payload: bytes, form: int, address: bytes, method: bytes, trace: bytes
    ) -> None:
        """Send a message whose end ``call`` waits for."""
        self.calls.start(now, call, kind, payload, format=form, address=address, method=method, trace=trace)
        self.connection.schedule()

    def send_cast(
        self, payload: bytes, flags: int, form: int, address: bytes, method: bytes, trace: bytes, ttl: int | None
    ) -> bool:
        """Send a cast that nobody waits for, unless other threads have filled the window since the caller has looked.

        Args:
            ttl: milliseconds; None: it does not age.

        Returns:
            False if it was not sent, because there is no room.
        """
        life = {} if ttl is None else {"ttl": ttl}
        message = pack(
            _CAST, payload, flags=flags, format=form, key=self.uplink.next_key(), address=address, method=method,
            trace=trace, **life,
        )  # fmt: skip
        self.casts.send(message, address)
        self.connection.send_soon()
        return True

    def run_inside(self, function: Callable[[], T]) -> T:
        """Call ``function`` where the engines may be used."""
        return function()

    def start_soon(self) -> None:
        """Start waiting direct calls at the end of this turn of the loop."""
        if self.tasks.delivered:
            self.shell.call_soon(self.start_tasks)

    def do_posted(self) -> None:
        """Do what other threads have handed over so far; nothing, where they hand over nothing."""

    def schedule(self) -> None:
        """Flush messages queued for the router and for peers at the end of this turn of the loop."""
        self.connection.schedule()
        self.direct.schedule()

    def grant(self, call: Call) -> None:
        """Let the service send as many more items as were taken of the stream ``call`` since the last time."""
        self.calls.grant(monotonic(), call, *taken_of(call))
        self.connection.schedule()

    def cancel(self, call: Call) -> None:
        """Cancel ``call``: nobody waits for it any more."""
        if not call.done:
            self.calls.cancel(call)
            self.connection.schedule()

    def cancel_soon(self, call: Call) -> None:
        """Like :meth:`cancel`, from any OS thread."""
        if not self._closing:
            self.shell.call_from_any_thread(self.cancel, call)

    def encode(self, value: object, accepted: int) -> tuple[int, bytes]:
        """``value`` as format and payload, in a size that the router takes.

        Raises:
            PayloadError: it cannot be encoded, or is too large.
        """
        form, payload = self.codec.encode(value, accepted)
        if len(payload) > self.uplink.max_message_bytes - self.payloads.overhead:
            raise PayloadError(
                f"the message is {len(payload)} bytes when encoded, and the router takes "
                f"{self.uplink.max_message_bytes} (its message.max_bytes); send less, or raise that"
            )
        return form, payload

    def close(self, linger_seconds: float | None = None) -> None:
        """Say goodbye to the router; calls that wait end with LinkLost.

        Args:
            linger_seconds: how long to wait at most until the router has what is queued; default: the setting.

        Raises:
            UsageError: this is another OS thread.
        """
        if self.connection.abandoned or self._closing:
            return
        self.connection.check_thread()
        self._closing = True
        if self._audit is not None:
            self._audit.close()
        self.direct.close()
        self.calls.fail_all(closed_error())
        # The loop wakes those who wait, so this must end.
        self.connection.schedule()
        try:
            self.connection.close(linger_seconds)
        finally:
            self.calls.close(monotonic())


def closed_error() -> CallError:
    """Build the error for calls ended by closing their own client."""
    return LinkLost("the client was closed while the call was in flight")
