"""Check that a directory has a readable dispatch log, before anything slow begins."""

from __future__ import annotations

import shlex
from pathlib import Path

from rpcmq.errors import UsageError
from rpcmq.latency.manifest import NAME as MANIFEST
from rpcmq.log_format import PART, SEALED

__all__ = ["check_log", "complete_files", "elsewhere", "is_log"]

_PLACES = ("spool", "ready")


def is_log(directory: Path) -> bool:
    """Return whether a router, or its shipper, has written there."""
    return any((directory / name).exists() for name in (MANIFEST, *_PLACES))


def complete_files(directory: Path) -> int:
    """Return the number of spool files that wait to be shipped."""
    return sum(1 for _ in (directory / "spool").glob(f"[!.]*{SEALED}"))


def check_log(directory: Path) -> None:
    """Raise unless something of the log in ``directory`` was shipped.

    Raises:
        UsageError: nothing was; says what is there, and what to do.
    """
    if not is_log(directory):
        raise UsageError(f"{directory}: no dispatch log here{elsewhere(directory)}")
    if (directory / MANIFEST).exists() and (directory / MANIFEST).stat().st_size:
        return
    ship = f"run `rpcmq ship --log {shlex.quote(str(directory))} --once`"
    begun = sum(1 for _ in (directory / "spool").glob(f"[!.]*{PART}"))
    if waiting := complete_files(directory) + begun:
        files = "1 spool file waits" if waiting == 1 else f"{waiting} spool files wait"
        raise UsageError(f"{directory}: nothing was shipped yet, {files}: {ship}")
    if any(path for name in ("ready", "log") for path in (directory / name).rglob("[!.]*.parquet")):
        raise UsageError(f"{directory}: the manifest is missing, {ship}: it makes it anew from the files")
    raise UsageError(f"{directory}: the dispatch log has no records yet")


def elsewhere(directory: Path) -> str:
    """Return a clause naming a log beside ``directory``, to end a sentence; empty if there is none."""
    near = [directory.resolve().parent, *(path for path in sorted(directory.glob("*")) if path.is_dir())]
    return next((f"; there is one in {path}" for path in near if is_log(path)), "")
