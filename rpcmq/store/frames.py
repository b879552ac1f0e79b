"""Requests to a store in a process of its own, and its answers, as bytes on a stream.

A frame is its length (4 bytes), the ticket that the answer repeats (8), a letter, and values: integers of 8 bytes, and
texts and blobs behind their lengths. Both ends are of the same version, so that the format has none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from struct import Struct
from typing import Any

from rpcmq.store.contract import (
    Bury,
    Change,
    Damaged,
    Done,
    Expire,
    Forget,
    Found,
    Incoming,
    Keep,
    Lane,
    Maker,
    Move,
    Note,
    Position,
    Postpone,
    Put,
    Recovered,
    Refuse,
    Release,
    Revive,
    Stored,
    Verdict,
)

__all__ = [
    "Frames",
    "decode_changes",
    "decode_found",
    "decode_items",
    "decode_recovered",
    "decode_values",
    "decode_verdicts",
    "encode_changes",
    "encode_found",
    "encode_items",
    "encode_recovered",
    "encode_values",
    "encode_verdicts",
    "frame",
]

_HEAD = Struct(">IQc")
_INT, _LENGTH, _VERDICT = Struct(">q"), Struct(">I"), Struct(">qB")
_INT_AND_LENGTH = Struct(">qI")
_TWO, _THREE, _TWO_AND_LENGTH = Struct(">qq"), Struct(">qqq"), Struct(">qqI")
#: The end of a put without id, digest, and unique key.
_NAMELESS = Struct(">qqIqqIqI")
_MOST_BYTES = 1 << 30

#: Letter -> class, and its fields: i integer, b blob, s text, L lane, M maker, P position.
_LAYOUTS: dict[int, tuple[Callable[..., Any], str]] = {
    ord("p"): (Put, "LbiibMbib"),
    ord("d"): (Done, "Lii"),
    ord("l"): (Postpone, "Liib"),
    ord("b"): (Bury, "Liib"),
    ord("r"): (Revive, "Liib"),
    ord("f"): (Forget, "Li"),
    ord("e"): (Release, "Lib"),
    ord("k"): (Keep, "Liib"),
    ord("o"): (Expire, "si"),
    ord("m"): (Move, "LiLib"),
    ord("u"): (Refuse, "Liibb"),
    ord("n"): (Note, "sb"),
    ord("s"): (Stored, "PLiibMbb"),
    ord("x"): (Damaged, "PLi"),
    ord("i"): (Incoming, "iLiiibMbbbbi"),
}
_LETTERS = {each: bytes([letter]) for letter, (each, _) in _LAYOUTS.items()}
_FIELDS = dict(_LAYOUTS.values())


def frame(ticket: int, letter: bytes, content: bytes = b"") -> bytes:
    """One frame."""
    return _HEAD.pack(_HEAD.size + len(content), ticket, letter) + content


class Frames:
    """Takes bytes apart as they come."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def add(self, data: bytes) -> Iterator[tuple[int, bytes, memoryview]]:
        """Ticket, letter and content of each frame that is whole with ``data``.

        Raises:
            ValueError: this is no frame: the other end is none of ours.
        """
        self._buffer += data
        if len(self._buffer) >= _HEAD.size:
            (length,) = _LENGTH.unpack_from(self._buffer)
            if len(self._buffer) < length <= _MOST_BYTES:
                return  # a large one comes in many pieces
        at = 0
        with memoryview(bytes(self._buffer)) as view:
            while len(view) - at >= _HEAD.size:
                length, ticket, letter = _HEAD.unpack_from(view, at)
                if not _HEAD.size <= length <= _MOST_BYTES:
                    raise ValueError(f"a frame of {length} bytes")
                if len(view) - at < length:
                    break
                yield ticket, letter, view[at + _HEAD.size : at + length]
                at += length
        del self._buffer[:at]


# --- values ----------------------------------------------------------------------------------------


def _write(fields: str, values: Sequence[Any], parts: list[bytes]) -> None:
    for field, value in zip(fields, values, strict=True):
        if field == "i":
            parts.append(_INT.pack(value))
        elif field in "bs":
            blob = value if field == "b" else value.encode()
            parts += (_LENGTH.pack(len(blob)), blob)
        elif field == "L":
            _write("si", value, parts)
        else:
            _write("ii" if field == "M" else "iii", value, parts)


