"""Messages between browser and gateway: one typed JSON object in each text message of the WebSocket.

``docs/gateway.md`` describes them.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rpcmq import Codec, ExceptionRegistry, Format
from rpcmq.adapters.untrusted_values import short_repr
from rpcmq.errors import PayloadRefused, UsageError

__all__ = [
    "MAX_ID",
    "OPERATIONS",
    "SUBPROTOCOL",
    "VERSION",
    "Cancel",
    "Credit",
    "Hello",
    "Message",
    "MessageCodec",
    "Numbered",
    "Ping",
    "Refused",
    "Request",
    "Unusable",
    "memory_of",
    "parse_message",
]

VERSION = 1
"""Version of the protocol."""

SUBPROTOCOL = "rpcmq.1"
"""Name of the protocol in ``Sec-WebSocket-Protocol``."""

MAX_ID = 2**53 - 1
"""Highest id: the last integer that JavaScript counts exactly."""

#: Bytes of a name: a topic, an exchange, a method, a pattern.
_NAME_BYTES = 255
_MOST_CREDIT = 1000
_DEPTH = 100
#: Bytes of memory that a value within a message takes at least, as an empty list or object does.
_VALUE_BYTES = 64


_CALL = {"topic", "exchange", "method", "args", "context", "timeout"}
#: Members of each message beside ``op``.
_MEMBERS: Mapping[str, frozenset[str]] = {
    op: frozenset(members)
    for op, members in {
        "hello": {"version", "token", "client"},
        "ping": {"id"},
        "cancel": {"id"},
        "credit": {"id", "count"},
        "call": {"id", "idempotent", "mandatory", "progress"} | _CALL,
        "stream": {"id", "credit", "mandatory"} | _CALL,
        "cast": {"id", "idempotent", "mandatory", "confirm", "ttl"} | _CALL,
        "fanout": {"id", "confirm"} | _CALL,
        "publish": {"id", "topic", "payload", "context", "confirm"},
        "subscribe": {"id", "pattern"},
    }.items()
}


OPERATIONS = frozenset(_MEMBERS)
"""The messages of a browser."""


class Unusable(Exception):
    """A message whose sender cannot be told which one it was; the text says why, and the connection ends."""


@dataclass(frozen=True)
class Hello:
    """The first message: who is it? ``client`` names the program, for the log."""

    token: str
    version: int
    client: str = ""


@dataclass(frozen=True)
class Ping:
    """Asks whether the gateway is there."""

    id: int


@dataclass(frozen=True)
class Cancel:
    """Ends a request or a subscription."""

    id: int


@dataclass(frozen=True)
class Credit:
    """Allows ``count`` more items of a stream."""

    id: int
    count: int


@dataclass(frozen=True)
class Request:
    """Something to be done, and answered.

    Attributes:
        id: names it on its connection, until it has ended.
        op: ``call``, ``stream``, ``cast``, ``fanout``, ``publish`` or ``subscribe``.
        topic: or pattern.
        exchange: "": that of the gateway.
        timeout: seconds; None: not given.
        payload: of an event.
    """

    id: int
    op: str
    topic: str = ""
    exchange: str = ""
    method: str = ""
    args: Mapping[str, Any] = field(default_factory=dict)
    context: Mapping[str, Any] | None = None
    timeout: float | None = None
    ttl: float | None = None
    payload: Any = None
    credit: int = 1
    idempotent: bool = False
    mandatory: bool = False
    confirm: bool = False
    progress: bool = False

    @property
    def verb(self) -> str:
        """The verb of the right that it needs."""
        return "call" if self.op == "stream" else self.op


Numbered = Ping | Cancel | Credit | Request
Message = Hello | Numbered


class Refused(UsageError):
    """A request that cannot be done as it is; ``id`` says which."""

    def __init__(self, number: int, text: str, error: str = "UsageError") -> None:
        super().__init__(text)
        self.id = number
        self.error = error


class MessageCodec:
    """Typed JSON of whole messages.

    Args:
        max_result_bytes: longest value to a browser, in bytes.
    """

    def __init__(self, max_bytes: int, max_result_bytes: int) -> None:
        registry = ExceptionRegistry(defaults=False)
        limits = {"prefer": Format.JSON, "accepted": Format.JSON.bit, "exceptions": registry, "max_depth": _DEPTH}
        self._in = Codec(max_bytes=max(4096, max_bytes), **limits)  # type: ignore[arg-type]
        self._out = Codec(max_bytes=max(4096, max_result_bytes), **limits)  # type: ignore[arg-type]

    def decode(self, text: str) -> Any:
        """Return the value of a message.

        Raises:
            PayloadRefused: it is no typed JSON.
        """
        try:
            data = text.encode()
        except UnicodeEncodeError as error:
            raise PayloadRefused(f"malformed JSON: {error}") from None
        return self._in.decode(Format.JSON, data)

    def encode(self, value: Any) -> bytes:
        """Return ``value`` as typed JSON.

        Raises:
            PayloadError: it cannot be encoded, or is too long.
        """
        return self._out.encode(value, Format.JSON.bit)[1]

    def message(self, op: str, number: int | None = None, /, **members: Any) -> bytes:
        """Return a message to a browser.

        Raises:
            PayloadError: a member cannot be encoded, or is too long.
        """
        head: dict[str, Any] = {"op": op}
        if number is not None:
            head["id"] = number
        return self.encode(head | members)

    def event_tail(self, topic: str, payload: Any) -> bytes:
        """Return the message of an event without its beginning, for all who get it.

        Raises:
            PayloadError: it cannot be encoded, or is too long.
        """
        return self.encode({"topic": topic, "payload": payload})[1:]


def memory_of(text: str) -> int:
    """Return how many bytes of memory, about, the message ``text`` takes once it is decoded.

    A short text can be a lot of values: "{}," is three bytes, and an object of 64.
    """
    return sys.getsizeof(text) + _VALUE_BYTES * (text.count(",") + text.count("[") + text.count("{"))


def parse_message(codec: MessageCodec, text: str) -> Message:
    """Return the message in ``text``.

    Raises:
        Refused: it is a request that cannot be done, and its sender can be told.
        Unusable: it is no message.
    """
    try:
        value = codec.decode(text)
    except PayloadRefused as error:
        number = _id_within(text)
        if number is None:
            raise Unusable(str(error)) from None
        raise Refused(number, str(error), "PayloadRefused") from None
    if type(value) is not dict:
        raise Unusable("a message is an object with the member 'op'")
    op = value.get("op")
    members = _MEMBERS.get(op) if type(op) is str else None
    if type(op) is not str or members is None:
        number = _as_id(value.get("id"))
        problem = f"op {short_repr(op)} is unknown; known: {', '.join(_MEMBERS)}"
        raise Unusable(problem) if number is None else Refused(number, problem)
    if op == "hello":
        return _hello(value)
    number = _as_id(value.get("id"))
    if number is None:
        text = f"the id of a message is an integer from 0 to {MAX_ID}, not {short_repr(value.get('id'))}"
        raise Unusable(f"{op}: {text}")
    try:
        for member in value.keys() - members - {"op"}:
            raise UsageError(f"{short_repr(member)} is unknown; known: {', '.join(sorted(members))}")
        return _known_message(op, number, value)
    except UsageError as error:
        raise Refused(number, f"{op}: {error}") from None


def _known_message(op: str, number: int, value: Mapping[str, Any]) -> Message:
    match op:
        case "ping":
            return Ping(number)
        case "cancel":
            return Cancel(number)
        case "credit":
            return Credit(number, _count(value, "count", 1))
        case "subscribe":
            return Request(number, op, _name(value, "pattern"))
        case "publish":
            return Request(
                number,
                op,
                _name(value, "topic"),
                context=_context(value),
                payload=value.get("payload"),
                confirm=_flag(value, "confirm"),
            )
    timeout, ttl = (_seconds(value, name) for name in ("timeout", "ttl"))
    return Request(
        number,
        op,
        _name(value, "topic"),
        _text(value, "exchange"),
        _name(value, "method"),
        _mapping(value, "args"),
        _context(value),
        timeout,
        ttl,
        credit=_count(value, "credit", 1),
        idempotent=_flag(value, "idempotent"),
        mandatory=_flag(value, "mandatory"),
        confirm=_flag(value, "confirm"),
        progress=_flag(value, "progress"),
    )


def _hello(value: Mapping[str, Any]) -> Hello:
    token, version, client = value.get("token"), value.get("version"), value.get("client", "")
    if type(token) is not str or type(version) is not int or type(client) is not str:
        raise Unusable("hello: expected the members token (text), version (integer), and client (text) if any")
    return Hello(token, version, client[:100])


def _as_id(value: Any) -> int | None:
    return value if type(value) is int and 0 <= value <= MAX_ID else None


def _id_within(text: str) -> int | None:
    """Return the id of a message that is JSON, but not typed JSON; None: it has none."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return _as_id(value.get("id")) if type(value) is dict else None


