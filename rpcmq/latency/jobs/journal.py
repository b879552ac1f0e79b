"""A stream's journal, ``OUT/journal.jsonl``: the only authority on which cells count.

An append-only journal, one JSON object a line:

admit   segments were checked and are in ``admitted/`` for the stream to read
aside   a segment was not admitted, or was withdrawn, and why; its records are not in the cells
batch   the records of some admitted segments are in a directory of cells, which counts from now on
fold    directories of cells were merged into others: those count from now on, these no longer
sweep   what had been merged was removed
log     what only the shipper's manifest knows of the log
totals  the first line after the journal was rewritten: what the lines that are gone added up to

One line is one change, whole or not at all, and is on the disk before anything that relies on it is done. So whoever
reads the directories that ``read`` names, and no others, has each record once, at any moment and after any crash.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from threading import Lock
from typing import Any

from rpcmq.errors import RpcError
from rpcmq.latency.analysis.account import Account, Life, SetAside
from rpcmq.latency.change_log import ChangeLog, JournalState, replayed

__all__ = ["Dataset", "Journal", "JournalDamaged", "State", "StreamInUse", "read"]

NAME = "journal.jsonl"
LOCK = ".stream.lock"
#: Lines that say nothing any more, above which the journal is rewritten.
_STALE_LINES = 2_000


class StreamInUse(RpcError):
    """Another stream writes to this directory."""


class JournalDamaged(RpcError):
    """A line before the last one is not a change known to this version."""


#: Fields of an account that come from the manifest.
_HEARD = ("holes", "dropped", "missing_segments", "open", "unsealed")


@dataclass(frozen=True, slots=True)
class Dataset:
    """A directory of cells.

    Attributes:
        path: below the stream's directory.
        hours: the hours (seconds since 1970) in which its windows begin.
        records: what its cells count.
        at: when it was written, seconds since 1970.
        is_batch: whether it is what a batch wrote; otherwise it is of one hour, and merged.
    """

    path: str
    hours: tuple[int, ...]
    records: int
    at: float
    is_batch: bool


@dataclass(slots=True)
class State(JournalState):
    """The state that the journal's lines add up to.

    Attributes:
        live: the directories that have each record once, by path.
        superseded: directories whose cells are in others, with the time of that: kept for who reads them still.
        waiting: admitted segments that no batch has had, and their records, by name.
        settled: names of all segments that were admitted or set aside, as long as anybody knows them.
        aside: segments that were set aside, by name.
        batches: the last batch of each run that counts.
        segments, records: what batches had.
        holes, dropped, missing_segments, open, unsealed: of the log, as last heard; see ``Account``.
    """

    EVENTS = ("admit", "aside", "batch", "fold", "sweep", "log", "totals")

    live: dict[str, Dataset] = field(default_factory=dict)
    superseded: dict[str, float] = field(default_factory=dict)
    waiting: dict[str, int] = field(default_factory=dict)
    settled: set[str] = field(default_factory=set)
    aside: dict[str, SetAside] = field(default_factory=dict)
    batches: dict[str, int] = field(default_factory=dict)
    segments: int = 0
    records: int = 0
    holes: int = 0
    dropped: int = 0
    missing_segments: int = 0
    open: int = 0
    unsealed: list[Life] = field(default_factory=list)

    def has(self, run: str, batch: int) -> bool:
        """Return whether that batch counts already."""
        return batch <= self.batches.get(run, -1)

    def account(self) -> Account:
        """Of the segments that the stream has settled; what waits is in neither of its sums."""
        aside = list(self.aside.values())
        shipped = self.records + sum(each.rows or 0 for each in aside)
        account = Account(self.segments, shipped, self.records, self.records, aside)
        for name in _HEARD:
            setattr(account, name, getattr(self, name))
        return account

    def _admit(self, segments: dict[str, int], at: float) -> None:
        self.waiting.update(segments)
        self.settled.update(segments)
        for name in segments:
            self.aside.pop(name, None)

    def _aside(self, segments: dict[str, dict[str, Any]], at: float) -> None:
        for name, why in segments.items():
            self.waiting.pop(name, None)
            self.settled.add(name)
            self.aside[name] = SetAside(**why)

    def _batch(
        self, run: str, batch: int, segments: list[str], records: int, cells: dict[str, Any] | None, at: float
    ) -> None:
        for name in segments:
            del self.waiting[name]
        self.segments += len(segments)
        self.records += records
        self.batches[run] = batch
        if cells:
            self._add(cells)

    def _fold(self, inputs: list[str], outputs: list[dict[str, Any]], at: float) -> None:
        for path in inputs:
            del self.live[path]
            self.superseded[path] = at
        for each in outputs:
            self._add(each)

    def _sweep(self, paths: list[str]) -> None:
        for path in paths:
            del self.superseded[path]

    def _log(
        self, holes: int, dropped: int, missing_segments: int, open: int, unsealed: Sequence[dict[str, Any]]
    ) -> None:
        self.holes, self.dropped, self.missing_segments, self.open = holes, dropped, missing_segments, open
        self.unsealed = [Life(**each) for each in unsealed]

    def _add(self, cells: dict[str, Any]) -> None:
        self.live[cells["path"]] = Dataset(**cells | {"hours": tuple(cells["hours"])})

    def _totals(self, state: dict[str, Any]) -> None:
        for each in state.pop("live"):
            self._add(each)
        self.aside = {name: SetAside(**why) for name, why in state.pop("aside").items()}
        self.unsealed = [Life(**each) for each in state.pop("unsealed")]
        self.settled = set(state.pop("settled"))
        del state["lines"]
        for name, value in state.items():
            setattr(self, name, value)

    def totals(self) -> dict[str, Any]:
        """All of it, as a line can carry it."""
        return asdict(self) | {
            "live": [asdict(each) for each in self.live.values()],
            "settled": sorted(self.settled),
        }


def read(out: Path) -> State:
    """The state of the stream that writes to ``out``: which cells count, and what became of the segments.

    Raises:
        JournalDamaged: the journal is not one.
    """
    return replayed(out / NAME, State(), JournalDamaged)


class Journal:
    """The journal, open for writing by the one stream that writes to ``out``.

    Args:
        out: the stream's directory; it is made.
        clock: seconds since 1970.

    Raises:
        StreamInUse: another process has it open.
        JournalDamaged: see ``read``.
        OSError: it cannot be opened.
    """

    def __init__(self, out: Path, clock: Callable[[], float]) -> None:
        self._clock = clock
        # Spark calls from a thread of its own when a batch is to be written.
        self._turn = Lock()
        out.mkdir(parents=True, exist_ok=True)
        in_use = StreamInUse(f"{out}: another stream writes there")
        self._lines = ChangeLog(out / NAME, out / LOCK, State(), JournalDamaged, in_use)

    @property
    def state(self) -> State:
        """The state that its lines add up to."""
        return self._lines.state

    def admit(self, segments: dict[str, int]) -> None:
        """Segments, with the number of their records, are in ``admitted/``."""
        self._append("admit", segments=segments, at=self._clock())

    def set_aside(self, segments: Iterable[SetAside]) -> None:
        """Segments will not be read."""
        self._append("aside", segments={Path(each.path).name: asdict(each) for each in segments}, at=self._clock())

    def add_batch(self, run: str, batch: int, segments: Collection[str], cells: Dataset) -> None:
        """The records of ``segments`` are in ``cells``."""
        kept = asdict(cells) if cells.records else None
        self._append(
            "batch",
            run=run,
            batch=batch,
            segments=sorted(segments),
            records=cells.records,
            cells=kept,
            at=self._clock(),
        )

    def fold(self, inputs: Collection[str], outputs: Iterable[Dataset]) -> None:
        """Record that the contents of ``inputs`` are now in ``outputs``."""
        self._append("fold", inputs=list(inputs), outputs=[asdict(each) for each in outputs], at=self._clock())

    def sweep(self, paths: Collection[str]) -> None:
        """Superseded directories were removed."""
        self._append("sweep", paths=list(paths))

    def hear(self, account: Account) -> None:
        """Record the manifest's statements about routers, if they are new."""
        heard = asdict(account)
        if any(getattr(account, name) != getattr(self.state, name) for name in _HEARD):
            self._append("log", **{name: heard[name] for name in _HEARD})

    def tidy(self, known: Callable[[], Collection[str]]) -> None:
        """Compact the journal if most of its lines are obsolete.

        Args:
            known: names of the segments that may be offered again; the others need no memory.

        Raises:
            OSError: the journal is as it was.
        """
        with self._turn:
            state = self.state
            if state.lines < _STALE_LINES + 2 * len(state.live):
                return
            names = state.settled & {*known(), *state.waiting, *state.aside}
            self._lines.rewrite(replace(state, settled=names))

    def _append(self, event: str, **change: Any) -> None:
        """Make a change, for good once this returns.

        Raises:
            OSError: it was not made.
        """
        with self._turn:
            self._lines.append(event, **change)

    def close(self) -> None:
        """Let another process have it."""
        self._lines.close()
