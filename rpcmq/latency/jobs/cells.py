"""Cells on disk: a directory of Parquet files, there whole or not at all. docs/latency.md has their columns.

``_cells.json`` in it says what it is: the version of the format, the length of the windows, and what the cells were
made from. Readers of Parquet pass over names that begin with an underscore.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

from rpcmq.errors import RpcError, UsageError
from rpcmq.latency.analysis.account import Account, Life, SetAside
from rpcmq.latency.analysis.series import MEASURES
from rpcmq.latency.files import sync, write_whole
from rpcmq.latency.jobs import journal
from rpcmq.latency.presence import elsewhere

__all__ = [
    "DISTRIBUTIONS",
    "SUMS",
    "VERSION",
    "About",
    "CellsDamaged",
    "about",
    "datasets",
    "files_of",
    "replaced",
]

#: Columns of cells that add up.
SUMS = (
    "records", "handler_us", "handlers", "network_us", "reply_us", "request_bytes", "reply_bytes", "between_us",
)  # fmt: skip
#: Columns of cells that are histograms.
DISTRIBUTIONS = MEASURES
#: Of the format. A new column keeps it, any other change raises it.
VERSION = 2
_ABOUT = "_cells.json"


class CellsDamaged(RpcError):
    """A directory has no cells that this version can read; says why."""


@dataclass(frozen=True, slots=True)
class About:
    """The provenance of cells.

    Attributes:
        window_seconds: length of their windows.
        log: the dispatch log.
        since, until: the range of receive times asked for, seconds since 1970; None: no limit.
        where: dimension -> value of the records asked for.
        account: of the log that was read; None: not known.
    """

    window_seconds: int = 60
    log: str = ""
    since: float | None = None
    until: float | None = None
    where: Mapping[str, str] = field(default_factory=dict)
    account: Account | None = None


@contextmanager
def replaced(directory: Path, made_from: About | None = None) -> Iterator[Path]:
    """Make or replace ``directory``: the block writes files of cells into the one that it is given.

    That has another name, and is renamed when all of it is on the disk.

    Raises:
        OSError: it was not written; what was there before is.
    """
    directory = directory.resolve()
    directory.parent.mkdir(parents=True, exist_ok=True)
    with _aside(directory) as made, _aside(directory) as old:
        yield made
        content = {"version": VERSION, **asdict(made_from or About())}
        write_whole(made / _ABOUT, json.dumps(content, indent=2).encode() + b"\n")
        for path in made.iterdir():
            sync(path)
        if directory.exists():
            directory.rename(old)
        made.rename(directory)
        sync(directory.parent)


@contextmanager
def _aside(directory: Path) -> Iterator[Path]:
    """A name beside ``directory``, of which nothing is left at the end of the block."""
    path = directory.with_name(f".{directory.name.lstrip('.')}-{uuid4().hex}")
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def files_of(*directories: Path) -> list[Path]:
    """The files of cells in all ``directories``.

    Args:
        directories: each of ``replaced``, or one with such directories below it, or that of a stream.

    Raises:
        UsageError: there are no cells in one of them.
        CellsDamaged: they are of a version that is not known.
        JournalDamaged: of a stream's directory.
    """
    found = [path for directory in directories for path in datasets(directory)]
    for path in found:
        about(path)
    return [file for path in found for file in sorted(path.glob("[!._]*.parquet"))]


def datasets(directory: Path) -> list[Path]:
    """The directories of ``replaced`` that ``directory`` is, has below it, or names if it is a stream's.

    Raises:
        UsageError: there are none.
        JournalDamaged: of a stream's directory.
    """
    if (directory / _ABOUT).exists():
        return [directory]
    if (directory / journal.NAME).exists():
        return [directory / path for path in journal.read(directory).live]
    below = sorted(path.parent for path in directory.rglob(_ABOUT))
    found = [path for path in below if not any(part.startswith(".") for part in path.relative_to(directory).parts)]
    if not found:
        where = elsewhere(directory)
        raise UsageError(f"{directory}: no dispatch log here, and no cells of a report or a stream{where}")
    return found


def about(dataset: Path) -> About:
    """Return the provenance of the cells in the directory ``dataset``.

    Raises:
        CellsDamaged: it does not say, or they are of a version that is not known.
    """
    try:
        content: dict[str, Any] = json.loads((dataset / _ABOUT).read_bytes())
        version = content.pop("version")
        if version != VERSION:
            raise CellsDamaged(f"{dataset}: cells of version {version}; this rpcmq reads {VERSION}")
        account = content.pop("account")
        if account is not None:
            aside: Sequence[dict[str, Any]] = account.pop("set_aside")
            lives: Sequence[dict[str, Any]] = account.pop("unsealed")
            account = Account(
                **account,
                set_aside=[SetAside(**each) for each in aside],
                unsealed=[Life(**each) for each in lives],
            )
        return About(**content, account=account)
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise CellsDamaged(f"{dataset / _ABOUT}: {error}") from error
