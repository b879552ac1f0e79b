"""A call or cast, or its end, as it passes a router: a plugged-in node sees it, and cannot change it."""

from __future__ import annotations

from rpcmq.core.router.link_table import LinkTable
from rpcmq.core.router.model import Delivery, Request
from rpcmq.errors import Outcome
from rpcmq.nodes.fingerprint import fingerprint_of
from rpcmq.wire import FORMAT_AT, KIND_AT, NO_TTL, ORIGIN_OF_KEY, Flag, Kind, payload_of, size_of

__all__ = ["FORMATS", "Passage"]

#: The names of payload formats, by their numbers.
FORMATS = {0: "none", 1: "json", 2: "pickle", 3: "dill"}
_ANSWERS = {int(Kind.REPLY): "reply", int(Kind.FAULT): "fault", int(Kind.END): "end"}
_OUTCOMES = {int(outcome): outcome.name.lower() for outcome in Outcome}


class Passage:
    """Something that passes: a request on its way to a consumer, its answer, or another end of it.

    It is about the present moment: keep what you read from it, not the object itself.

    Attributes:
        now: the time (monotonic seconds).
    """

    __slots__ = ("_delivery", "_links", "_message", "_outcome", "_request", "now")

    def __init__(
        self, now: float, links: LinkTable, request: Request, delivery: Delivery | None = None,
        message: bytes | None = None, outcome: int | None = None,
    ) -> None:  # fmt: skip
        self.now = now
        self._links = links
        self._request = request
        self._delivery = delivery
        self._message = message
        self._outcome = outcome

    @property
    def what(self) -> str:
        """One of ``call``, ``cast`` and ``fanout`` on the way, ``reply``, ``fault``, a stream's ``end``, ``ended``."""
        if self._outcome is not None:
            return "ended"
        if self._message is not None:
            return _ANSWERS.get(self._message[KIND_AT], "ended")
        request = self._request
        return "call" if request.is_call else "fanout" if request.flags & Flag.FANOUT else "cast"

    @property
    def id(self) -> str:
        """The key of the request as hexadecimal text, the same in all that passes of it."""
        return self._request.key.hex()

    @property
    def topic(self) -> str:
        """The topic."""
        return self._request.destination.topic.address.topic

    @property
    def exchange(self) -> str:
        """The exchange of the topic; empty for the default one."""
        return self._request.destination.topic.address.exchange

    @property
    def server(self) -> str:
        """The server that it is addressed to; empty if to none."""
        server = self._request.destination.server
        return server.name if server is not None else ""

    @property
    def method(self) -> str:
        """The method that is called."""
        return self._request.destination.method

    @property
    def caller(self) -> str:
        """The identity of the sender; of a call from another router that router's name.

        Of a cast whose sender is at another router, or gone, it is ``origin:`` and the number in the key that all that
        it sends has in common.
        """
        request = self._request
        origin = request.key[ORIGIN_OF_KEY]
        caller = request.reply_to or self._links.by_origin(origin)
        return caller.identity if caller is not None else f"origin:{origin.hex()}"

    @property
    def consumer(self) -> str:
        """The identity of the process, or the name of the router, that has it or had it; empty if nobody has."""
        delivery = self._delivery or self._request.delivery
        return delivery.consumer.link.identity if delivery is not None else ""

    @property
    def attempt(self) -> int:
        """The number of consumers that had it before and may have run it."""
        return self._request.attempts

    @property
    def outcome(self) -> str:
        """The outcome of one that has ended, else an empty text."""
        if self._outcome is not None:
            return _OUTCOMES.get(self._outcome, str(self._outcome))
        if self._message is None:
            return ""
        return "remote_error" if self._message[KIND_AT] == Kind.FAULT else "ok"

    @property
    def seconds(self) -> float:
        """Since it came to this router."""
        return self.now - self._request.received_at

    @property
    def ttl(self) -> float | None:
        """Seconds that it had when it came, or None if it has no limit."""
        return None if self._request.ttl == NO_TTL else self._request.ttl / 1000

    @property
    def size_bytes(self) -> int:
        """Bytes of the message; 0 where there is none."""
        message = self._own
        return size_of(message) if message is not None else 0

    @property
    def format(self) -> str:
        """The format of the payload, ``json``, ``pickle`` or ``dill``, or ``none``."""
        message = self._own
        return FORMATS.get(message[FORMAT_AT], "unknown") if message is not None else "none"

    @property
    def payload(self) -> bytes | memoryview:
        """The payload, which the router knows nothing of."""
        message = self._own
        return payload_of(message) if message is not None else b""

    @property
    def given_at(self) -> float:
        """The time at which a consumer was given it, or it came to this router (monotonic seconds)."""
        return self._delivery.dispatched_at if self._delivery is not None else self._request.received_at

    @property
    def request_bytes(self) -> int:
        """Bytes of the payload of the call or cast that it is about."""
        return len(payload_of(self._request.message))

    @property
    def fingerprint(self) -> str:
        """A digest of address, method, payload and its format, of the call or cast that it is about.

        Two that ask for the same have the same one, as far as their payloads are the same bytes. One whose caller has
        given up has lost its payload, and has another.
        """
        return fingerprint_of(self._request.destination, self._request.message)

    @property
    def _own(self) -> bytes | None:
        if self._outcome is not None:
            return None
        return self._message if self._message is not None else self._request.message
