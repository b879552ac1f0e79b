"""Admission of segments to a stream: those the manifest names, checked, each once.

Spark's file source takes whatever lies in a directory, and a stream over ``ready/`` itself would end at the first
file that is damaged, and at each restart again; and at a file that compaction or retention has removed after it was
planned and before it was read. So it reads a directory of its own, ``OUT/admitted/``, into which segments come so:

1. A hard link with a dot in front, which Spark does not see. What is linked stays, whatever becomes of ``ready/``.
   (Where links are not possible it is a copy.)
2. It goes through the gate (``gate``), as for the batch job. What does not pass is set aside, in the journal.
3. A line of the journal says that the good ones are admitted.
4. They lose the dot. A crash between the two is mended at the next start.

The link is removed when a later batch has begun, for then Spark knows for good that its own batch was done. What Spark
cannot read in spite of that, because it was damaged in between, is found and withdrawn when the query fails.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pyarrow.parquet as pq

from rpcmq.latency.analysis.account import Account, SetAside
from rpcmq.latency.files import Unsuitable, open_regular, remove, sync
from rpcmq.latency.jobs.follower import Follower, Named
from rpcmq.latency.jobs.gate import Problem, add_router_gaps, problem_of, unreadable
from rpcmq.latency.jobs.journal import Journal
from rpcmq.latency.log_state import File

__all__ = ["MISSING", "UNLISTED", "ScanResult", "SegmentIntake"]

#: The segment was removed before the stream had read it.
MISSING = "missing"
#: The file is in ``ready/``, but not in the manifest. If it gets there, it is admitted.
UNLISTED = "unlisted"
#: Seconds after which a file in ``ready/`` ought to be in the manifest: the shipper writes the one, then the other.
_PATIENCE = 10.0
_CANNOT_LINK = (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOTSUP, errno.ENOSYS, errno.EACCES)
_UNREADABLE = (errno.EACCES, errno.EIO, errno.EISDIR, errno.EPERM)


class ScanResult(NamedTuple):
    """The result of one scan.

    Attributes:
        segments, records: how many were admitted.
        aside: those that were not.
        more: whether there is more to be looked at now.
    """

    segments: int
    records: int
    aside: list[SetAside]
    more: bool


class SegmentIntake:
    """Brings segments from ``ready/`` to ``admitted/``.

    Args:
        log: the log's directory.
        out: the stream's.
        journal: where what was done is written down.
        clock: seconds since 1970.

    Attributes:
        directory: where Spark is to look; it exists.
    """

    def __init__(self, log: Path, out: Path, journal: Journal, clock: Callable[[], float]) -> None:
        self.directory = out / "admitted"
        self._log = log
        self._journal = journal
        self._clock = clock
        self._follower = Follower(log)
        self._pending: dict[str, File | None] = {}
        self._hidden: list[str] = []
        self._strays_due = 0.0
        self.directory.mkdir(parents=True, exist_ok=True)
        self._recover()

    def look(self, most: int) -> ScanResult:
        """Admit available segments, at most ``most``.

        Raises:
            ManifestDamaged: of the log; nothing was admitted.
            OSError: what was admitted is; the rest will be another time.
        """
        self._show()
        for named in self._follower.look():
            if named.path.startswith("ready/") and not self._is_settled(named.path):
                self._pending[named.path] = named.file
        good: dict[str, int] = {}
        aside: list[SetAside] = []
        batch = [Named(path, self._pending[path]) for path in list(self._pending)[:most]]
        for named in batch:
            brought = self._link_hidden(named)
            if isinstance(brought, SetAside):
                aside.append(brought)
            else:
                good[_name(named.path)] = brought
        aside += self._strays()
        self._settle(good, aside)
        return ScanResult(len(good), sum(good.values()), aside, bool(self._pending))

    def withdraw(self) -> list[SetAside]:
        """Set aside admitted, uncounted segments that cannot be read. Call between queries."""
        bad = []
        for name in list(self._journal.state.waiting):
            path = self.directory / name
            found = problem_of(path, None) or unreadable(path)
            if found:
                rows = self._journal.state.waiting[name]
                bad.append(SetAside(f"ready/{name}", *found, rows))
        if bad:
            self._journal.set_aside(bad)
            for each in bad:
                remove(self.directory / _name(each.path))
        return bad

    def reconsider(self) -> ScanResult:
        """Check again the segments set aside that still exist. Call when Spark's checkpoint is new.

        Raises:
            OSError: what was admitted is; the rest will be another time.
        """
        good: dict[str, int] = {}
        for name, why in list(self._journal.state.aside.items()):
            if why.rows is not None and (self._log / why.path).exists():
                found = self._link_hidden(Named(why.path, self._follower.state.live.get(why.path)))
                if not isinstance(found, SetAside):
                    good[name] = found
        self._settle(good, [])
        return ScanResult(len(good), sum(good.values()), [], False)

    def release(self) -> None:
        """Remove counted segments. Call when Spark will not read them again."""
        waiting = self._journal.state.waiting
        for name in self._names():
            if name not in waiting:
                remove(self.directory / name)

    def report(self) -> None:
        """Write into the journal what only the manifest knows."""
        account = Account()
        add_router_gaps(account, self._follower.state)
        self._journal.hear(account)

    def known(self) -> set[str]:
        """Names of all segments that the log still has or speaks of."""
        state = self._follower.state
        paths = [*state.live, *state.superseded, *state.retired, *self._pending]
        return {*map(_name, paths), *(path.name for path in self._segments())}

    # --- one segment -----------------------------------------------------------------------------

    def _link_hidden(self, named: Named) -> int | SetAside:
        """Make the hidden link of a segment; the number of its records, or why there is none."""
        rows = named.file.rows if named.file else None
        hidden = self.directory / f".{_name(named.path)}"
        remove(hidden)
        try:
            _link(self._log / named.path, hidden)
            found = problem_of(hidden, named.file)
            if found is None and named.file is None:
                found = unreadable(hidden)
        except FileNotFoundError:
            return SetAside(named.path, MISSING, self._absence_reason(named.path), rows)
        except Unsuitable as error:
            found = Problem("foreign", str(error.strerror))
        except OSError as error:
            if error.errno not in _UNREADABLE:
                raise
            found = Problem("unreadable", f"cannot be read: {error.strerror}")
        if found:
            remove(hidden)
            return SetAside(named.path, *found, rows)
        return int(pq.read_metadata(hidden).num_rows)

    def _settle(self, good: dict[str, int], aside: Sequence[SetAside]) -> None:
        if aside:
            self._journal.set_aside(aside)
            for each in aside:
                self._pending.pop(each.path, None)
        if good:
            sync(self.directory)
            self._journal.admit(good)
            for name in good:
                self._pending.pop(f"ready/{name}", None)
            self._hidden += good
            self._show()

    def _show(self) -> None:
        """Make the admitted segments visible to Spark."""
        while self._hidden:
            name = self._hidden[-1]
            (self.directory / f".{name}").rename(self.directory / name)
            self._hidden.pop()

    def _is_settled(self, path: str) -> bool:
        name = _name(path)
        why = self._journal.state.aside.get(name)
        # Files set aside before the manifest listed them are checked again.
        return name in self._journal.state.settled and (why is None or why.rows is not None)

    def _absence_reason(self, path: str) -> str:
        state = self._follower.state
        if path in state.superseded:
            return "removed after compaction, before the stream had read it; its records are in log/"
        if path in state.retired:
            return "removed for age or size, before the stream had read it"
        return "gone, before the stream had read it"

    # --- what is there ---------------------------------------------------------------------------

    def _recover(self) -> None:
        """Finish what a crash left unfinished."""
        waiting = self._journal.state.waiting
        there = set(self._names())
        lost = []
        for name in list(waiting):
            if name in there:
                continue
            if (self.directory / f".{name}").exists():
                self._hidden.append(name)
            else:
                lost.append(SetAside(f"ready/{name}", MISSING, "its link in admitted/ was removed", waiting[name]))
        if lost:
            self._journal.set_aside(lost)
        self._show()
        for path in self.directory.glob(".*"):
            remove(path)

    def _names(self) -> Iterator[str]:
        return (path.name for path in self.directory.glob("[!.]*.parquet"))

    def _segments(self) -> Iterator[Path]:
        return (self._log / "ready").glob("[!.]*.parquet")

    def _strays(self) -> Iterator[SetAside]:
        """Yield unlisted files; scanned periodically."""
        now = self._clock()
        if now < self._strays_due:
            return
        self._strays_due = now + _PATIENCE
        state = self._follower.state
        for path in self._segments():
            name = f"ready/{path.name}"
            if name in state.live or name in state.superseded or name in state.retired or name in self._pending:
                continue
            try:
                is_new = now - path.stat().st_mtime < _PATIENCE
                if is_new or path.name in self._journal.state.settled:
                    continue
                found = problem_of(path, None)
            except FileNotFoundError:
                continue  # the shipper has moved it since it was listed
            text = "not in the manifest" + (f": {found.text}" if found else "")
            yield SetAside(name, "foreign" if found else UNLISTED, text, None)


def _name(path: str) -> str:
    return path.rpartition("/")[2]


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError as error:
        if error.errno not in _CANNOT_LINK:
            raise
        with open_regular(source) as file, target.open("wb") as copy:
            shutil.copyfileobj(file, copy)
        sync(target)
