"""A disk in memory that loses power: writes are lost, torn and reordered unless they were synced. A VFS of SQLite."""

from __future__ import annotations

from random import Random
from typing import Any

import apsw

__all__ = ["SECTOR", "CrashDisk", "PowerCut"]

#: What a disk writes whole or not at all (bytes).
SECTOR = 512


class PowerCut(Exception):
    """The power is off: nothing can be read or written."""


class _File:
    """What is on the disk, what a reader sees, and the writes between."""

    def __init__(self) -> None:
        self.synced = bytearray()
        self.seen = bytearray()
        #: (offset, data) of a write; (size, None) where it was cut.
        self.pending: list[tuple[int, bytes | None]] = []

    def write(self, offset: int, data: bytes) -> None:
        _put(self.seen, offset, data)
        self.pending.append((offset, data))

    def cut(self, size: int) -> None:
        del self.seen[size:]
        self.pending.append((size, None))

    def sync(self) -> None:
        for offset, data in self.pending:
            self._keep(offset, data)
        self.pending.clear()

    def crash(self, random: Random, is_cut_off: bool = False) -> None:
        """The power goes off: what was not synced is there in part."""
        if is_cut_off:
            self.cut_off(random)
        else:
            self.lose(random)
        self.seen = bytearray(self.synced)

    def _keep(self, offset: int, data: bytes | None) -> None:
        if data is None:
            del self.synced[offset:]
        else:
            _put(self.synced, offset, data)

    def cut_off(self, random: Random) -> None:
        """The writes since the last sync are there up to some byte."""
        count = random.randrange(len(self.pending) + 1)
        for offset, data in self.pending[:count]:
            self._keep(offset, data)
        for offset, data in self.pending[count : count + 1]:
            self._keep(offset, data and data[: random.randrange(len(data))])
        self.pending.clear()

    def lose(self, random: Random) -> None:
        """Some of the writes since the last sync are there, in any order, and some of them in part."""
        kept = [each for each in self.pending if random.random() < 0.5]
        if random.random() < 0.3:
            random.shuffle(kept)
        for offset, data in kept:
            if data is not None and random.random() < 0.3:
                sectors = [
                    (offset + at, data[at : at + SECTOR]) for at in range(0, len(data), SECTOR) if random.random() < 0.5
                ]
                for at, sector in sectors:
                    _put(self.synced, at, sector)
            else:
                self._keep(offset, data)
        self.pending.clear()


class CrashDisk(apsw.VFS):
    """A disk for SQLite, by the name ``name``.

    Attributes:
        operations: how many there were.
        cut_at: the operation at which the power goes off; 0: it does not.
        fail_at: operations that fail, with the error that SQLite is told.
        fail_sync_in: the sync that fails, counted from now, which is 1; 0: none. Some of what it was to write is not
            on the disk then, and never will be, as in Linux: it may be read until the power goes off.
        is_torn: after a power cut what was not synced is there up to some byte, and not in pieces.
    """

    def __init__(self, name: str, random: Random) -> None:
        super().__init__(name, "")
        self.name = name
        self._random = random
        self._files: dict[str, _File] = {}
        self.operations = self.cut_at = 0
        self.fail_at: dict[int, int] = {}
        self.fail_sync_in = 0
        self.is_torn = False
        self._is_off = False

    def crash(self) -> None:
        """The power goes off, and on again."""
        for file in self._files.values():
            file.crash(self._random, self.is_torn)
        self.cut_at = self.fail_sync_in = 0
        self.fail_at.clear()
        self._is_off = False

    @property
    def is_off(self) -> bool:
        """Whether the power is off."""
        return self._is_off

    def place_of(self, bit: int) -> tuple[str, int]:
        """The file, and the place in it, of a bit of all bits of the files, one after the other."""
        for name, file in sorted(self._files.items()):
            if bit < len(file.seen) << 3:
                return name, bit
            bit -= len(file.seen) << 3
        raise ValueError("there are not so many bits")

    def flip(self, name: str, bit: int) -> None:
        """Flip a bit of a file."""
        file = self._files[name]
        for content in (file.seen, file.synced):
            content[bit >> 3] ^= 1 << (bit & 7)

    def byte_at(self, name: str, bit: int) -> int:
        """The byte that has a bit of a file; -1: it has no such bit."""
        content = self._files[name].seen
        return content[bit >> 3] if bit >> 3 < len(content) else -1

    def size_bytes(self, name: str = "") -> int:
        """Bytes of a file; empty: of all."""
        return sum(len(file.seen) for each, file in self._files.items() if each == name or not name)

    def step(self, changes: bool = True) -> None:
        """Count an operation, and fail if it is to."""
        if self._is_off:
            raise apsw.IOError("the power is off")
        if not changes:
            return
        self.operations += 1
        if self.operations == self.cut_at:
            self._is_off = True
            raise apsw.IOError("the power is off")
        code = self.fail_at.pop(self.operations, 0)
        if code:
            raise apsw.exception_for(code)

    def sync(self, file: _File) -> None:
        """Sync a file, or fail if that is to."""
        self.step()
        if self.fail_sync_in:
            self.fail_sync_in -= 1
            if not self.fail_sync_in:
                file.lose(self._random)
                if self._random.random() < 0.5:
                    file.seen = bytearray(file.synced)
                raise apsw.IOError("EIO at fsync")
        file.sync()

    # --- the contract of SQLite --------------------------------------------------------------

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> Any:
        self.step(False)
        path = name.filename() if isinstance(name, apsw.URIFilename) else str(name)
        flags[1] = flags[0]
        return _Handle(self, self._files.setdefault(path, _File()))

    def xDelete(self, filename: str, syncdir: bool) -> None:
        self.step()
        self._files.pop(filename, None)

    def xAccess(self, pathname: str, flags: int) -> bool:
        self.step(False)
        return pathname in self._files

    def xFullPathname(self, name: str) -> str:
        return name


class _Handle:
    """An open file."""

    def __init__(self, disk: CrashDisk, file: _File) -> None:
        self._disk = disk
        self._file = file

    def xRead(self, amount: int, offset: int) -> bytes:
        self._disk.step(False)
        return bytes(self._file.seen[offset : offset + amount])

    def xWrite(self, data: bytes, offset: int) -> None:
        self._disk.step()
        self._file.write(offset, bytes(data))

    def xTruncate(self, size: int) -> None:
        self._disk.step()
        self._file.cut(size)

    def xSync(self, flags: int) -> None:
        self._disk.sync(self._file)

    def xFileSize(self) -> int:
        self._disk.step(False)
        return len(self._file.seen)

    def xLock(self, level: int) -> None:
        pass

    def xUnlock(self, level: int) -> None:
        pass

    def xCheckReservedLock(self) -> bool:
        return False

    def xSectorSize(self) -> int:
        return SECTOR

    def xDeviceCharacteristics(self) -> int:
        # As SQLite's own files: what stands beside a write is not changed by it.
        return apsw.SQLITE_IOCAP_POWERSAFE_OVERWRITE

    def xFileControl(self, operation: int, pointer: int) -> bool:
        return False

    def xClose(self) -> None:
        pass


def _put(content: bytearray, offset: int, data: bytes) -> None:
    if offset > len(content):
        content += bytes(offset - len(content))
    content[offset : offset + len(data)] = data