def _text(value: Mapping[str, Any], member: str) -> str:
    text = value.get(member, "")
    if type(text) is not str:
        raise UsageError(f"{member} is a text, not {short_repr(text)}")
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise UsageError(f"{member} has half of a surrogate pair: {short_repr(text)}") from None
    if size > _NAME_BYTES:
        raise UsageError(f"{member} has more than {_NAME_BYTES} bytes")
    return text


def _name(value: Mapping[str, Any], member: str) -> str:
    text = _text(value, member)
    if not text:
        raise UsageError(f"{member} is missing")
    return text


def _mapping(value: Mapping[str, Any], member: str) -> dict[str, Any]:
    found = value.get(member, {})
    if type(found) is not dict or not all(type(key) is str for key in found):
        raise UsageError(f"{member} is an object, not {short_repr(found)}")
    return found


def _context(value: Mapping[str, Any]) -> dict[str, Any] | None:
    return None if value.get("context") is None else _mapping(value, "context")


def _flag(value: Mapping[str, Any], member: str) -> bool:
    found = value.get(member, False)
    if type(found) is not bool:
        raise UsageError(f"{member} is true or false, not {short_repr(found)}")
    return found


def _count(value: Mapping[str, Any], member: str, default: int) -> int:
    found = value.get(member, default)
    if type(found) is not int or not 1 <= found <= _MOST_CREDIT:
        raise UsageError(f"{member} is an integer from 1 to {_MOST_CREDIT}, not {short_repr(found)}")
    return found


def _seconds(value: Mapping[str, Any], member: str) -> float | None:
    found = value.get(member)
    if found is None:
        return None
    if type(found) not in (int, float) or not 0 < found <= 1e9:
        raise UsageError(f"{member} is a number of seconds above 0, not {short_repr(found)}")
    return float(found)
