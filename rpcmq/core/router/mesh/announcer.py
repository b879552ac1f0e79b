"""Tells each neighbour this router's own addresses: all of them to a new one, a chunk at a time, and then what changes.

States are absolute: a change that goes out while all rows are still being told needs no order among them. Messages are
numbered, and say how many rows there are and their digest, so that a neighbour that has missed or mistaken one notices
with the next, and asks for all rows anew.
"""

from __future__ import annotations

from math import inf

from rpcmq.core.router.mesh.own_addresses import OwnAddresses
from rpcmq.core.router.model import Link
from rpcmq.errors import ProtocolError
from rpcmq.wire.interest import InterestBody, Row

__all__ = ["GATHER_SECONDS", "Announcer"]

#: For so long changes are gathered. The first of a quiet time waits for it, too.
GATHER_SECONDS = 0.005
#: Places looked at in one tick, and bytes of the rows of a message: a millisecond or so for each.
_PLACES_IN_ONE_TICK = 400
_MESSAGE_BYTES = 16_000
#: Chunks of all rows that are sent in one tick, to whomever, and the pause between.
_CHUNKS_IN_ONE_TICK, _PAUSE = 2, 0.002
#: A neighbour that has not taken so many messages, or bytes, gets no further chunk; and after this time (seconds) it is
#: looked at again.
_BACKLOG_MESSAGES, _BACKLOG_BYTES, _RETRY = 200, 1 << 20, 0.05
#: One that has not taken so many messages gets no changes either, but all rows anew.
_MOST_BACKLOG_MESSAGES = 5_000
#: One that has asked for all rows anew is told them when it asks again after this time (seconds), which doubles up to
#: the most: as long as it waits, too, before it asks.
_TELL_AGAIN, _TELL_AGAIN_AT_MOST = 0.5, 30.0
#: All neighbours are told the digest at least so often (seconds).
_DIGEST_SECONDS = 30.0


class Announcer:
    """Sends INTEREST to neighbours.

    Attributes:
        version: the number of the changes that were told.
        due: the time of the next :meth:`tick` (monotonic seconds).
    """

    def __init__(self, own: OwnAddresses) -> None:
        self._own = own
        self._readers: dict[Link, _Reader] = {}
        self.version = 1
        self.due = inf
        self._digest_at = inf

    # --- neighbours --------------------------------------------------------------------------

    def add(self, now: float, link: Link) -> None:
        """Tell the neighbour at ``link`` everything."""
        self._readers[link] = _Reader(link)
        self.due = now
        self._digest_at = min(self._digest_at, now + _DIGEST_SECONDS)

    def remove(self, link: Link) -> None:
        """The neighbour at ``link`` has gone."""
        self._readers.pop(link, None)

    def acknowledged(self, link: Link) -> int:
        """The version that the neighbour at ``link`` has taken; 0: none yet."""
        reader = self._readers.get(link)
        return reader.acknowledged if reader is not None else 0

    def take_acknowledgement(self, now: float, link: Link, version: int) -> None:
        """The neighbour at ``link`` has taken all up to ``version``, or, if that is 0, wants to be told all rows anew.

        Raises:
            ProtocolError: it was not told that, or goes back.
        """
        reader = self._readers.get(link)
        if reader is None:
            return  # it is taken for gone
        if not version:
            reader.is_asking = True
            self.due = min(self.due, max(now, reader.tell_at))
        elif reader.acknowledged <= version <= self.version:
            reader.acknowledged = version
        else:
            text = f"acknowledged interest of version {version}; expected {reader.acknowledged} to {self.version}"
            raise ProtocolError(text, "ack")

    # --- sending -----------------------------------------------------------------------------

    def wake(self, now: float) -> None:
        """There are changes: they will be told in a few milliseconds."""
        if self.due > now + GATHER_SECONDS:
            self.due = now + GATHER_SECONDS

    def tick(self, now: float) -> None:
        """Send what has changed, and some of what new neighbours are to know."""
        self.due = inf
        self._send_changes(now)
        self._send_chunks(now)
        if now >= self._digest_at:
            self._digest_at = now + _DIGEST_SECONDS if self._readers else inf
            self._send_to_all(self._message([]))

    def next_deadline(self) -> float:
        """The time of the next :meth:`tick` (monotonic seconds)."""
        return min(self.due, self._digest_at)

    def _send_changes(self, now: float) -> None:
        own = self._own
        rows = own.take(_PLACES_IN_ONE_TICK)
        if own.has_changed:
            self.due = now + _PAUSE
        while rows:
            chunk, rows = _split(rows)
            self.version += 1
            # The digest is that of the rows after the last of these.
            self._send_to_all(self._message(chunk, step=1, is_checked=not rows))

    def _message(
        self, rows: list[Row], step: int = 0, begins: bool = False, ends: bool = False, is_checked: bool = True
    ) -> bytes:
        own, version = self._own, self.version
        return InterestBody(
            begins, ends, is_checked, version - step, version, len(own.rows), own.digest, rows
        ).message()

    def _send_to_all(self, message: bytes) -> None:
        for reader in self._readers.values():
            if len(reader.link.outbox) > _MOST_BACKLOG_MESSAGES:
                # It would be told state after state that is outdated when it takes them.
                reader.has_begun, reader.wants_all, reader.keys = False, True, None
            elif reader.has_begun:
                reader.link.send(message)

    def _send_chunks(self, now: float) -> None:
        left = _CHUNKS_IN_ONE_TICK
        for reader in list(self._readers.values()):
            if reader.is_asking and now >= reader.tell_at:
                reader.asked(now)
            elif reader.is_asking:
                self.due = min(self.due, reader.tell_at)
            if not reader.wants_all and reader.keys is None:
                continue
            if not _has_room(reader.link):
                self.due = min(self.due, now + _RETRY)
                continue
            if left:
                left -= 1
                self._send_chunk(reader)
                # The others' turns come before its next one.
                self._readers[reader.link] = self._readers.pop(reader.link)
            if reader.wants_all or reader.keys is not None:
                self.due = min(self.due, now + _PAUSE)

    def _send_chunk(self, reader: _Reader) -> None:
        rows_now = self._own.rows
        begins = reader.keys is None
        if reader.keys is None:
            reader.begin(list(rows_now))
        keys, rows, size = reader.keys or [], list[Row](), 0
        while reader.at < len(keys) and size < _MESSAGE_BYTES:
            key = keys[reader.at]
            reader.at += 1
            # Those that have gone since were told as changes.
            if (state := rows_now.get(key)) is not None:
                rows.append((key, state))
                size += InterestBody.size_of(rows[-1])
        ends = reader.at >= len(keys)
        if ends:
            reader.keys = None
        reader.link.send(self._message(rows, begins=begins, ends=ends))


