"""The casts that a sender keeps although its router has them: those that no consumer has yet, as far as it knows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from operator import itemgetter
from struct import Struct

from rpcmq.errors import ProtocolError
from rpcmq.wire import KIND_AT, LOW_FLAGS_AT, SEQUENCE, Flag, Kind, size_of

__all__ = ["Keeping", "by_sequence"]

_CAST, _FANOUT = int(Kind.CAST), Flag.FANOUT
_SEQUENCE_BYTES = 8
_sequences_in = Struct("8s").iter_unpack
#: Finding the oldest costs the more the more have gone before it: so many are let go at once, one in so many.
_LET_GO = 100
#: What puts messages of one process into their order.
by_sequence = itemgetter(SEQUENCE)


class Keeping:
    """Kept casts in their order, bounded: where there are more the oldest are let go.

    Args:
        messages: how many may be kept.
        size_bytes: how many bytes of them.
    """

    def __init__(self, messages: int, size_bytes: int) -> None:
        self._messages = messages
        self._size_bytes = size_bytes
        self._parts: dict[bytes, bytes] = {}
        #: Of all that is kept.
        self.size_bytes = 0
        #: How many were let go although no consumer may have had them, and the last of them.
        self.let_go = 0
        self._let_go_until = b""

    def __len__(self) -> int:
        return len(self._parts)

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._parts.values())

    def get(self, key: bytes) -> bytes | None:
        """The kept cast with ``key``."""
        return self._parts.get(key[12:])

    def has_ended(self, part: bytes) -> bool:
        """Whether ``part``, which went through :meth:`keep`, is one that the router has said need not be kept.

        False also where that is not known any more, because it may have been let go.
        """
        if part[KIND_AT] != _CAST or part[LOW_FLAGS_AT] & _FANOUT:
            return False
        return part[SEQUENCE] not in self._parts and part[SEQUENCE] > self._let_go_until

    def keep(self, part: bytes) -> None:
        """``part`` is on its way. Only casts to one consumer are kept: a fanout is for those of its moment."""
        if part[KIND_AT] != _CAST or part[LOW_FLAGS_AT] & _FANOUT:
            return
        parts = self._parts
        sequence = part[SEQUENCE]
        if sequence in parts:
            self.forget(sequence)
        parts[sequence] = part
        self.size_bytes += len(part) if type(part) is bytes else size_of(part)
        while len(parts) > self._messages or self.size_bytes > self._size_bytes:
            self._let_go(1 + len(parts) // _LET_GO)

    def _let_go(self, count: int) -> None:
        oldest = list(islice(self._parts, count))
        self.forget(b"".join(oldest))
        self.let_go += len(oldest)
        self._let_go_until = max(self._let_go_until, *oldest)

    def forget(self, sequences: bytes | memoryview) -> None:
        """Keep those no longer whose sequences these are, each of 8 bytes.

        Raises:
            ProtocolError: the length is not a multiple of that.
        """
        if len(sequences) % _SEQUENCE_BYTES:
            raise ProtocolError(f"{len(sequences)} bytes of sequences are no multiple of {_SEQUENCE_BYTES}", "length")
        pop = self._parts.pop
        for (sequence,) in _sequences_in(sequences):
            part = pop(sequence, None)
            if part is not None:
                self.size_bytes -= len(part) if type(part) is bytes else size_of(part)

    def restart(self, parts: Iterable[bytes]) -> None:
        """From now on only ``parts`` are kept, in the order of their sequences."""
        self._parts.clear()
        self.size_bytes = 0
        for part in sorted(parts, key=by_sequence):
            self.keep(part)
