"""Room in a folder: what was used least recently goes first."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path

from rpcmq.proxy.store.folder import Folder, is_branch, is_stored, room_of

__all__ = ["Evictor"]

#: Folders whose files are compared at once, and the candidates that are remembered of them.
_SAMPLE, _CANDIDATES = 16, 128
#: Samples that are taken until one has a file.
_ATTEMPTS = 8
#: The most files that one call removes.
_MOST = 1000


class Evictor:
    """Removes the files of a folder that were used least recently, until all take at most ``max_bytes``.

    All processes together have no order of all files: the oldest ones of a random sample go, which in a folder of up
    to 16 leaves are all, and in a larger one nearly the oldest.

    Args:
        folder: the folder.
        max_bytes: its bound.
        on_evicted: is called for each file that was removed.
    """

    def __init__(self, folder: Folder, max_bytes: int, on_evicted: Callable[[], None]) -> None:
        self._folder = folder
        self._max_bytes = max_bytes
        self._on_evicted = on_evicted
        #: Time of the last use, and path, the latest first.
        self._candidates: list[tuple[float, str]] = []

    def make_room(self, used: int) -> bool:
        """Remove files while more than ``used`` bytes are more than the bound; return whether they no longer are.

        Raises:
            OSError: the disk does not let it.
        """
        for _ in range(_MOST):
            if used <= self._max_bytes:
                return True
            if not self._has_candidates():
                return False
            _, used = self._remove(*self._candidates.pop(), used)
        return used <= self._max_bytes

    def remove(self, size: int) -> bool:
        """Remove files of ``size`` bytes together, or all that there are; return whether any went.

        Raises:
            OSError: the disk does not let it.
        """
        gone = 0
        for _ in range(_MOST):
            if gone >= size or not self._has_candidates():
                break
            gone += self._remove(*self._candidates.pop(), 0)[0]
        return gone > 0

    def _has_candidates(self) -> bool:
        if not self._candidates:
            self._sample()
        return bool(self._candidates)

    def _remove(self, used_at: float, path: str, used: int) -> tuple[int, int]:
        """Remove a file unless it was used since it became a candidate; return the bytes of the disk that it took, and
        the bytes that all take now: ``used`` if it was not removed.
        """
        try:
            status = os.stat(path)
        except FileNotFoundError:
            return 0, used
        if status.st_mtime > used_at:
            return 0, used
        left = self._folder.unlink(path)
        if left is None:
            return 0, used
        self._on_evicted()
        return room_of(status.st_size), left

    def _sample(self) -> None:
        found: list[tuple[float, str]] = []
        for _ in range(_ATTEMPTS):
            for leaf in self._some_leaves():
                found += _files(leaf)
            if found:
                break
        found.sort(reverse=True)
        # The younger half of a sample is no candidate, where there is more than a sample.
        self._candidates = found[-min(_CANDIDATES, max(1, len(found) // 2)) :]

    def _some_leaves(self) -> list[Path]:
        outer = [name for name in os.listdir(self._folder.path) if is_branch(name)]
        random.shuffle(outer)
        leaves: list[Path] = []
        for name in outer:
            try:
                inner = [each for each in os.listdir(self._folder.path / name) if is_branch(each)]
            except (FileNotFoundError, NotADirectoryError):
                # It has just been removed, or is none of this store.
                continue
            random.shuffle(inner)
            # Several of one branch only where there are few branches.
            share = max(1, _SAMPLE // len(outer))
            leaves += [self._folder.path / name / each for each in inner[:share]]
            if len(leaves) >= _SAMPLE:
                break
        return leaves


def _files(leaf: Path) -> list[tuple[float, str]]:
    """Return the time of the last use, and the path, of each file of a folder, which goes if there is none."""
    try:
        with os.scandir(leaf) as entries:
            files = list(entries)
        if not files:
            os.rmdir(leaf)
        found = [(entry.stat().st_mtime, entry.path) for entry in files if is_stored(entry.name)]
    except OSError:
        # It, or a file of it, has just been removed, or it has got one.
        return []
    return found
