"""The state of a queue server as it says it itself: a line of JSON each second, of which the last counts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

__all__ = ["LONGEST_LINE", "QueueStatus"]

#: A longer line is left out (bytes).
LONGEST_LINE = 1 << 20


class QueueStatus:
    """The last line, kept as it came: most are never looked at.

    Attributes:
        heard: when the last line came (monotonic seconds); None: none has.
        left_out: number of lines that were too long.
    """

    def __init__(self) -> None:
        self._begun = bytearray()
        self._is_too_long = False
        self._line = b""
        self.heard: float | None = None
        self.left_out = 0

    def feed(self, data: bytes, now: float) -> None:
        """Take what has come."""
        *lines, rest = data.split(b"\n")
        for line in lines:
            self._add(line)
            if self._is_too_long:
                self.left_out += 1
            elif self._begun:
                self._line, self.heard = bytes(self._begun), now
            self._begun.clear()
            self._is_too_long = False
        self._add(rest)

    def _add(self, part: bytes) -> None:
        if self._is_too_long or len(self._begun) + len(part) > LONGEST_LINE:
            self._is_too_long = True
            self._begun.clear()
        else:
            self._begun += part

    def read(self) -> Mapping[str, Any]:
        """Return what the last line says; empty: there is none, or it cannot be read."""
        return _read(self._line)

    def about(self) -> Mapping[str, Any]:
        """Return what the last line says of the whole, without its queues, which may be thousands."""
        # Within a text of JSON each quotation mark has a backslash before it.
        whole, queues, _ = self._line.partition(b', "queues": {')
        return _read(whole + b"}" if queues else whole)


def _read(line: bytes) -> Mapping[str, Any]:
    try:
        said = json.loads(line)
    except ValueError:
        return {}  # written by halves by a server that was killed: the next one has its own
    return said if isinstance(said, dict) else {}
