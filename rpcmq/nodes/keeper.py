"""The rows that a plugged-in node keeps for its next life, and the router's next one."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["Keeper"]

#: Bytes of one row, and characters of its name.
_MAX_ROW_BYTES, _MAX_NAME = 64 << 10, 300


class Keeper:
    """Rows by name, encoded; somebody else puts them on a disk.

    Args:
        max_bytes: of all rows.
        wake: is called when there is something new to be written.

    Attributes:
        encoded: the rows, each a line of JSON: its name and an object.
        size_bytes: of all of them.
        changes: the number of changes until now.
        problem: why they are not put on a disk at present; empty: they are.
        on_kept: is called with (now, problem) when all changes until now are on the disk, or could not be put there.
    """

    def __init__(self, max_bytes: int, wake: Callable[[], None] = lambda: None) -> None:
        self._max_bytes = max_bytes
        self._wake = wake
        self.encoded: dict[str, bytes] = {}
        self.size_bytes = self.changes = 0
        self.problem = ""
        self.on_kept: Callable[[float, str], None] = lambda now, problem: None

    @property
    def rows(self) -> dict[str, dict[str, Any]]:
        """The rows, decoded anew."""
        return {name: json.loads(line)[1] for name, line in self.encoded.items()}

    def keep(self, name: str, row: Mapping[str, Any] | None) -> None:
        """Keep ``row`` in place of the one with this name; None: keep none.

        Raises:
            TypeError: it is no JSON object.
            ValueError: it is too large, or there is no room for it.
        """
        if row is None:
            if (old := self.encoded.pop(name, None)) is not None:
                self.size_bytes -= len(old)
                self._note_change()
            return
        if not isinstance(name, str) or not isinstance(row, Mapping):
            raise TypeError(f"expected a name and a mapping, not {name!r:.50} and {type(row).__name__}")
        line = json.dumps([name, dict(row)], allow_nan=False, separators=(",", ":")).encode()
        if len(line) > _MAX_ROW_BYTES or len(name) > _MAX_NAME:
            raise ValueError(
                f"a row of {len(line)} bytes whose name has {len(name)} characters; at most {_MAX_ROW_BYTES} bytes "
                f"and {_MAX_NAME} characters are allowed"
            )
        size_bytes = self.size_bytes - len(self.encoded.get(name, b"")) + len(line)
        if size_bytes > self._max_bytes:
            raise ValueError(f"rows of {size_bytes} bytes exceed max_bytes = {self._max_bytes}")
        if self.encoded.get(name) != line:
            self.encoded[name], self.size_bytes = line, size_bytes
            self._note_change()

    def restore(self, lines: list[bytes]) -> None:
        """Have the rows ``lines`` of an earlier life.

        Raises:
            ValueError: one of them is no row.
        """
        for line in lines:
            match json.loads(line):
                case [str(name), dict()]:
                    self.encoded[name] = line
                case _:
                    raise ValueError("a row is a name and an object")
            self.size_bytes += len(line)

    def _note_change(self) -> None:
        self.changes += 1
        self._wake()