class _Reader:
    def __init__(self, content: bytes | memoryview) -> None:
        self._content = content
        self.at = 0

    def read(self, fields: str) -> list[Any]:
        return [self._value(field) for field in fields]

    def _value(self, field: str) -> Any:
        match field:
            case "i":
                self.at += 8
                return _INT.unpack_from(self._content, self.at - 8)[0]
            case "b" | "s":
                (length,) = _LENGTH.unpack_from(self._content, self.at)
                self.at += 4 + length
                blob = bytes(self._content[self.at - length : self.at])
                return blob if field == "b" else blob.decode()
            case "L":
                return Lane(*self.read("si"))
            case "M":
                return Maker(*self.read("ii"))
            case _:
                return Position(*self.read("iii"))


def encode_values(fields: str, *values: Any) -> bytes:
    """Values of the given kinds: i integer, b blob, s text, L lane, M maker, P position."""
    parts: list[bytes] = []
    _write(fields, values, parts)
    return b"".join(parts)


def decode_values(fields: str, content: bytes | memoryview) -> list[Any]:
    """The inverse of :func:`encode_values`."""
    return _Reader(content).read(fields)


# --- tuples: generally, and written out for those that each item has -------------------------------


@lru_cache
def _lane_bytes(lane: Lane) -> bytes:
    return encode_values("L", lane)


@lru_cache
def _lane(raw: bytes) -> Lane:
    return Lane(*_Reader(raw).read("si"))


def _encode_tuples(tuples: Sequence[Any]) -> bytes:
    parts: list[bytes] = []
    for each in tuples:
        kind = type(each)
        if kind is Put:
            lane, body, at, due, id, (producer, counter), digest, incoming, unique = each
            parts += (b"p", _lane_bytes(lane), _LENGTH.pack(len(body)), body)
            if not (id or digest or unique):
                # As most are: the same in one step.
                parts.append(_NAMELESS.pack(at, due, 0, producer, counter, 0, incoming, 0))
                continue
            parts += (
                _TWO_AND_LENGTH.pack(at, due, len(id)), id,
                _TWO_AND_LENGTH.pack(producer, counter, len(digest)), digest,
                _INT_AND_LENGTH.pack(incoming, len(unique)), unique,
            )  # fmt: skip
        elif kind is Done:
            parts += (b"d", _lane_bytes(each.lane), _TWO.pack(each.number, each.size))
        elif kind is Stored:
            position, lane, number, at, id, (producer, counter), body, state = each
            parts += (
                b"s", _THREE.pack(*position), _lane_bytes(lane), _TWO_AND_LENGTH.pack(number, at, len(id)), id,
                _TWO_AND_LENGTH.pack(producer, counter, len(body)), body, _LENGTH.pack(len(state)), state,
            )  # fmt: skip
        else:
            parts.append(_LETTERS[kind])
            _write(_FIELDS[kind], each, parts)
    return b"".join(parts)


def _decode_tuples(content: bytes) -> list[Any]:
    reader, found = _Reader(content), []
    at, end = 0, len(content)
    while at < end:
        letter = content[at]
        decode = _WRITTEN_OUT.get(letter)
        if decode is None:
            reader.at = at + 1
            make, fields = _LAYOUTS[letter]
            found.append(make(*reader.read(fields)))
            at = reader.at
        else:
            item, at = decode(content, at + 1)
            found.append(item)
    return found


def _lane_end(content: bytes, at: int) -> int:
    return at + _LENGTH.size + _INT.size + int(_LENGTH.unpack_from(content, at)[0])


def _decode_put(content: bytes, at: int) -> tuple[Put, int]:
    at_body = _lane_end(content, at)
    lane = _lane(content[at:at_body])
    at_body += 4
    end = at_body + _LENGTH.unpack_from(content, at_body - 4)[0]
    body = content[at_body:end]
    put_at, due, length, producer, counter, digest_length, incoming, unique_length = _NAMELESS.unpack_from(content, end)
    if not (length or digest_length or unique_length):
        end += _NAMELESS.size
        return Put(lane, body, put_at, due, b"", Maker(producer, counter), b"", incoming, b""), end
    at = end + 20
    end = at + length
    id = content[at:end]
    producer, counter, length = _TWO_AND_LENGTH.unpack_from(content, end)
    at = end + 20
    end = at + length
    digest = content[at:end]
    incoming, length = _INT_AND_LENGTH.unpack_from(content, end)
    at = end + _INT_AND_LENGTH.size
    end = at + length
    return Put(lane, body, put_at, due, id, Maker(producer, counter), digest, incoming, content[at:end]), end


