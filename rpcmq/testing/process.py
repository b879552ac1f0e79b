"""The processes of a virtual network: their messages, received and sent."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count
from typing import Any

from rpcmq.core.process.uplink import Uplink
from rpcmq.core.process.welcome import Welcome
from rpcmq.errors import Outcome
from rpcmq.testing.endpoint import Endpoint, Surroundings
from rpcmq.wire import (
    KEY,
    MAX_VIEW_BYTES,
    NO_TTL,
    SETTLEMENT,
    VERSION,
    Address,
    Header,
    Kind,
    address_of,
    body_of,
    json_bytes,
    method_of,
    pack,
    parse,
    payload_of,
)
from rpcmq.wire.bodies import ErrorBody, HelloBody, WelcomeBody
from rpcmq.wire.query_bodies import QueryBody
from rpcmq.wire.stream_grant import grant_payload

__all__ = ["Call", "Message", "Process"]

_ENDS = (Kind.REPLY, Kind.FAULT, Kind.END, Kind.ERROR)


class Message:
    """A received message, read."""

    __slots__ = ("header", "message")

    def __init__(self, message: bytes) -> None:
        self.message = message
        self.header: Header = parse(message)

    @property
    def kind(self) -> Kind:
        """The kind of the message."""
        return Kind(self.header.kind)

    @property
    def key(self) -> bytes:
        """Router, handle and sequence (20 bytes)."""
        return self.message[KEY]

    @property
    def address(self) -> Address:
        """The address it was sent to."""
        return Address.decode(address_of(self.message))

    @property
    def method(self) -> str:
        """The method it asks for."""
        return method_of(self.message)

    @property
    def payload(self) -> bytes:
        """The payload, detached or not."""
        return bytes(payload_of(self.message))

    @property
    def body(self) -> dict[str, Any]:
        """The payload as the JSON object that a control message carries."""
        return body_of(self.message, MAX_VIEW_BYTES)

    @property
    def outcome(self) -> Outcome:
        """The outcome of a call, from REPLY, FAULT, END or ERROR."""
        if self.kind is Kind.ERROR:
            return Outcome(ErrorBody.of(self.message).outcome)
        return Outcome.REMOTE_ERROR if self.kind is Kind.FAULT else Outcome.OK

    def __repr__(self) -> str:
        return f"<{self.kind.name} {self.header.sequence} {self.payload[:200]!r}>"


class Call:
    """A message of a process that something answers."""

    __slots__ = ("key", "process")

    def __init__(self, process: Process, key: bytes) -> None:
        self.process = process
        self.key = key

    @property
    def answers(self) -> list[Message]:
        """All messages received for it."""
        return [m for m in self.process.received if m.key == self.key]

    @property
    def ends(self) -> list[Message]:
        """The messages that ended it: REPLY, FAULT, END or ERROR."""
        return [m for m in self.answers if m.kind in _ENDS]

    @property
    def end(self) -> Message:
        """The message that ended it, of which there must be exactly one.

        Raises:
            AssertionError: it has not ended, or more than once.
        """
        ends = self.ends
        assert len(ends) == 1, f"a call ends once, this one has ended {len(ends)} times: {ends}"
        return ends[0]


class Process(Endpoint):
    """A process's end of one link. Made by :meth:`Network.process`.

    Attributes:
        received: every message so far.
        inbox: those that :meth:`take` has not given out.
        welcomes: what each WELCOME meant for what was sent before.
        refusals: (reason, text) of each REFUSED.
    """

    def __init__(self, network: Surroundings, identity: str, queue_type: str, hello: Mapping[str, Any]) -> None:
        self._tags = count()
        self.welcomes: list[Welcome] = []
        self.refusals: list[tuple[str, str]] = []
        self.received: list[Message] = []
        self.inbox: list[Message] = []
        says = {"identity": identity, "queue_type": queue_type, "accepts": ("json", "pickle"), **hello}
        uplink = Uplink(
            HelloBody(versions=(VERSION,), **says),
            lambda now, welcome: self.welcomes.append(welcome),
            lambda reason, text: self.refusals.append((reason, text)),
        )
        super().__init__(network, identity, uplink)
        for kind in Kind:
            self.uplink.handle(kind, self._receive)

    @property
    def welcome(self) -> WelcomeBody:
        """The last WELCOME, which there must have been."""
        assert self.uplink.router is not None, f"{self.identity} was never welcomed"
        return self.uplink.router

    def _receive(self, now: float, message: bytes) -> None:
        arrived = Message(message)
        self.received.append(arrived)
        self.inbox.append(arrived)

    def send(self, kind: int, payload: bytes = b"", **fields: Any) -> Call:
        """Send any message of a session kind: fields as of :func:`rpcmq.wire.pack`."""
        key = fields.pop("key", None) or self.uplink.next_key()
        self.uplink.send(pack(kind, payload, key=key, **fields))
        self._network.run()
        return Call(self, key)

    # --- as a caller -------------------------------------------------------------------------

    def request(self, topic: str, method: str = "", payload: bytes = b"", **options: Any) -> Call:
        """A call. ``options``: as of :meth:`cast`."""
        return self._message(Kind.REQUEST, topic, method, payload, **options)

    def cast(self, topic: str, method: str = "", payload: bytes = b"", **options: Any) -> Call:
        """A cast.

        Args:
            topic: where to.
            method: of the endpoint.
            payload: opaque bytes.
            options: ``server`` and ``exchange`` of the address, ``ttl`` in seconds, ``flags``,
                ``format`` (default 1, JSON), ``trace``.
        """
        return self._message(Kind.CAST, topic, method, payload, **options)

    def _message(
        self,
        kind: Kind,
        topic: str,
        method: str,
        payload: bytes,
        *,
        server: str = "",
        exchange: str = "",
        ttl: float | None = None,
        flags: int = 0,
        format: int = 1,
        **fields: Any,
    ) -> Call:
        return self.send(
            kind,
            payload,
            address=Address(topic, server, exchange).encode(),
            method=method.encode(),
            ttl=NO_TTL if ttl is None else int(ttl * 1000),
            flags=flags,
            format=format,
            **fields,
        )

    def cancel(self, call: Call) -> None:
        """Give ``call`` up."""
        self.send(Kind.CANCEL, key=call.key)

    def grant(self, call: Call, items: int, size_bytes: int | None = None) -> None:
        """Take ``items`` more of the stream that ``call`` asked for, and bytes of them where these are counted."""
        payload = items.to_bytes(4) if size_bytes is None else grant_payload(items, size_bytes)
        self.send(Kind.GRANT, payload, key=call.key)

    def introduce(self, topic: str, server: str = "") -> Call:
        """Ask to be introduced to a consumer."""
        return self.send(Kind.INTRODUCE, address=Address(topic, server).encode())

    def query(self, what: str) -> dict[str, Any]:
        """A view of the router's state.

        Raises:
            AssertionError: the router refused.
        """
        call = self.send(Kind.QUERY, QueryBody(what=what).payload(), format=1)
        assert [m.kind for m in call.answers] == [Kind.ANSWER], f"no view {what!r}: {call.answers}"
        return call.answers[0].body

    # --- as a consumer -----------------------------------------------------------------------

    def register(
        self,
        topic: str,
        server: str = "",
        exchange: str = "",
        credit: int = 1,
        tag: int | None = None,
        **body: Any,
    ) -> int:
        """Consume (exchange, topic, server); returns the tag, which is the next one if None is given.

        ``body`` is what else REGISTER may say: ``peer_url``, ``recent``.
        """
        tag = next(self._tags) if tag is None else tag
        address = Address(topic, server, exchange).encode()
        payload = json_bytes({"credit": credit} | body)
        self.send(Kind.REGISTER, payload, format=1, address=address, consumer=tag)
        return tag

    def unregister(self, tag: int) -> Call:
        """Unregister ``tag``; running requests go on."""
        return self.send(Kind.UNREGISTER, consumer=tag)

    def reply(self, request: Message, payload: bytes = b"") -> None:
        """The result of ``request``."""
        self._about(request, Kind.REPLY, payload)

    def fault(self, request: Message, payload: bytes = b"") -> None:
        """``request`` raised."""
        self._about(request, Kind.FAULT, payload)

    def item(self, request: Message, payload: bytes = b"", flags: int = 0) -> None:
        """One item of the stream that ``request`` asked for."""
        self._about(request, Kind.ITEM, payload, flags)

    def end(self, request: Message) -> None:
        """The stream is complete."""
        self._about(request, Kind.END, b"")

    def alive(self, request: Message, progress: bytes = b"") -> None:
        """``request`` still runs."""
        self._about(request, Kind.ALIVE, progress)

    def _about(self, request: Message, kind: Kind, payload: bytes, flags: int = 0) -> None:
        header = request.header
        about = {"key": request.key, "attempt": header.attempt, "consumer": header.consumer}
        self.send(kind, payload, format=1, flags=flags, **about)

    def settle(self, *casts: Message, outcome: Outcome = Outcome.OK) -> None:
        """``casts`` are done; all of one tag."""
        payload = b"".join(SETTLEMENT.pack(m.key, m.header.attempt, outcome, 0) for m in casts)
        self.send(Kind.SETTLE, payload, consumer=casts[0].header.consumer)

    # --- events ------------------------------------------------------------------------------

    def subscribe(self, pattern: str, exchange: str = "", window: int = 1000) -> Call:
        """Have events whose topic matches ``pattern``, at most ``window`` that are not taken."""
        address = Address(pattern, "", exchange).encode()
        return self.send(Kind.SUBSCRIBE, json_bytes({"window": window}), format=1, address=address)

    def unsubscribe(self, pattern: str, exchange: str = "") -> Call:
        """No more events by ``pattern``."""
        return self.send(Kind.UNSUBSCRIBE, address=Address(pattern, "", exchange).encode())

    def publish(self, topic: str, payload: bytes = b"", **options: Any) -> Call:
        """An event. ``options``: as of :meth:`cast`."""
        return self._message(Kind.PUBLISH, topic, "", payload, **options)

    def taken(self, events: int) -> None:
        """``events`` have been handled."""
        self.send(Kind.EVENT_CREDIT, events.to_bytes(4))

    # --- what came ---------------------------------------------------------------------------

    def got(self, *kinds: Kind) -> list[Message]:
        """Take all messages of ``kinds`` (of any kind if none is given) out of the inbox."""
        taken: list[Message] = []
        inbox, self.inbox = self.inbox, []
        for found in inbox:
            (taken if not kinds or found.kind in kinds else self.inbox).append(found)
        return taken

    def take(self, kind: Kind) -> Message:
        """Take the oldest message of ``kind`` out of the inbox.

        Raises:
            AssertionError: there is none.
        """
        for found in self.inbox:
            if found.kind is kind:
                self.inbox.remove(found)
                return found
        raise AssertionError(f"{self.identity} has no {kind.name}, but {self.inbox}")
