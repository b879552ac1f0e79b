"""Retained casts: those the router has, and no consumer yet, as far as the sender knows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from operator import itemgetter
from struct import Struct

from rpcmq.errors import ProtocolError
from rpcmq.wire import KIND_AT, LOW_FLAGS_AT, SEQUENCE, SEQUENCE_OF_KEY, Flag, Kind, size_of

__all__ = ["RetainedCasts", "by_sequence"]

_CAST, _FANOUT = int(Kind.CAST), Flag.FANOUT
_SEQUENCE_BYTES = 8
_sequences_in = Struct("8s").iter_unpack
#: Finding the oldest gets slower with each removal: discard one in so many at once.
_DISCARD_SHARE = 100
#: Sort key: a message's sequence, which orders the messages of one process.
by_sequence = itemgetter(SEQUENCE)


class RetainedCasts:
    """Retained casts, in order and bounded: beyond the bound the oldest are discarded.

    Args:
        messages: most casts retained.
        size_bytes: most bytes of them.
    """

    def __init__(self, messages: int, size_bytes: int) -> None:
        self.max_messages = messages
        self.max_bytes = size_bytes
        self._parts: dict[bytes, bytes] = {}
        #: Bytes of all retained casts.
        self.size_bytes = 0
        #: Number of casts discarded although no consumer may have received them, and the last of them.
        self.discarded = 0
        self._discarded_until = b""

    def __len__(self) -> int:
        return len(self._parts)

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._parts.values())

    def get(self, key: bytes) -> bytes | None:
        """Return the retained cast with ``key``, or None."""
        return self._parts.get(key[SEQUENCE_OF_KEY])

    def has_ended(self, message: bytes) -> bool:
        """Return whether the router has acknowledged delivery of ``message``, which went through :meth:`retain`.

        Also False if that is unknown, because the cast may have been discarded.
        """
        if message[KIND_AT] != _CAST or message[LOW_FLAGS_AT] & _FANOUT:
            return False
        return message[SEQUENCE] not in self._parts and message[SEQUENCE] > self._discarded_until

    def retain(self, message: bytes) -> None:
        """Retain ``message``, which is being sent, if it is a cast to one consumer (a fanout is not sent again)."""
        if message[KIND_AT] != _CAST or message[LOW_FLAGS_AT] & _FANOUT:
            return
        messages = self._parts
        sequence = message[SEQUENCE]
        if sequence in messages:
            self.forget(sequence)
        messages[sequence] = message
        self.size_bytes += len(message) if type(message) is bytes else size_of(message)
        while len(messages) > self.max_messages or self.size_bytes > self.max_bytes:
            self._discard_oldest(1 + len(messages) // _DISCARD_SHARE)

    def _discard_oldest(self, count: int) -> None:
        oldest = list(islice(self._parts, count))
        self.forget(b"".join(oldest))
        self.discarded += len(oldest)
        self._discarded_until = max(self._discarded_until, *oldest)

    def forget(self, sequences: bytes | memoryview) -> None:
        """Discard the casts with these sequences, 8 bytes each.

        Raises:
            ProtocolError: the length is not a multiple of that.
        """
        if len(sequences) % _SEQUENCE_BYTES:
            raise ProtocolError(f"{len(sequences)} bytes of sequences are no multiple of {_SEQUENCE_BYTES}", "length")
        pop = self._parts.pop
        for (sequence,) in _sequences_in(sequences):
            message = pop(sequence, None)
            if message is not None:
                self.size_bytes -= len(message) if type(message) is bytes else size_of(message)

    def recount(self) -> None:
        """Count the bytes of all retained casts anew."""
        self.size_bytes = sum(map(size_of, self))

    def replace_all(self, messages: Iterable[bytes]) -> None:
        """Retain only ``messages`` from now on, in the order of their sequences."""
        self._parts.clear()
        self.size_bytes = 0
        for message in sorted(messages, key=by_sequence):
            self.retain(message)
