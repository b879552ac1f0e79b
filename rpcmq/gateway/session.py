"""The protocol of one connection: messages of the browser in, effects out. No I/O, and the clock is an argument.

A session is *new* until a hello brought a token that is one, then *open*, then perhaps *draining*, when requests that
run go on and new ones are refused, and at last *closed*, when nothing has an effect any more::

    new --hello--> open --drain--> draining
     |               |                |
     +----------- closed <------------+

Each request has an id, which is its own until it has ended with ``result``, ``error`` or ``end``. A request that is
cancelled ends with the error ``CallCancelled``, a subscription with ``end``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

from rpcmq.adapters.rate_limits import TokenBucket
from rpcmq.errors import AccessDenied, CallCancelled, Overloaded, PayloadError
from rpcmq.gateway.effects import (
    BAD_TOKEN,
    INVALID_DATA,
    POLICY_VIOLATION,
    Close,
    Effect,
    End,
    Grant,
    Send,
    Start,
)
from rpcmq.gateway.messages import (
    SUBPROTOCOL,
    VERSION,
    Cancel,
    Credit,
    Hello,
    MessageCodec,
    Numbered,
    Ping,
    Refused,
    Request,
    Unusable,
    memory_of,
    parse_message,
)
from rpcmq.gateway.outbox import Total
from rpcmq.gateway.request_memory import RequestMemory
from rpcmq.gateway.tokens import Token
from rpcmq.gateway.told_errors import INTERNAL_ERROR, Draining, told_error

__all__ = ["Session", "SessionLimits", "SessionState"]


#: Requests that may go on for ever, and so end with the right to them.
_LASTING = ("stream", "subscribe")


@dataclass(frozen=True)
class SessionLimits:
    """Limits of one connection; see :class:`rpcmq.gateway.settings.LimitSettings`.

    Attributes:
        told: limits and times that the browser is told in ``welcome``.
    """

    requests: int = 64
    request_bytes: int = 32 * 1024 * 1024
    subscriptions: int = 100
    messages_per_second: float = 100.0
    tracebacks: bool = False
    told: Mapping[str, float] | None = None


class SessionState(Enum):
    """The state of a session."""

    NEW = auto()
    OPEN = auto()
    DRAINING = auto()
    CLOSED = auto()


class Session:
    """One connection.

    Args:
        codec: of its messages.
        limits: of what it may do.
        exchange: of a request that names none.
        find_token: returns the token that a text is, or why it is refused.
        rate_of: returns the bucket that all connections of a token share; None: no limit.
        held: bytes of memory that the requests of all connections take, about.
    """

    def __init__(
        self,
        codec: MessageCodec,
        limits: SessionLimits,
        exchange: str,
        find_token: Callable[[str], Token | str],
        rate_of: Callable[[Token], TokenBucket | None],
        held: Total,
        now: float,
    ) -> None:
        self._codec = codec
        self._limits = limits
        self._exchange = exchange
        self._find_token = find_token
        self._rate_of = rate_of
        self._memory = RequestMemory(limits.request_bytes, held)
        #: Credits of each stream that cost nothing of the rate.
        self._free_credits: Counter[int] = Counter()
        self.state = SessionState.NEW
        self.token: Token | None = None
        self.client = ""
        #: Requests that have not ended, by their ids.
        self.running: dict[int, Request] = {}
        #: Subscriptions among them -> events that were lost and not told yet.
        self.subscriptions: dict[int, int] = {}
        self.counts: Counter[str] = Counter()
        rate = limits.messages_per_second
        # One second's worth in a burst, and as many refusals before this is taken for an attack.
        self._rate = TokenBucket(rate, now) if rate else None
        self._refusals = TokenBucket(rate, now) if rate else None

    @property
    def is_idle(self) -> bool:
        """Whether nothing but subscriptions runs."""
        return len(self.running) == len(self.subscriptions)

    # --- what the browser says ---------------------------------------------------------------

    def receive(self, now: float, text: str) -> list[Effect]:
        """Take a message of the browser."""
        if self.state is SessionState.CLOSED:
            return []
        try:
            message = parse_message(self._codec, text)
        except Refused as error:
            self.counts["refused"] += 1
            if self.state is SessionState.NEW:
                return self.close(POLICY_VIOLATION, "the first message is hello, with the member token")
            told = {"type": error.error, "text": str(error)}
            if error.id in self.running:
                return self.close(INVALID_DATA, f"id {error.id} names a request that has not ended; {error}")
            return self._limited(now, error) or self._tell_error(error.id, told)
        except Unusable as error:
            self.counts["unusable"] += 1
            return self.close(POLICY_VIOLATION if self.state is SessionState.NEW else INVALID_DATA, str(error))
        if self.state is SessionState.NEW:
            return self._begin(message)
        if isinstance(message, Hello):
            return self.close(POLICY_VIOLATION, "hello is the first message only")
        match message:
            # What is about a request that runs costs nothing of the rate: a credit for each item, and one end.
            case Credit(number) if number in self.running:
                return self._credit(now, message)
            case Cancel(number) if number in self.running:
                return self._cancel(number)
        if limited := self._limited(now, message):
            return limited
        match message:
            case Ping(number):
                return self._send("pong", number)
            case Request():
                return self._start(message, memory_of(text))
        return []  # about one that has ended meanwhile

    def _begin(self, message: object) -> list[Effect]:
        if not isinstance(message, Hello):
            return self.close(POLICY_VIOLATION, "the first message is hello, with the member token")
        if message.version != VERSION:
            return self.close(POLICY_VIOLATION, f"hello: version {message.version} is unknown; known: {VERSION}")
        found = self._find_token(message.token)
        if isinstance(found, str):
            return self.close(BAD_TOKEN, found)
        self.state, self.token, self.client = SessionState.OPEN, found, message.client
        limits = dict(self._limits.told or {})
        told = {"version": VERSION, "protocol": SUBPROTOCOL, "token": found.name, "limits": limits}
        return self._send("welcome", **told)

    def _limited(self, now: float, message: Numbered | Refused) -> list[Effect]:
        """Refuse a message beyond the rate, and end a connection that goes on nevertheless; []: it may pass."""
        assert self.token is not None
        buckets = (
            (self._rate, "limits.messages_per_second", self._limits.messages_per_second),
            (self._rate_of(self.token), "messages_per_second of the token", self.token.messages_per_second),
        )
        for bucket, name, limit in buckets:
            if bucket is None or not (wait := bucket.take(now)):
                continue
            self.counts["beyond the rate"] += 1
            text = f"more messages than {name} = {limit:g}"
            if self._refusals is not None and self._refusals.take(now):
                return self.close(POLICY_VIOLATION, text)
            if isinstance(message, Cancel | Credit) or message.id in self.running:
                return []  # nobody waits for an answer to it
            return self._fail(message.id, Overloaded(text, {"retry_after": round(wait, 3)}))
        return []

    def _start(self, request: Request, size: int) -> list[Effect]:
        number = request.id
        if number in self.running:
            self.counts["unusable"] += 1
            return self.close(POLICY_VIOLATION, f"id {number} names a request that has not ended")
        if self.state is SessionState.DRAINING:
            return self._fail(number, Draining("the gateway is stopping; try again at another one, or a little later"))
        is_subscription = request.op == "subscribe"
        running = len(self.subscriptions) if is_subscription else len(self.running) - len(self.subscriptions)
        name = "subscriptions" if is_subscription else "requests"
        most = getattr(self._limits, name)
        if running >= most:
            self.counts["beyond a limit"] += 1
            return self._fail(number, Overloaded(f"more {name} at a time than limits.{name} = {most}"))
        if full := self._memory.refuse(size):
            self.counts["beyond a limit"] += 1
            return self._fail(number, full)
        if problem := self._denied(request):
            self.counts["denied"] += 1
            return self._fail(number, problem)
        self.running[number] = request
        self._memory.add(number, size)
        if is_subscription:
            self.subscriptions[number] = 0
        elif request.op == "stream":
            self._free_credits[number] = 1
        self.counts[request.op] += 1
        return [Start(request)]

    def _credit(self, now: float, message: Credit) -> list[Effect]:
        if self.running[message.id].op != "stream":
            return []
        if self._free_credits[message.id]:
            self._free_credits[message.id] -= 1
        elif limited := self._limited(now, message):
            return limited
        return [Grant(message.id, message.count)]

    def _denied(self, request: Request) -> AccessDenied | None:
        assert self.token is not None
        details = {"token": self.token.name, "verb": request.verb, "topic": request.topic}
        if request.context is not None and not self.token.takes_context:
            text = f"token {self.token.name!r} may not bring a request context"
            return AccessDenied(text, details)
        exchange = request.exchange or self._exchange
        if self.token.allows(request.verb, exchange, request.topic):
            return None
        shown = f"{exchange}/{request.topic}" if exchange else request.topic
        return AccessDenied(f"token {self.token.name!r} has no right to {request.verb} {shown!r}", details)

    def _cancel(self, number: int) -> list[Effect]:
        request = self.running[number]
        effects: list[Effect] = [End(number)]
        if request.op == "subscribe":
            self._forget(number)
            return effects + self._send("end", number)
        return effects + self.failed(number, CallCancelled("the call was cancelled by its caller"))

    # --- what comes of it --------------------------------------------------------------------

    def result(self, number: int, value: Any) -> list[Effect]:
        """A request has ended with ``value``; a subscription was made, and goes on."""
        request = self.running.get(number)
        if request is None:
            return []
        if request.op != "subscribe":
            self._forget(number)
        return self._send("result", number, value=value)

    def end(self, number: int) -> list[Effect]:
        """A stream has no more items."""
        if number not in self.running:
            return []
        self._forget(number)
        return self._send("end", number)

    def failed(self, number: int, error: BaseException) -> list[Effect]:
        """A request has ended with ``error``."""
        if number not in self.running:
            return []
        self._forget(number)
        return self._fail(number, error)

    def item(self, number: int, value: Any) -> list[Effect]:
        """A stream has an item.

        Raises:
            PayloadError: it cannot be sent; the stream is to end with that.
        """
        if number not in self.running:
            return []
        self._free_credits[number] += 1
        return [Send(self._codec.message("item", number, value=value))]

    def progress(self, number: int, value: Any, room: int) -> list[Effect]:
        """A call reports its progress, which is left out if it has more than ``room`` bytes."""
        if number not in self.running:
            return []
        try:
            message = self._codec.message("progress", number, value=value)
        except PayloadError:
            return []
        return [Send(message)] if len(message) <= room else []

    def event(self, number: int, tail: bytes, room: int) -> list[Effect]:
        """A subscription has an event, which is lost if it has more than ``room`` bytes.

        Args:
            tail: the message without its id, as :meth:`MessageCodec.event_tail` makes it; many share it.
        """
        lost = self.subscriptions.get(number)
        if lost is None:
            return []
        message = b'{"op":"event","id":%d,%b' % (number, tail)
        if len(message) > room:
            return self.lost(number, 1)
        return [*self.tell_lost(number), Send(message)]

    def lost(self, number: int, count: int) -> list[Effect]:
        """A subscription has lost ``count`` events; :meth:`tell_lost` tells it."""
        if number in self.subscriptions:
            self.subscriptions[number] += count
            self.counts["events lost"] += count
        return []

    def tell_lost(self, number: int) -> list[Effect]:
        """Tell how many events a subscription has lost, if it has."""
        lost = self.subscriptions.get(number)
        if not lost:
            return []
        self.subscriptions[number] = 0
        return self._send("lost", number, count=lost)

    # --- the end -----------------------------------------------------------------------------

    def drain(self) -> list[Effect]:
        """Refuse new requests from now on."""
        if self.state is not SessionState.OPEN:
            return []
        self.state = SessionState.DRAINING
        return self._send("draining")

    def token_changed(self, token: Token | None, reason: str) -> list[Effect]:
        """The token has other rights from now on; None: it is none any more, for this ``reason``."""
        if self.token is None or self.state is SessionState.CLOSED:
            return []
        if token is None:
            return self.close(BAD_TOKEN, reason)
        self.token = token
        effects: list[Effect] = []
        for number, request in list(self.running.items()):
            if request.op in _LASTING and (problem := self._denied(request)):
                effects += [End(number), *self.failed(number, problem)]
        return effects

    def close(self, code: int, reason: str) -> list[Effect]:
        """End the connection, and all that runs."""
        if self.state is SessionState.CLOSED:
            return []
        self.state = SessionState.CLOSED
        effects: list[Effect] = [End(number) for number in self.running]
        self.running.clear()
        self.subscriptions.clear()
        self._free_credits.clear()
        self._memory.clear()
        return [*effects, Close(code, reason)]

    # --- parts -------------------------------------------------------------------------------

    def _forget(self, number: int) -> None:
        del self.running[number]
        self.subscriptions.pop(number, None)
        self._free_credits.pop(number, None)
        self._memory.drop(number)

    def _send(self, op: str, number: int | None = None, /, **members: Any) -> list[Effect]:
        try:
            return [Send(self._codec.message(op, number, **members))]
        except PayloadError as error:
            return [] if number is None else self._fail(number, error)

    def _fail(self, number: int, error: BaseException) -> list[Effect]:
        self.counts["errors"] += 1
        return self._tell_error(number, told_error(error, self._limits.tracebacks) or INTERNAL_ERROR)

    def _tell_error(self, number: int, told: Mapping[str, Any]) -> list[Effect]:
        brief = {"type": told["type"], "text": told["text"]}
        for error in (told, brief):
            try:
                return [Send(self._codec.message("error", number, error=error))]
            except PayloadError:
                continue  # what it drags along cannot be sent
        return []
