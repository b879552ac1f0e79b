"""A disk that fails on demand: Python imports this at its start where ``PYTHONPATH`` has this folder.

Only a process of a store is concerned, where the variable ``FAULTY_DISK`` names a file. What stands in that fails:
``write``, ``sync`` or ``read`` with EIO; with ``read-only`` nothing is written, and files are opened for reading only,
as a system does with a disk that has failed.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

_CONTROL = os.environ.get("FAULTY_DISK", "")

if _CONTROL and "rpcmq.store.process" in sys.orig_argv:
    import apsw

    #: What does the work; the default is this disk itself.
    _BASE = "unix"

    def _trouble() -> str:
        try:
            return Path(_CONTROL).read_text()
        except FileNotFoundError:
            return ""

    class _Disk(apsw.VFS):
        def __init__(self) -> None:
            super().__init__("faulty", _BASE, makedefault=True)

        def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> Any:
            if _trouble() == "read-only":
                flags[0] &= ~(apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE)
                flags[0] |= apsw.SQLITE_OPEN_READONLY
            return _File(name, flags)

    class _File(apsw.VFSFile):
        def __init__(self, name: Any, flags: list[int]) -> None:
            super().__init__(_BASE, name, flags)

        def xRead(self, amount: int, offset: int) -> bytes:
            if _trouble() == "read":
                raise apsw.IOError("EIO at read")
            return super().xRead(amount, offset)

        def xWrite(self, data: bytes, offset: int) -> None:
            if _trouble() in ("write", "read-only"):
                raise apsw.IOError("EIO at write")
            super().xWrite(data, offset)

        def xSync(self, flags: int) -> None:
            if _trouble() == "sync":
                raise apsw.IOError("EIO at fsync")
            super().xSync(flags)

    _disk = _Disk()
