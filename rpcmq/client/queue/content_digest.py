"""A digest of what an item says: the same for the same content, in every process, in whatever order it was built."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from hashlib import blake2b
from types import FunctionType
from typing import Any

__all__ = ["content_digest"]

_BYTES = 16
#: Values that are their representation; bool is no int here, and 1 not 1.0.
_ATOMS = (type(None), bool, int, float, complex)
#: The first protocol of pickle that sees the state of any class.
_PROTOCOL = 2
#: The digest of a value in itself.
_INSIDE = b"itself"


def content_digest(method: bytes, args: Mapping[str, Any]) -> bytes:
    """Sixteen bytes that stand for a method and its arguments.

    Lists and tuples of the same items are the same, as in JSON; so are mappings and sets, whatever their order. Of an
    object its class and state count, as pickle sees them; of a function its name; of what has neither, its class alone.
    """
    return _hash(b"item", [method, _Digests().of(args)])


class _Digests:
    """The digests of the values that one item is made of, each made once."""

    def __init__(self) -> None:
        #: By the id of the value, which is kept so that no other one gets it.
        self._known: dict[int, tuple[Any, bytes]] = {}

    def of(self, value: Any) -> bytes:
        """The digest of ``value``."""
        if isinstance(value, str):
            return _hash(b"text", [value.encode("utf-8", "surrogatepass")])
        if type(value) in _ATOMS:
            return _hash(b"atom", [repr(value).encode()])
        if isinstance(value, (bytes, bytearray)):
            return _hash(b"bytes", [value])
        if (known := self._known.get(id(value))) is not None:
            return known[1]
        self._known[id(value)] = (value, _INSIDE)
        try:
            digest = self._of_parts(value)
        except RecursionError:
            digest = _hash(b"deep", [_name(type(value))])
        self._known[id(value)] = (value, digest)
        return digest

    def _of_parts(self, value: Any) -> bytes:
        if isinstance(value, (list, tuple)):
            return _hash(b"list", map(self.of, value))
        if isinstance(value, Mapping):
            return _hash(b"mapping", sorted(self.of(key) + self.of(each) for key, each in value.items()))
        if isinstance(value, (set, frozenset)):
            return _hash(b"set", sorted(map(self.of, value)))
        if isinstance(value, (type, FunctionType)):
            return _hash(b"name", [_name(value)])
        kind = _name(type(value))
        try:
            reduced = value.__reduce_ex__(_PROTOCOL)
        except Exception:
            # It is encoded by dill, or not at all, which the encoder says.
            return _hash(b"object", [kind])
        if isinstance(reduced, str):
            return _hash(b"global", [kind, reduced.encode()])
        _make, *state = reduced
        return _hash(
            b"object", [kind, *(self.of(list(each) if isinstance(each, Iterator) else each) for each in state)]
        )


def _name(of: type | FunctionType) -> bytes:
    return f"{of.__module__}.{of.__qualname__}".encode()


def _hash(kind: bytes, parts: Iterable[bytes | bytearray]) -> bytes:
    digest = blake2b(digest_size=_BYTES, person=kind)
    for part in parts:
        digest.update(len(part).to_bytes(8))
        digest.update(part)
    return digest.digest()
