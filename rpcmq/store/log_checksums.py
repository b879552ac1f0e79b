"""The frames of SQLite's write-ahead log, and their checksums.

`The file format of SQLite <https://www.sqlite.org/fileformat.html#walformat>`_, section 4: a head of 32 bytes, and a
frame for each page, 24 bytes and the page. A checksum is two sums of 32 bits over all that stands before it, from frame
to frame.
"""

from __future__ import annotations

import sys
from array import array
from struct import Struct

__all__ = ["FRAME_HEAD", "HEAD", "Frame", "LogHead", "Sums"]

#: A checksum.
Sums = tuple[int, int]

#: Magic, version, bytes of a page, times that it was begun anew; salts, and the checksum.
_HEAD = Struct(">4I8s2I")
#: The number of the page, and that of all pages after a commit; salts, and the checksum.
_FRAME = Struct(">2I8s2I")
#: Bytes before the first frame, and before the page of each.
HEAD, FRAME_HEAD = _HEAD.size, _FRAME.size
#: The checksum of a head is over all that stands before it, and that of a frame over its numbers and the page.
_SUMMED_OF_HEAD, _SUMMED_OF_FRAME = HEAD - 8, 8
_MOST = 0xFFFFFFFF


class LogHead:
    """The head of a log.

    Attributes:
        salts: those of its frames, which change whenever the log is begun anew.
        sums: the checksum, as it stands there.
        is_right: whether it is as it was written.
    """

    def __init__(self, raw: bytes) -> None:
        magic, _, _, _, self.salts, *sums = _HEAD.unpack(raw)
        self.sums: Sums = (sums[0], sums[1])
        #: Whether the words that are summed have their highest byte first.
        self._is_big = bool(magic & 1)
        self.is_right = self.summed(raw[:_SUMMED_OF_HEAD], (0, 0)) == self.sums

    def summed(self, data: bytes, before: Sums) -> Sums:
        """The checksum of ``data``, where ``before`` is that of all before it."""
        words = array("I", data)
        if self._is_big != (sys.byteorder == "big"):
            words.byteswap()
        first, second = before
        for even, odd in zip(words[::2], words[1::2], strict=True):
            first = first + even + second & _MOST
            second = second + odd + first & _MOST
        return first, second


class Frame:
    """A frame of the log that begins with ``head``.

    Attributes:
        number: of its page.
        page: the page.
        ends_commit: whether it is the last one of a commit.
        salts: those of the head, if nothing is wrong, and if it was written since the log was begun anew.
        sums: the checksum, as it stands there.
    """

    __slots__ = ("_head", "_summed", "ends_commit", "number", "page", "salts", "sums")

    def __init__(self, head: LogHead, raw: bytes) -> None:
        self._head = head
        self.number, pages, self.salts, *sums = _FRAME.unpack_from(raw)
        self.ends_commit = pages > 0
        self.sums: Sums = (sums[0], sums[1])
        self.page = raw[FRAME_HEAD:]
        self._summed = raw[:_SUMMED_OF_FRAME] + self.page

    @property
    def is_of_log(self) -> bool:
        """Whether it was written since the log was begun anew, though a bit may be wrong; else it is from before."""
        return (int.from_bytes(self.salts) ^ int.from_bytes(self._head.salts)).bit_count() <= 1

    def is_right(self, before: Sums) -> bool:
        """Return whether it is as it was written; ``before`` is the checksum of what stands before it."""
        return self.salts == self._head.salts and self._head.summed(self._summed, before) == self.sums
