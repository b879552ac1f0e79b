"""The members of JSON bodies: each is declared once, with its name, type and default, as a field of a dataclass.

    @dataclass(frozen=True, kw_only=True)
    class WindowBody(Body):
        KIND = Kind.SUBSCRIBE
        window: int = integer(1000, least=1, most=65_535)

A body is written strictly and read as its declaration says. Unknown members are ignored. ``true`` and ``false`` are not
numbers. Booleans, and texts that are only shown, are read leniently: a non-boolean counts as absent, a non-text as its
text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from math import inf
from typing import Any, ClassVar, Self

from rpcmq.errors import ProtocolError
from rpcmq.wire.json_body import body_of, control, json_bytes
from rpcmq.wire.kinds import Kind

__all__ = ["Body", "Reader", "flag", "hexadecimal", "integer", "mapping", "member", "number", "shown", "string", "text"]

#: Characters of a refused value in an error.
_MAX_EXCERPT = 40

#: Gets a member's name and value; returns the field's value. May raise ProtocolError.
Reader = Callable[[str, Any], Any]


@dataclass(frozen=True)
class Body:
    """The JSON body of one kind of message. Members that are None are not written, nor empty ones of ``OPTIONAL``."""

    KIND: ClassVar[Kind]
    OPTIONAL: ClassVar[frozenset[str]] = frozenset()

    @classmethod
    def parse(cls, body: Mapping[str, Any]) -> Self:
        """Read a body.

        Raises:
            ProtocolError: a member that is needed is missing, or one is malformed; names the member.
        """
        values: dict[str, Any] = {}
        for name, reader, is_required in _members(cls):
            if name in body:
                values[name] = reader(name, body[name])
            elif is_required:
                values[name] = reader(name, None)
        return cls(**values)

    @classmethod
    def of(cls, message: bytes) -> Self:
        """Read the body of a message.

        Raises:
            ProtocolError: it is no JSON object, or as for :meth:`parse`.
        """
        return cls.parse(body_of(message))

    def encode(self) -> dict[str, Any]:
        """Return the JSON object."""
        optional = self.OPTIONAL
        return {
            name: value
            for name, _, _ in _members(type(self))
            if (value := getattr(self, name)) is not None and (value or name not in optional)
        }

    def payload(self) -> bytes:
        """Return the JSON object as the payload of a message."""
        return json_bytes(self.encode())

    def message(self, **header: Any) -> bytes:
        """Return a message with this body; ``header`` as for :func:`rpcmq.wire.pack`."""
        return control(self.KIND, self.encode(), **header)


#: Name, reader, and whether it is required, of each member; by class.
_MEMBERS: dict[type, tuple[tuple[str, Reader, bool], ...]] = {}


def member(read: Reader, default: Any = MISSING) -> Any:
    """A field that ``read`` reads; required without ``default``."""
    return field(default=default, metadata={"read": read})


def integer(default: Any = MISSING, *, least: int | None = None, most: int | None = None, reason: str = "body") -> Any:
    """A field for an integer; with ``default`` None also for null.

    Args:
        default: if it is absent; required without.
        least: lower bound.
        most: upper bound.
        reason: of the ProtocolError.
    """
    wanted = "an integer" if least is None or most is None else f"an integer from {least} to {most}"

    def read(name: str, value: Any) -> Any:
        if value is None and default is None:
            return None
        if type(value) is int and (least is None or value >= least) and (most is None or value <= most):
            return value
        raise ProtocolError(f"{name} {_excerpt(value)} must be {wanted}", reason)

    return member(read, default)


def number(default: Any = MISSING, *, least: float = 0.0) -> Any:
    """A field for a finite number of at least ``least``, which is read as a float."""

    def read(name: str, value: Any) -> float:
        try:
            if type(value) in (int, float) and least <= value < inf:
                return float(value)
        except OverflowError:
            pass  # an integer that no float can hold: refused below
        raise ProtocolError(f"{name} {_excerpt(value)} must be a number of at least {least:g}", "body")

    return member(read, default)


def text(default: Any = MISSING, *, most: int | None = None) -> Any:
    """A field for a printable string of at most ``most`` characters."""
    wanted = "a printable string" if most is None else f"a printable string of at most {most} characters"

    def read(name: str, value: Any) -> str:
        if isinstance(value, str) and (most is None or len(value) <= most) and value.isprintable():
            return value
        raise ProtocolError(f"{name} {_excerpt(value)} must be {wanted}", "body")

    return member(read, default)


def string(default: Any = MISSING, *, least: int = 0, most: int | None = None, reason: str = "body") -> Any:
    """A field for a string of ``least`` to ``most`` characters, whichever they are; not for display as it is."""
    wanted = "a non-empty string" if least else "a string"
    if most is not None:
        wanted += f" of at most {most} characters"

    def read(name: str, value: Any) -> str:
        if isinstance(value, str) and len(value) >= least and (most is None or len(value) <= most):
            return value
        raise ProtocolError(f"{name} {_excerpt(value)} must be {wanted}", reason)

    return member(read, default)


def hexadecimal(default: Any = MISSING, *, reason: str = "body") -> Any:
    """A field for bytes, which are hexadecimal text in JSON; the body's ``encode`` writes them."""

    def read(name: str, value: Any) -> bytes:
        try:
            return bytes.fromhex(value)
        except (TypeError, ValueError):
            raise ProtocolError(f"{name} {_excerpt(value)} must be hexadecimal text", reason) from None

    return member(read, default)


def mapping(default: Callable[[], Mapping[str, Any]] = dict) -> Any:
    """A field for a JSON object whose members this version does not fix."""

    def read(name: str, value: Any) -> Mapping[str, Any]:
        if isinstance(value, dict):
            return value
        raise ProtocolError(f"{name} {_excerpt(value)} must be an object", "body")

    return field(default_factory=default, metadata={"read": read})


def shown(most: int = 255, default: Any = "") -> Any:
    """A field for something that people read: whatever it is, its text, cut to ``most`` characters."""
    return member(lambda name, value: str(value)[:most], default)


def flag(default: bool = False) -> Any:
    """A field for a boolean; anything but ``true`` is false."""
    return member(lambda name, value: value is True, default)


def _members(body: type[Body]) -> tuple[tuple[str, Reader, bool], ...]:
    members = _MEMBERS.get(body)
    if members is None:
        members = tuple(
            (each.name, each.metadata["read"], each.default is MISSING and each.default_factory is MISSING)
            for each in fields(body)
        )
        _MEMBERS[body] = members
    return members


def _excerpt(value: object) -> str:
    """Return ``value`` for an error: cut before it is formatted, as a peer chooses how long it is."""
    if isinstance(value, list | dict):
        return f"(a JSON {'array' if isinstance(value, list) else 'object'} of {len(value)} members)"
    if type(value) is int and value.bit_length() > 128:
        return "(an integer of more than 128 bits)"
    return f"{value[:_MAX_EXCERPT]!r}..." if isinstance(value, str) and len(value) > _MAX_EXCERPT else repr(value)
