"""The manifest of a dispatch log: which files hold its records now, and what became of all the others.

``DIR/manifest.jsonl`` is an append-only journal, one JSON object a line:

ship        a spool file has become a segment in ``ready/``; or was empty
quarantine  a spool file was set aside, whole, with a reason
damage      a file of records was set aside: it is no longer what was written
compact     segments, or files of ``log/``, were rewritten into files of ``log/``: these count now, those no longer
retire      files were removed for their age or for the size of the log
totals      the first line after the journal was rewritten: what the lines that are gone added up to
earlier     the first line after the journal was lost: what ``totals.json`` had of what is in no file any more

One line is one change, whole or not at all: what a crash tore off at the end is cut when the shipper
opens the journal again, and readers pass over it. So whoever reads the files that ``read`` names, and no
others, reads each record once. A file may go while it is read (a later ``retire``): read the manifest again.

Beside it ``DIR/totals.json`` keeps what could not be found out again without it: how many records are in no file any
more, and how many came from each life of a router.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

from rpcmq.errors import RpcError
from rpcmq.latency.change_log import ChangeLog, replayed
from rpcmq.latency.files import write_whole
from rpcmq.latency.log_state import State
from rpcmq.log_format import LOG_MODE

__all__ = ["LogInUse", "Manifest", "ManifestDamaged", "read"]

NAME = "manifest.jsonl"
TOTALS = "totals.json"
LOCK = ".ship.lock"
#: Lines that say nothing any more, above which the journal is rewritten.
_STALE_LINES = 10_000


class LogInUse(RpcError):
    """Another process ships this log."""


class ManifestDamaged(RpcError):
    """A line before the last one is not a change known to this version."""


def read(directory: Path) -> State:
    """The state of the log in ``directory``: which files to read, and the account of all others.

    Raises:
        ManifestDamaged: the manifest is not one.
    """
    return replayed(directory / NAME, State(), ManifestDamaged)


def _kept(directory: Path) -> dict[str, Any] | None:
    """Return the content of ``totals.json``; None if it is missing or invalid."""
    try:
        totals: dict[str, Any] = json.loads((directory / TOTALS).read_bytes())
        State()._earlier(dict(totals))
    except (FileNotFoundError, ValueError, TypeError, KeyError, AttributeError):
        return None
    return totals


class Manifest(ChangeLog[State]):
    """The journal, open for writing by the one process that ships this log.

    Attributes:
        state: what its lines add up to.

    Args:
        directory: the log's.

    Raises:
        LogInUse: another process has it open.
        ManifestDamaged: see ``read``.
        OSError: it cannot be opened.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        in_use = LogInUse(f"{directory}: another process ships this log")
        super().__init__(directory / NAME, directory / LOCK, State(), ManifestDamaged, in_use)
        try:
            self._kept = _kept(directory)
            if not self.state.lines and self._kept is not None:
                self.append("earlier", state=self._kept)
        except OSError:
            self.close()
            raise

    def keep_totals(self) -> None:
        """Bring ``totals.json`` up to date. Files of records that are retired have gone.

        Raises:
            OSError: it is as it was.
        """
        totals = self.state.earlier()
        if totals != self._kept:
            write_whole(self._directory / TOTALS, json.dumps(totals).encode() + b"\n", LOG_MODE)
            self._kept = totals

    def tidy(self, settled: Collection[str]) -> None:
        """Compact the journal if most of its lines are obsolete.

        Args:
            settled: names of spool files that are still there: the others' need no memory.

        Raises:
            OSError: the journal is as it was.
        """
        if self.state.lines < _STALE_LINES + 2 * len(self.state.live):
            return
        for name in self.state.settled.keys() - set(settled):
            del self.state.settled[name]
        self.rewrite(self.state)
