"""A process's end of a link: introduces itself, keeps the session, notices a silent router.

The states and events are those of :mod:`rpcmq.core.process.uplink_states`. What is sent while the link is not ready
waits in the outbox. While it is draining, what would begin something new waits as well, for the router's next
life; answers, and what a handler asks for that the router still waits for, are sent.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from operator import length_hint

from rpcmq.core.common.illegal_events import IllegalEvents
from rpcmq.core.common.session import Session
from rpcmq.core.process.mesh_moves import MeshMoves, mesh_of
from rpcmq.core.process.new_work import begins_work
from rpcmq.core.process.pulse import Pulse
from rpcmq.core.process.uplink_states import OWN_EVENTS, TRANSITIONS, UplinkState
from rpcmq.core.process.welcome import Welcome, believed, is_next_life
from rpcmq.errors import ProtocolError
from rpcmq.wire import (
    FIRST_SESSION_KIND,
    KIND_AT,
    ORIGIN,
    VERSION,
    Kind,
    origin_of,
    pack,
    sequence_of,
    split,
    with_origin,
)
from rpcmq.wire.bodies import DrainBody, HelloBody, RefusedBody, WelcomeBody

__all__ = ["Uplink"]

Handler = Callable[[float, bytes], None]
#: Kinds of messages that may be handled twice: what has ended by the first time is over.
_REPEATABLE = tuple(
    map(
        int, (Kind.REPLY, Kind.FAULT, Kind.END, Kind.CONFIRM, Kind.ANSWER, Kind.REGISTERED, Kind.SUBSCRIBED, Kind.ERROR)
    )
)
#: Lateness of a heartbeat that shows that this process was stopped or busy (seconds).
_LATE = 0.5


class Uplink(Session):
    """The process side of one link.

    Args:
        hello: identity, queue type, role, accepted formats and description, as HELLO carries them.
        on_welcome: called with (now, Welcome) whenever the link is ready (again).
        on_refused: called with (reason, text) when the router does not take us.
    """

    def __init__(
        self,
        hello: HelloBody,
        on_welcome: Callable[[float, Welcome], None],
        on_refused: Callable[[str, str], None],
    ) -> None:
        super().__init__([])
        self._hello = hello
        #: Called with (now, Welcome) whenever the link is ready (again).
        self.on_welcome = on_welcome
        self._on_refused = on_refused
        self.moves = MeshMoves()
        self._handlers: list[Handler | None] = [None] * 256
        self._handlers[Kind.ROUTERS] = self.moves.routers_changed
        self._sequence = 0
        self.pulse = Pulse()
        self.on_acknowledged: Callable[[list[bytes]], None] = lambda messages: None
        #: Called when what handles a message was interrupted, by a signal or an internal error.
        self.on_interrupted: Callable[[], object] = lambda: None
        #: Called with an exception that a message has led to; it was not used.
        self.on_error: Callable[[Exception], None] = lambda error: None
        self.state = UplinkState.DOWN
        #: The last WELCOME; None before the first one.
        self.router: WelcomeBody | None = None
        self.origin = b""
        self._url = self._welcomed_at = ""  # of the present connection and of the last welcome
        self.unresponsive_seconds, self.lost_seconds = 12.0, 60.0
        #: Seconds within which we must reconnect after a restart of the router; 0.0 if that is irrelevant or unknown.
        self.recovery_seconds = 0.0
        self.max_message_bytes = 64 << 20
        self.heard = 0.0
        self.lost_at = 0.0
        self._asked = self._drained = self._holds = False
        #: Messages waiting for the next life of a router that is shutting down.
        self.held: list[bytes] = []
        #: Malformed messages from the router, discarded, by reason.
        self.discarded: Counter[str] = Counter()
        #: Events of this program that the state did not have.
        self.illegal = IllegalEvents()

    @property
    def identity(self) -> str:
        """The name under which the router knows us."""
        return self._hello.identity

    @property
    def tells_delivered(self) -> bool:
        """Whether the router acknowledges deliveries of casts."""
        return self.router is not None and self.router.tells_delivered

    @property
    def wants_stamps(self) -> bool:
        """Whether the router wants clock stamps of answers."""
        return self.router is not None and self.router.stamps

    @property
    def accepts_error_names(self) -> bool:
        """Whether the router takes the class of an exception in FAULT."""
        return self.router is not None and self.router.error_names

    @property
    def ready(self) -> bool:
        """Whether the outbox may be sent."""
        return self.state is UplinkState.READY or self.state is UplinkState.DRAINING

    def send(self, message: bytes) -> None:
        """Queue a message of a session kind."""
        if self._holds and begins_work(message):
            self.held.append(message)
            return
        if not self.marked:
            self.marked = True
            self.dirty.append(self)
        self.outbox.append(message)

    def handle(self, kind: Kind, handler: Handler) -> None:
        """Register ``handler`` for messages of ``kind``."""
        self._handlers[kind] = handler

    def with_current_origin(self, message: bytes) -> bytes:
        """Return ``message`` with the origin that this process has now."""
        return message if message[ORIGIN] == self.origin else with_origin(message, self.origin)

    def next_key(self) -> bytes:
        """A key (router, handle, sequence) for a new message of ours."""
        self._sequence = sequence = self._sequence + 1
        return self.origin + sequence.to_bytes(8)

    def ask_acknowledgement(self) -> None:
        """Ask the router for an immediate acknowledgement."""
        if self.ready and self._has_unacknowledged and not self._asked:
            # In this order: a signal's handler can raise in between.
            self._send_heartbeat()
            self._asked = True

    @property
    def _has_unacknowledged(self) -> bool:
        return bool(self.outbox or self.unacknowledged)

    def _send_heartbeat(self) -> None:
        self.send_last(self.pulse.question(self.received))
        self.ack_was_sent()

    # --- inputs ------------------------------------------------------------------------------

    def connected(self, now: float, url: str = "") -> None:
        """Handle a new connection, to the router at ``url``: send HELLO."""
        if self._happens("connected"):
            self._url = url
            hello = replace(self._hello, versions=(VERSION,), answers_drain=True)
            if (had := self.router) is not None:
                hello = replace(hello, token=had.token, handle=had.handle, boot=had.boot, received=self.received)
            hello = self.moves.hello(hello, had)
            self.heard = now
            self.pulse.greets(now)
            self._asked = False
            self.disconnected()
            self.send_first(hello.message())

    def lost(self, now: float) -> None:
        """The connection is gone."""
        was_ready = self.ready
        if self._happens("lost") and self.state is UplinkState.DOWN:
            self.disconnected()
            self._holds = False
            self.outbox.extend(self.held)
            self.held.clear()
            if was_ready:
                self.lost_at = now

    def close(self) -> None:
        """Say goodbye; nothing is expected any more."""
        if self._happens("close"):
            self.send_last(pack(Kind.GOODBYE))

    def receive(self, now: float, batch: bytes, payloads: Sequence[bytes | memoryview] = ()) -> None:
        """Handle one ZeroMQ message. Never raises, whatever came.

        But for a signal's handler, such as that of Ctrl-C, which can raise between any two steps. The connection must
        end then: resumed, it brings the messages that were not handled.
        """
        try:
            messages = split(batch, payloads)
            self.heard = now
            is_about_link = messages[0][KIND_AT] < FIRST_SESSION_KIND
            if not is_about_link and not self.ready:
                self._happens("message")
        except ProtocolError as error:
            self.discarded[error.reason] += 1
            return
        if is_about_link:
            self._handle_about_link(now, messages[0])
            return
        received, rest = self.received, iter(messages)
        try:
            self._handle(now, rest)
            self.count_received(len(messages), len(batch) + sum(map(len, payloads)))
        except BaseException:
            handled = len(messages) - length_hint(rest)
            if handled and messages[handled - 1][KIND_AT] in _REPEATABLE:
                handled -= 1  # comes again: a refused cast must be put back
            self.received = received + handled
            self._was_interrupted()
            raise

    def _handle_about_link(self, now: float, message: bytes) -> None:
        try:
            self._about_link(now, message)
        except ProtocolError as error:
            self.discarded[error.reason] += 1
        except Exception as error:
            self._count_error(error)
            if self.state is UplinkState.GREETING:
                raise  # nobody would greet again
        except BaseException:
            self._was_interrupted()
            raise

    def _handle(self, now: float, messages: Iterator[bytes]) -> None:
        handlers = self._handlers
        for message in messages:
            handler = handlers[message[KIND_AT]]
            try:
                if handler is None:
                    raise ProtocolError(f"kind {message[KIND_AT]:#04x} is unknown or not for a process", "kind")
                handler(now, message)
            except ProtocolError as error:
                self.discarded[error.reason] += 1
            except Exception as error:
                # Only this message is lost: the rest of the batch, and both sides' counts, stay valid.
                self._count_error(error)
                if message[KIND_AT] in _REPEATABLE:
                    self._handle_again(now, message)

    def _handle_again(self, now: float, message: bytes) -> None:
        """Handle ``message`` once more: a signal's handler may have raised, and then it is not the message's fault."""
        handler = self._handlers[message[KIND_AT]]
        try:
            if handler is not None:
                handler(now, message)
        except Exception as error:
            self._count_error(error)

    def _count_error(self, error: Exception) -> None:
        self.discarded["internal error"] += 1
        self._was_interrupted()
        self.on_error(error)

    def _was_interrupted(self) -> None:
        """Put the counts right: a signal's handler can raise any exception, between any two steps."""
        self.receiving_was_interrupted()
        self.on_interrupted()

    def tick(self, now: float) -> None:
        """Send a heartbeat when one is due."""
        if self.ready and now >= self.pulse.next:
            if now - self.pulse.next > _LATE:
                # This process was stopped or busy: it sent no heartbeat, so the router had nothing to answer.
                self.heard = now
            self.pulse.beats(now)
            self._send_heartbeat()

    def next_deadline(self) -> float | None:
        """The time of the next :meth:`tick` (monotonic seconds)."""
        return self.pulse.next if self.ready else None

    def silent_seconds(self, now: float) -> float:
        """Return for how long the router has been silent beyond the limit (seconds); 0.0 if it is not."""
        silent = now - self.heard
        return silent if self.ready and silent > self.unresponsive_seconds else 0.0

    @property
    def given_up_at(self) -> float:
        """The time at which the connection is given up unless something is received before (monotonic seconds)."""
        return self.heard + self.lost_seconds

    # --- about the link ----------------------------------------------------------------------

    def _happens(self, event: str) -> bool:
        """Go to the next state; return whether ``event`` is legal in this one.

        Raises:
            ProtocolError: it is an event of the router, and illegal.
        """
        state = TRANSITIONS.get((self.state, event))
        if state is not None:
            self.state = state
            return True
        if event not in OWN_EVENTS:
            raise ProtocolError(f"{event} while the link is {self.state.value}", "state")
        self.report_illegal(f"uplink: {event} while it is {self.state.value}")
        return False

    def report_illegal(self, text: str) -> None:
        """Count the illegal event ``text`` of this process, and report it the first time; in tests, raise it."""
        error = self.illegal.add(text)
        if error is not None:
            self.on_error(error)

    def _about_link(self, now: float, message: bytes) -> None:
        kind = message[KIND_AT]
        if kind == Kind.HEARTBEAT or kind == Kind.ACK:
            self._happens("message")
            self._asked = False
            count = sequence_of(message)
            if kind == Kind.HEARTBEAT:
                self.pulse.answered(now, message)
            if kind == Kind.ACK or count:
                self.on_acknowledged(self.acknowledged(count))
                self.forget_arrived()
        elif kind == Kind.WELCOME:
            self._welcome(now, WelcomeBody.of(message))
        elif kind == Kind.REFUSED:
            refused = RefusedBody.of(message)
            self._happens("refused")
            is_over = self._was_read(refused.received)
            self._on_refused(refused.reason, refused.text)
            if is_over:
                self.lost(now)  # whatever the owner has done
        elif kind == Kind.DRAIN:
            self._hold_new_work(DrainBody.of(message))
        else:
            raise ProtocolError(f"kind {kind:#04x} is not one that a router sends", "kind")

    def _hold_new_work(self, body: DrainBody) -> None:
        """Handle DRAIN: the router accepts nothing new."""
        self._happens("drain")
        self._holds = True
        self.held = [message for message in self.outbox if begins_work(message)]
        self.outbox[:] = [message for message in self.outbox if not begins_work(message)]
        if body.answer:
            # Sent after everything else, so that the router knows that nothing new is under way.
            self.send_last(pack(Kind.DRAIN, sequence=self.received))
            self.ack_was_sent()

    def _was_read(self, received: int | None) -> bool:
        """Handle the router's final receive count: messages beyond it count as never sent."""
        if received is None or not self.ready:
            return False
        try:
            self.on_acknowledged(self.resume(received))
        except ProtocolError as error:
            self.discarded[error.reason] += 1
            return False
        self._drained = True
        return True

    def _welcome(self, now: float, said: WelcomeBody) -> None:
        origin, mesh = origin_of(said.router_id, said.handle), mesh_of(said)
        if self.state is not UplinkState.GREETING:
            self._happens("welcome")  # raises, before anything has changed
        arrived: list[bytes] = []
        if said.resumed:
            try:
                arrived = self.resume(said.received)
            except ProtocolError:
                self.router = None  # start over with the next HELLO
                raise
        self._happens("welcome")
        before = self.router
        # Routers that were given no ids have the same one.
        elsewhere = before is not None and self._url != self._welcomed_at
        next_life = not elsewhere and is_next_life(before, said)
        self._welcomed_at = self._url
        drained, self._drained = self._drained, False
        same_handle = origin == self.origin or not self.origin
        same_mesh = self.moves.welcomed(said.resumed, mesh)
        self.router, self.origin = said, origin
        pace = believed(said)
        self.unresponsive_seconds = pace.unresponsive_seconds
        self.lost_seconds, self.recovery_seconds = pace.lost_seconds or 0.0, pace.recovery_seconds
        self.max_message_bytes = pace.max_message_bytes
        self.pulse.welcomed(now, pace.heartbeat_seconds)
        if said.resumed:
            self.on_acknowledged(arrived)
            self.on_welcome(now, Welcome(True, same_handle, [], []))
            return
        sent, unsent = self.abandon()
        self.on_welcome(now, Welcome(False, same_handle, sent, unsent, next_life, elsewhere, drained, same_mesh))