def _decode_done(content: bytes, at: int) -> tuple[Done, int]:
    end = _lane_end(content, at)
    return Done(_lane(content[at:end]), *_TWO.unpack_from(content, end)), end + _TWO.size


def _decode_stored(content: bytes, at: int) -> tuple[Stored, int]:
    position = Position(*_THREE.unpack_from(content, at))
    at += 24
    end = _lane_end(content, at)
    lane = _lane(content[at:end])
    number, put_at, length = _TWO_AND_LENGTH.unpack_from(content, end)
    at = end + 20
    end = at + length
    id = content[at:end]
    producer, counter, length = _TWO_AND_LENGTH.unpack_from(content, end)
    at = end + 20
    end = at + length
    body = content[at:end]
    at = end + 4
    end = at + _LENGTH.unpack_from(content, end)[0]
    return Stored(position, lane, number, put_at, id, Maker(producer, counter), body, content[at:end]), end


_WRITTEN_OUT: dict[int, Callable[[bytes, int], tuple[Any, int]]] = {
    ord("p"): _decode_put,
    ord("d"): _decode_done,
    ord("s"): _decode_stored,
}


def encode_changes(changes: Sequence[Change]) -> bytes:
    """Changes as bytes."""
    return _encode_tuples(changes)


def decode_changes(content: bytes) -> list[Change]:
    """The inverse of :func:`encode_changes`."""
    return _decode_tuples(content)


def encode_items(items: Sequence[Stored | Damaged] | Sequence[Incoming]) -> bytes:
    """Items as bytes."""
    return _encode_tuples(items)


def decode_items(content: bytes) -> list[Any]:
    """The inverse of :func:`encode_items`."""
    return _decode_tuples(content)


def encode_found(found: Found | None) -> bytes:
    """An item that was looked for, or not found, as bytes."""
    return b"" if found is None else encode_values("s", found.state) + encode_items([found.item])


def decode_found(content: bytes) -> Found | None:
    """The inverse of :func:`encode_found`."""
    if not content:
        return None
    reader = _Reader(content)
    (state,) = reader.read("s")
    (item,) = _decode_tuples(content[reader.at :])
    return Found(state, item)


def encode_verdicts(verdicts: Sequence[Verdict]) -> bytes:
    """Verdicts as bytes."""
    return b"".join(_VERDICT.pack(each.number, each.is_known | each.is_other << 1) for each in verdicts)


def decode_verdicts(content: bytes | memoryview) -> list[Verdict]:
    """The inverse of :func:`encode_verdicts`."""
    return [Verdict(number, bool(bits & 1), bool(bits & 2)) for number, bits in _VERDICT.iter_unpack(content)]


def encode_recovered(recovered: Recovered) -> bytes:
    """The content of a store at its opening as bytes."""
    numbers = recovered.epoch, recovered.has_incoming, recovered.clock, len(recovered.ready)
    parts = [_INT.pack(number) for number in numbers]
    for lane, ready in recovered.ready.items():
        _write("Lii", (lane, ready, recovered.postponed[lane]), parts)
    parts.append(_INT.pack(len(recovered.dead)))
    for queue, number in recovered.dead.items():
        _write("si", (queue, number), parts)
    parts.append(_INT.pack(len(recovered.sizes)))
    for queue, size in recovered.sizes.items():
        _write("si", (queue, size), parts)
    parts.append(_INT.pack(len(recovered.results)))
    for queue, size in recovered.results.items():
        _write("si", (queue, size), parts)
    for name, value in recovered.notes.items():
        _write("sb", (name, value), parts)
    return b"".join(parts)


def decode_recovered(content: bytes | memoryview) -> Recovered:
    """The inverse of :func:`encode_recovered`."""
    reader = _Reader(content)
    epoch, has_incoming, clock, lanes = reader.read("iiii")
    counts = [reader.read("Lii") for _ in range(lanes)]
    dead = dict(reader.read("si") for _ in range(reader.read("i")[0]))
    size = dict(reader.read("si") for _ in range(reader.read("i")[0]))
    results = dict(reader.read("si") for _ in range(reader.read("i")[0]))
    notes: dict[str, bytes] = {}
    while reader.at < len(content):
        name, value = reader.read("sb")
        notes[name] = value
    ready = {lane: ready for lane, ready, _ in counts}
    return Recovered(
        epoch,
        ready,
        {lane: late for lane, _, late in counts},
        dead,
        size,
        results,
        notes,
        bool(has_incoming),
        clock,
    )
