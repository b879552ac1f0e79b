"""Follow the shipper's manifest as it grows: the segments it names, each once."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import NamedTuple

from rpcmq.latency.log_state import File, State
from rpcmq.latency.manifest import NAME, ManifestDamaged

__all__ = ["Follower", "Named"]


class Named(NamedTuple):
    """A segment that the manifest names.

    Attributes:
        path: below the log's directory.
        file: what the manifest says of it; None: it was compacted before, and only its name is left.
    """

    path: str
    file: File | None


class Follower:
    """Reads a manifest incrementally as it grows.

    Args:
        log: the log's directory.

    Attributes:
        state: what the manifest's lines add up to so far.
    """

    def __init__(self, log: Path) -> None:
        self._path = log / NAME
        self._inode = -1
        self._place = 0
        self.state = State()

    def look(self) -> list[Named]:
        """The segments named since the last look, in the order in which they were shipped.

        When the manifest was rewritten since, or made anew, that is all segments that it names now.

        Raises:
            ManifestDamaged: it is not one; the shipper makes it anew at its next start.
            OSError: it cannot be read.
        """
        try:
            file = self._path.open("rb")
        except FileNotFoundError:
            return []
        with file:
            status = os.fstat(file.fileno())
            if status.st_ino != self._inode or status.st_size < self._place:
                self._inode, self._place, self.state = status.st_ino, 0, State()
            file.seek(self._place)
            content = file.read()
        named: list[Named] = []
        # A line without its end is one that is being written.
        whole = content[: content.rfind(b"\n") + 1]
        for line in whole.splitlines():
            named += self._take(line)
        self._place += len(whole)
        return named

    def _take(self, line: bytes) -> list[Named]:
        try:
            self.state.apply(line)
            change = json.loads(line)
            if change["event"] == "totals":
                return [*(Named(path, None) for path in self.state.superseded), *map(_named, self.state.live.values())]
            if change["event"] == "ship" and change["file"]:
                return [Named(change["file"]["path"], File(**change["file"]))]
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            # From the first line again, next time: it may be another file by then.
            self._inode = -1
            raise ManifestDamaged(f"{NAME}: {type(error).__name__}: {error}") from error
        return []


def _named(file: File) -> Named:
    return Named(file.path, file)
