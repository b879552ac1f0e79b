"""The state of a dispatch log, the sum of its manifest: its files, and the account of each life of a router."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from math import ceil
from typing import Any

from rpcmq.latency.change_log import JournalState

__all__ = ["File", "RouterLife", "Source", "State"]

#: Fields of a ``State`` about records that are in no file any more.
_GONE = (
    "rows_quarantined", "rows_damaged", "rows_retired", "files_quarantined", "files_damaged", "files_retired",
    "bytes_quarantined", "bytes_damaged", "bytes_retired", "bytes_torn",
)  # fmt: skip
#: Longest interval between a router's writes (seconds).
_WRITTEN_WITHIN = 0.25


@dataclass(frozen=True, slots=True)
class File:
    """A file of records.

    Attributes:
        path: below the log's directory.
        rows: records in it.
        bytes: its size.
        crc32: of its bytes.
        first_us, last_us: least and greatest receive time in it, microseconds since 1970.
        at: when its newest records were shipped, seconds since 1970.
    """

    path: str
    rows: int
    bytes: int
    crc32: int
    first_us: int
    last_us: int
    at: float


@dataclass(frozen=True, slots=True)
class Source:
    """The spool file that a segment was made of, or that was set aside.

    Attributes:
        name: ``<router>-<boot>-<segno>``; of a file without a head that can be read, its own.
        crc32: of its bytes.
        router, router_id, boot, segno: whose it is, and its number in that life; segno 0: of no file, but what is to
            be said of calls that were in flight when the router died.
        first_seq, last_seq: least and greatest number of a record in it; 0: it has none.
        given: the last number that the router had given when it wrote it.
        dropped: records of that life that the router could not write, so far.
        torn_bytes: what a crash of the router left unfinished at its end.
        final: the router ended with it in good order.
        cut: it has no seal: its router died while it wrote it, or could not go on.
        last_us: when the router last wrote to it, microseconds since 1970; 0: not known.
        rate: messages a second when it was last written to; 0: not known.
    """

    name: str
    crc32: int
    router: str = ""
    router_id: int = 0
    boot: int = 0
    segno: int = 0
    first_seq: int = 0
    last_seq: int = 0
    given: int = 0
    dropped: int = 0
    torn_bytes: int = 0
    final: bool = False
    cut: bool = False
    last_us: int = 0
    rate: float = 0.0


@dataclass(slots=True)
class RouterLife:
    """The records of one life of one router.

    Attributes:
        router: its name.
        rows: records written to segments.
        given: the last number that it is known to have given; the first is 1.
        dropped: records that the router could not write.
        segments: spool files dealt with, those in quarantine too.
        last_segno: greatest number of one; the first is 1.
        final: it ended in good order.
        cut: its last file has no seal.
        last_us: when it last wrote, microseconds since 1970; 0: not known.
        rate: messages a second when it last wrote; 0: not known.
        unknown: what was in flight when it died has its records.
        counted_to: greatest number of a spool file that ``totals.json`` had counted when the journal was lost.
        in_flight: what is to be said of calls that had not ended when they were looked at, by their numbers.
    """

    router: str = ""
    rows: int = 0
    given: int = 0
    dropped: int = 0
    segments: int = 0
    last_segno: int = 0
    final: bool = False
    cut: bool = False
    last_us: int = 0
    rate: float = 0.0
    unknown: bool = False
    counted_to: int = 0
    in_flight: dict[int, dict[str, Any]] = field(default_factory=dict)

    @property
    def holes(self) -> int:
        """Numbers without a record: in flight, dropped, lost in a crash, or in quarantine."""
        return self.given - self.rows

    @property
    def missing_segments(self) -> int:
        """Spool files up to the last one that never came."""
        return self.last_segno - self.segments

    @property
    def unwritten(self) -> int:
        """Approximate number of records lost if it was killed: those since the last write."""
        return ceil(self.rate * _WRITTEN_WITHIN)

    def add(self, source: Source, rows: int) -> None:
        """Count a spool file, of which ``rows`` were written."""
        self.router = source.router
        self.rows += rows
        self.given = max(self.given, source.given, source.last_seq)
        self.dropped = max(self.dropped, source.dropped)
        self.final |= source.final
        if source.segno:
            if source.segno > self.last_segno:
                self.cut = source.cut
                # A file that was cut off at its beginning says nothing of the rate.
                self.rate = source.rate or self.rate
            self.last_us = max(self.last_us, source.last_us)
            self.segments += 1
            self.last_segno = max(self.last_segno, source.segno)
        else:
            self.unknown = True

    def has_counted(self, source: Source) -> bool:
        """Return whether a segment that no line of the journal names was counted before the journal was lost."""
        return source.segno <= self.counted_to if source.segno else self.unknown


@dataclass(slots=True)
class State(JournalState):
    """The state that the journal's lines add up to.

    Attributes:
        live: the files that hold each record once, by path.
        superseded: segments whose records are in ``log/``, with the time of that: kept for who reads ``ready/``; and
            files of ``log/`` that were folded into others, to be removed.
        retired: paths of files that are to go, or have gone.
        settled: spool files that are dealt with, by name: their crc32, and whether they are in quarantine.
        boots: what came from each (router_id, boot): routers may share a name, but not a number.
        rows_written, rows_quarantined, rows_damaged, rows_retired: records: put into segments; found in spool files
            that were set aside; in files that were set aside later; removed.
        files_quarantined, files_damaged, files_retired: files.
        bytes_quarantined, bytes_damaged, bytes_retired, bytes_torn: their sizes; what crashes left unfinished.
    """

    EVENTS = ("ship", "quarantine", "damage", "compact", "retire", "totals", "earlier")

    live: dict[str, File] = field(default_factory=dict)
    superseded: dict[str, float] = field(default_factory=dict)
    retired: set[str] = field(default_factory=set)
    settled: dict[str, tuple[int, bool]] = field(default_factory=dict)
    boots: dict[tuple[int, int], RouterLife] = field(default_factory=dict)
    rows_written: int = 0
    rows_quarantined: int = 0
    rows_damaged: int = 0
    rows_retired: int = 0
    files_quarantined: int = 0
    files_damaged: int = 0
    files_retired: int = 0
    bytes_quarantined: int = 0
    bytes_damaged: int = 0
    bytes_retired: int = 0
    bytes_torn: int = 0

    def unsealed(self) -> dict[tuple[int, int], RouterLife]:
        """Lives that ended without a seal: a later one of the same router began, or the last file was cut off."""
        latest: dict[int, int] = {}
        for router_id, boot in self.boots:
            latest[router_id] = max(latest.get(router_id, 0), boot)
        return {
            life: boot
            for life, boot in self.boots.items()
            if boot.router and not boot.final and (boot.cut or life[1] < latest[life[0]])
        }

    def boot(self, router_id: int, boot: int) -> RouterLife:
        """Return the records of that life of that router."""
        return self.boots.setdefault((router_id, boot), RouterLife())

    def _ship(
        self,
        source: dict[str, Any],
        file: dict[str, Any] | None = None,
        in_flight: Sequence[dict[str, Any]] = (),
        ended: Sequence[int] = (),
        again: bool = False,
    ) -> None:
        origin, made = Source(**source), None if file is None else File(**file)
        boot = self.boot(origin.router_id, origin.boot)
        if not again:
            boot.add(origin, made.rows if made else 0)
        boot.in_flight.update((row["seq"], row) for row in in_flight)
        for seq in ended:
            del boot.in_flight[seq]
        self.bytes_torn += origin.torn_bytes
        self.settled[origin.name] = (origin.crc32, False)
        if made:
            self.live[made.path] = made
            self.rows_written += made.rows

    def _quarantine(self, source: dict[str, Any], reason: str, rows: int, bytes: int, at: float) -> None:
        origin = Source(**source)
        if origin.segno:
            self.boot(origin.router_id, origin.boot).add(origin, 0)
        self.settled[origin.name] = (origin.crc32, True)
        self.files_quarantined += 1
        self.rows_quarantined += rows
        self.bytes_quarantined += bytes

    def _damage(self, path: str, reason: str, at: float) -> None:
        file = self.live.pop(path)
        self.files_damaged += 1
        self.rows_damaged += file.rows
        self.bytes_damaged += file.bytes

    def _compact(self, files: list[dict[str, Any]], inputs: list[str], at: float) -> None:
        for path in inputs:
            self.rows_written -= self.live.pop(path).rows
            self.superseded[path] = at
        for file in files:
            # The same number, unless a file was found that no line had named.
            self.rows_written += file["rows"]
            self.live[file["path"]] = File(**file)

    def _retire(self, paths: list[str], why: str, at: float) -> None:
        for path in paths:
            file = self.live.pop(path)
            self.retired.add(path)
            self.files_retired += 1
            self.rows_retired += file.rows
            self.bytes_retired += file.bytes

    def _totals(self, state: dict[str, Any]) -> None:
        self.live = {each["path"]: File(**each) for each in state.pop("live")}
        self.retired = set(state.pop("retired"))
        self.settled = {name: (crc32, aside) for name, crc32, aside in state.pop("settled")}
        for router_id, number, boot in state.pop("boots"):
            rows = {row["seq"]: row for row in boot.pop("in_flight")}
            self.boots[router_id, number] = RouterLife(**boot, in_flight=rows)
        del state["lines"]
        for name, value in state.items():
            setattr(self, name, value)

    def _earlier(self, state: dict[str, Any]) -> None:
        for router_id, number, values in state.pop("boots"):
            boot = self.boots[router_id, number] = RouterLife(**values)
            boot.counted_to = boot.last_segno
        for name in _GONE:
            setattr(self, name, state[name])
        self.rows_written = self.rows_retired + self.rows_damaged

    def earlier(self) -> dict[str, Any]:
        """Return the totals that cannot be recomputed from the files."""
        boots = [[*key, asdict(boot) | {"in_flight": {}}] for key, boot in self.boots.items()]
        return {name: getattr(self, name) for name in _GONE} | {"boots": boots}

    def totals(self) -> dict[str, Any]:
        """All of it, as a line can carry it."""
        return asdict(self) | {
            "live": [asdict(file) for file in self.live.values()],
            "retired": sorted(self.retired),
            "settled": [[name, *values] for name, values in self.settled.items()],
            "boots": [
                [*key, asdict(boot) | {"in_flight": list(boot.in_flight.values())}] for key, boot in self.boots.items()
            ],
        }
