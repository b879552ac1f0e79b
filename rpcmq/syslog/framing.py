"""Messages of syslog in a stream of TCP: RFC 6587."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

__all__ = ["Frame", "Framing", "OutOfStep"]

_DIGITS = b"0123456789"
#: Digits of the longest length that is believed: a frame of 10 GB is none.
_MOST_DIGITS = 10
_ENDS = b"\n\r\0"


class OutOfStep(ValueError):
    """A stream in which nobody can tell any more where a message begins; the text says why."""

    def __init__(self, text: str, frames: Sequence[Frame] = ()) -> None:
        super().__init__(text)
        self.frames = frames


class Frame(NamedTuple):
    """A message of a stream.

    Attributes:
        data: the message, or its beginning where it is too long.
        size: bytes of the whole message.
        counted: whether its length was sent before it (octet counting).
    """

    data: bytes
    size: int
    counted: bool


class Framing:
    """Takes apart what comes over one connection.

    A frame that begins with a digit has its length before it (octet counting, RFC 6587 section 3.4.1); one that begins
    with ``<`` ends with its line (section 3.4.2), as logger(1) sends it unless told otherwise.

    Args:
        max_bytes: of a longer message only so many bytes are kept; the rest is passed over.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._data = bytearray()
        #: Bytes of the message that comes, where they are known; -1: its line's end is looked for.
        self._length: int | None = None
        #: The beginning of one that is too long, and its bytes that were passed over.
        self._kept = b""
        self._skipped = 0
        #: Bytes of the line in which no end was found.
        self._searched = 0

    def feed(self, data: bytes) -> list[Frame]:
        """Return the messages that are complete with ``data``.

        Raises:
            OutOfStep: what follows is no frame; ``frames`` of the exception are those before it.
        """
        self._data += data
        frames: list[Frame] = []
        try:
            while frame := self._next():
                frames.append(frame)
        except OutOfStep as error:
            raise OutOfStep(str(error), frames) from None
        return frames

    def end(self) -> Frame | None:
        """Return the last line, which the end of the connection ends, too; None: there is none.

        Raises:
            OutOfStep: the connection ends within a message that has its length before it.
        """
        if self._length is None and not self._data:
            return None
        if self._length == -1:
            return self._end_line(len(self._data), 0)
        have = len(self._data) + self._skipped
        raise OutOfStep(f"it ended after {have} bytes of a message of {self._length or 'unknown'} bytes")

    def _next(self) -> Frame | None:
        if self._length is None and not self._begin():
            return None
        return self._line() if self._length == -1 else self._counted()

    def _begin(self) -> bool:
        """Find out how long the next message is; return False if that has not come yet."""
        if self._data and self._data[0] in _ENDS:
            # At once: somebody may send nothing else.
            self._data = self._data.lstrip(_ENDS)
        if not self._data:
            return False
        if self._data[0] == ord("<"):
            self._length = -1
            return True
        begun = bytes(self._data[: _MOST_DIGITS + 1])
        digits, space, _ = begun.partition(b" ")
        if not digits or digits[0] not in _DIGITS[1:] or any(each not in _DIGITS for each in digits):
            raise OutOfStep(f"a message begins with neither a length nor '<', but with {begun[:8]!r}")
        if not space:
            if len(digits) > _MOST_DIGITS:
                raise OutOfStep(f"the length of a message has more than {_MOST_DIGITS} digits")
            return False
        self._length = int(digits)
        del self._data[: len(digits) + 1]
        return True

    def _counted(self) -> Frame | None:
        assert self._length is not None
        left = self._length - self._skipped
        if len(self._data) >= left:
            data = bytes(self._data[: min(left, self._max_bytes)])
            del self._data[:left]
            frame = Frame(data if not self._skipped else self._kept, self._length, True)
            self._reset()
            return frame
        self._pass_over()
        return None

    def _line(self) -> Frame | None:
        ends = [at for at in (self._data.find(end, self._searched) for end in (b"\n", b"\0")) if at >= 0]
        if ends:
            return self._end_line(min(ends), 1)
        self._pass_over()
        self._searched = len(self._data)
        return None

    def _end_line(self, at: int, mark: int) -> Frame:
        data = bytes(self._data[:at])
        del self._data[: at + mark]
        size = self._skipped + len(data)
        kept = self._kept if self._skipped else data[: self._max_bytes]
        self._reset()
        return Frame(kept.rstrip(b"\r"), size, False)

    def _pass_over(self) -> None:
        """Keep the beginning of a message that is too long, and no more of it."""
        if len(self._data) + self._skipped <= self._max_bytes:
            return
        if not self._skipped:
            self._kept = bytes(self._data[: self._max_bytes])
        self._skipped += len(self._data)
        self._data.clear()

    def _reset(self) -> None:
        self._length, self._skipped, self._searched, self._kept = None, 0, 0, b""
