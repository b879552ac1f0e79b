"""Heads of HTTP messages as values: the words in which the parts of the proxy talk to one another."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field

__all__ = ["Headers", "RequestHead", "ResponseHead", "end_to_end", "list_members", "without_named"]

#: Fields of one connection, which are neither forwarded nor stored (RFC 9110 section 7.6.1, RFC 9111 section 3.1).
_HOP_BY_HOP = frozenset(
    (
        "connection",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authentication-info",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    )
)
_INDISPENSABLE = frozenset(
    ("cache-control", "close", "connection", "content-length", "date", "host", "keep-alive", "set-cookie",
     "transfer-encoding", "upgrade")
)  # fmt: skip


class Headers:
    """Fields of a head in the order and with the letters in which they came; they are looked up in any case.

    A field is a name and a value, both text decoded as ISO 8859-1, so that each byte survives. Values have no space
    around them. Two lists of fields are equal when they are so byte for byte.
    """

    __slots__ = ("_index", "fields")

    #: Names and values as they came.
    fields: tuple[tuple[str, str], ...]

    def __init__(self, fields: Iterable[tuple[str, str]] = ()) -> None:
        self.fields = tuple(fields)
        self._index: dict[str, list[str]] | None = None

    def get(self, name: str) -> str | None:
        """Return the value of the first field called ``name``, or None."""
        values = self._values().get(name.lower())
        return values[0] if values else None

    def every(self, name: str) -> list[str]:
        """Return the values of all fields called ``name``, in order."""
        return list(self._values().get(name.lower(), ()))

    def joined(self, name: str) -> str | None:
        """Return the values of all fields called ``name`` as one list (RFC 9110 section 5.3), or None."""
        values = self._values().get(name.lower())
        return ", ".join(values) if values else None

    def without(self, names: Collection[str]) -> Headers:
        """Return all fields but those whose names, in small letters, are in ``names``."""
        return Headers([field for field in self.fields if field[0].lower() not in names])

    def having(self, name: str, value: str) -> Headers:
        """Return these fields with ``value`` in place of all fields called ``name``, at the end."""
        return Headers((*self.without((name.lower(),)).fields, (name, value)))

    def has_any(self, names: frozenset[str]) -> bool:
        """Return whether there is a field whose name, in small letters, is in ``names``."""
        return not names.isdisjoint(self._values())

    def names(self) -> Iterable[str]:
        """Return the names in small letters, each once."""
        return self._values().keys()

    def _values(self) -> dict[str, list[str]]:
        index = self._index
        if index is None:
            index = {}
            for name, value in self.fields:
                index.setdefault(name.lower(), []).append(value)
            self._index = index
        return index

    def __contains__(self, name: str) -> bool:
        return name.lower() in self._values()

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return iter(self.fields)

    def __len__(self) -> int:
        return len(self.fields)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Headers) and self.fields == other.fields

    def __hash__(self) -> int:
        return hash(self.fields)

    def __repr__(self) -> str:
        return f"Headers({list(self.fields)!r})"


@dataclass(frozen=True, slots=True)
class RequestHead:
    """The head of a request.

    Attributes:
        method: as it was sent; methods are told apart by case.
        target: path and query as they were sent, beginning with ``/``; ``*`` for OPTIONS of a whole server.
        headers: its fields, those of the connection included.
        scheme: ``http`` or ``https``: that of the client's connection.
        authority: host, and port if one was given, from the Host field or the absolute form of the target.
        version: of HTTP.
    """

    method: str
    target: str
    headers: Headers = field(default_factory=Headers)
    scheme: str = "https"
    authority: str = ""
    version: tuple[int, int] = (1, 1)

    @property
    def url(self) -> str:
        """The target URI (RFC 9110 section 7.1), not normalised."""
        return f"{self.scheme}://{self.authority}{self.target}"


@dataclass(frozen=True, slots=True)
class ResponseHead:
    """The head of a final response.

    Attributes:
        status: 200 to 599.
        headers: its fields.
        reason: the phrase after the status, which may be empty.
        version: of HTTP.
    """

    status: int
    headers: Headers = field(default_factory=Headers)
    reason: str = ""
    version: tuple[int, int] = (1, 1)

    def with_headers(self, headers: Headers) -> ResponseHead:
        """Return it with other fields."""
        return ResponseHead(self.status, headers, self.reason, self.version)


def end_to_end(headers: Headers) -> Headers:
    """Return the fields that are meant for more than one connection: neither Connection nor one that it names."""
    kept = without_named(headers)
    return kept.without(_HOP_BY_HOP) if kept.has_any(_HOP_BY_HOP) else kept


def without_named(headers: Headers) -> Headers:
    """Return all fields but those that Connection names, which are about one connection as well."""
    value = headers.joined("connection")
    # A peer must not have fields dropped that a message cannot do without (RFC 9110 section 7.6.1).
    if value is None or value.lower() in _INDISPENSABLE:
        return headers
    named = {member.lower() for member in list_members(value)} - _INDISPENSABLE
    return headers.without(named) if named else headers


def list_members(value: str | None) -> list[str]:
    """Return the members of a comma-separated list (RFC 9110 section 5.6.1), without empty ones.

    A comma within a quoted string does not end a member; a quoted string that is not closed goes to the end.
    """
    if not value:
        return []
    if '"' not in value:
        return [member for each in value.split(",") if (member := each.strip())]
    return [member for each in _split_outside_quotes(value) if (member := each.strip())]


def _split_outside_quotes(value: str) -> Iterator[str]:
    start, is_quoted, is_escaped = 0, False, False
    for position, character in enumerate(value):
        if is_escaped:
            is_escaped = False
        elif is_quoted:
            is_escaped = character == "\\"
            is_quoted = character != '"'
        elif character == '"':
            is_quoted = True
        elif character == ",":
            yield value[start:position]
            start = position + 1
    yield value[start:]
