"""A table from bytes to bytes that takes some 14 bytes for a row beside its own, where a dict takes 120.

Rows lie back to back in *buckets*, a few in each, which are found by the hash of the key. The table grows by one bucket
at a time (linear hashing), so no row waits until all others have moved.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct

__all__ = ["ROW_OVERHEAD", "PackedRows"]

#: Bytes of value and key, which come before both.
_SIZES = Struct(">IH")
_sizes = _SIZES.unpack_from
#: Rows of a bucket, on average.
_TOGETHER = 8
#: Memory of a row beside its key and value: the two sizes, and its share of the object and of the list of buckets.
ROW_OVERHEAD = _SIZES.size + 10


class PackedRows:
    """Values by their keys; none is empty. A key has at most 65,535 bytes."""

    __slots__ = ("_buckets", "_count", "_found", "_found_key", "_half")

    def __init__(self) -> None:
        self._buckets = [b""]
        self._count = 0
        #: The largest power of two that is no larger than the number of buckets.
        self._half = 1
        #: The key that was looked for last, unless something was put since, and what was found.
        self._found_key: bytes | None = None
        self._found = (0, 0, 0)

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[bytes]:
        """The keys, in any order. A row that is put meanwhile may be missed, or come twice."""
        at = 0
        while (keys := self.keys_of(at)) is not None:
            yield from keys
            at += 1

    def keys_of(self, bucket: int) -> list[bytes] | None:
        """The keys in the bucket with that number; None if there are not so many.

        Whoever takes them by ascending numbers finds all that stay, whatever is put meanwhile: rows move upwards only.
        """
        if bucket >= len(self._buckets):
            return None
        return [key for key, _ in _rows(self._buckets[bucket])]

    def get(self, key: bytes) -> bytes:
        """The value of ``key``; empty if it has none."""
        index, start, end = self._find(key)
        return self._buckets[index][start + _SIZES.size + len(key) : end]

    def put(self, key: bytes, value: bytes) -> None:
        """Give ``key`` a value; none if that is empty."""
        # Mostly it was got just before.
        index, start, end = self._found if key is self._found_key else self._find(key)
        self._found_key = None
        bucket = self._buckets[index]
        row = _SIZES.pack(len(value), len(key)) + key + value if value else b""
        self._buckets[index] = bucket[:start] + row + bucket[end:]
        self._count += bool(row) - (end > start)
        if self._count > _TOGETHER * len(self._buckets):
            self._split()

    def _find(self, key: bytes) -> tuple[int, int, int]:
        """The bucket of ``key``, and where its row begins and ends there; both are the end if there is none."""
        index = self._index(key)
        bucket = self._buckets[index]
        start = at = len(bucket)
        if key in bucket:
            size, key_bytes, at = at, len(key), 0
            while at < size:
                start = at
                value_bytes, other_bytes = _sizes(bucket, at)
                at += _SIZES.size + other_bytes + value_bytes
                if other_bytes == key_bytes and bucket.startswith(key, start + _SIZES.size):
                    break
            else:
                start = at
        self._found_key, self._found = key, (index, start, at)
        return self._found

    def _index(self, key: bytes) -> int:
        index = hash(key) & 2 * self._half - 1
        return index if index < len(self._buckets) else index - self._half

    def _split(self) -> None:
        """Make one more bucket, of the rows of another one that belong there."""
        buckets = self._buckets
        old = len(buckets) - self._half
        rows, bit = _rows(buckets[old]), self._half
        buckets[old] = b"".join([row for key, row in rows if not hash(key) & bit])
        buckets.append(b"".join([row for key, row in rows if hash(key) & bit]))
        if len(buckets) == 2 * self._half:
            self._half *= 2


def _rows(bucket: bytes) -> list[tuple[bytes, bytes]]:
    """The key of each row in ``bucket``, and the row."""
    rows = []
    at, size = 0, len(bucket)
    while at < size:
        start = at
        value_bytes, key_bytes = _sizes(bucket, at)
        middle = at + _SIZES.size + key_bytes
        at = middle + value_bytes
        rows.append((bucket[middle - key_bytes : middle], bucket[start:at]))
    return rows