class _Reader:
    """A neighbour, as far as it has been told."""

    __slots__ = ("acknowledged", "at", "has_begun", "is_asking", "keys", "link", "pause", "tell_at", "wants_all")

    def __init__(self, link: Link) -> None:
        self.link = link
        #: The version that it said it has taken; 0: none.
        self.acknowledged = 0
        #: The rows that are left to be told to it, those before ``at`` were; None: it was told all.
        self.keys: list[bytes] | None = None
        self.at = 0
        #: Whether it is told changes: all rows are being, or were, told.
        self.has_begun = False
        self.wants_all = True
        #: Whether it has asked for all rows; the time from which on it is told them again, and the pause after that.
        self.is_asking = False
        self.tell_at, self.pause = 0.0, _TELL_AGAIN

    def asked(self, now: float) -> None:
        """Tell it all rows, as it has asked; the next time later."""
        self.is_asking, self.wants_all = False, True
        if now >= self.tell_at + 2 * _TELL_AGAIN_AT_MOST:
            self.pause = _TELL_AGAIN
        self.tell_at = now + self.pause
        self.pause = min(_TELL_AGAIN_AT_MOST, 2 * self.pause)

    def begin(self, keys: list[bytes]) -> None:
        """All rows, which have ``keys``, are told from now on."""
        self.keys, self.at, self.has_begun, self.wants_all = keys, 0, True, False


def _split(rows: list[Row]) -> tuple[list[Row], list[Row]]:
    """The rows of one message, and the rest."""
    size = 0
    for count, row in enumerate(rows):
        if size >= _MESSAGE_BYTES:
            return rows[:count], rows[count:]
        size += InterestBody.size_of(row)
    return rows, []


def _has_room(link: Link) -> bool:
    """Return whether ``link`` takes more than it must be told at once."""
    return link.route is not None and len(link.outbox) < _BACKLOG_MESSAGES and link.sent_bytes < _BACKLOG_BYTES
