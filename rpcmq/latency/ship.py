"""The shipper: sealed files of the router's spool become segments, each record in one and in one only.

A spool file goes these steps, and after a kill the next start goes on where it was:

1. The segment is written, synced, read back and renamed into ``ready/``. Done again, it is the same file.
2. One line in the manifest: now the segment counts, and its spool file is settled.
3. The spool file is removed.

A file that cannot be trusted to its last byte goes into ``quarantine/`` as a whole, with the reason beside it. Not so
the one that a router was writing when it died: there all is good up to where it was cut off.

A call that was in flight when its router died gets its record here, ``unknown``: as soon as that life of the router is
known to be over, because it said so or because there is a later one.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from time import time
from typing import Any

from rpcmq.latency.change_log import LogEvent, silent
from rpcmq.latency.files import move, remove, size_of, write_whole
from rpcmq.latency.harvest import Harvest, harvest, readable_rows
from rpcmq.latency.log_state import Source, State
from rpcmq.latency.manifest import NAME as MANIFEST
from rpcmq.latency.manifest import Manifest, ManifestDamaged
from rpcmq.latency.retention import Limits, retire
from rpcmq.latency.sinks import Sink
from rpcmq.latency.spooled import QuarantineReason, Reason, SpoolFile, quarantine_reason, spooled_files
from rpcmq.log_format import LOG_MODE, PART, Problem, SpoolError

__all__ = ["Shipper", "account"]

NO_LIMITS = Limits()


def account(state: State) -> dict[str, Any]:
    """Return the disposition of all records seen by the shipper of a log, as JSON data."""
    boots = [
        {
            "router": each.router,
            "router_id": router_id,
            "boot": boot,
            "records": each.rows,
            "given": each.given,
            "holes": each.holes,
            "dropped": each.dropped,
            "in_flight": len(each.in_flight),
            "missing_segments": each.missing_segments,
            "final": each.final,
        }
        for (router_id, boot), each in state.boots.items()
    ]
    return {
        "records": {
            "read": state.rows_written + state.rows_quarantined,
            "written": state.rows_written,
            "quarantined": state.rows_quarantined,
            "damaged": state.rows_damaged,
            "retired": state.rows_retired,
            "live": sum(file.rows for file in state.live.values()),
        },
        "files": {
            "live": len(state.live),
            "quarantined": state.files_quarantined,
            "damaged": state.files_damaged,
            "retired": state.files_retired,
        },
        "bytes": {"live": sum(file.bytes for file in state.live.values()), "torn": state.bytes_torn},
        "boots": boots,
    }


class Shipper:
    """Ships the log in ``directory``, which no other process may do at the same time.

    Args:
        directory: the router's ``dispatch_log.directory``.
        sink: what segments are written as.
        limits: what the log may hold.
        note: told what is worth a line in a log: level, event, text, fields.
        clock: seconds since 1970.

    Raises:
        LogInUse: another process ships this log.
        OSError: the directory cannot be used.
    """

    def __init__(
        self,
        directory: Path,
        sink: Sink,
        limits: Limits = NO_LIMITS,
        note: LogEvent = silent,
        clock: Callable[[], float] = time,
    ) -> None:
        self._directory = directory
        self._sink = sink
        self._limits = limits
        self._note = note
        self._clock = clock
        self._recovered = False
        directory.mkdir(parents=True, exist_ok=True)
        self._manifest = self._open()

    @property
    def state(self) -> State:
        """The state of the log: the disposition of its records so far."""
        return self._manifest.state

    def close(self) -> None:
        """Let another process ship this log."""
        self._manifest.close()

    def run_once(self) -> int:
        """Ship complete files, compact finished hours, remove records beyond the limits.

        Returns:
            Records that were written to segments.

        Raises:
            OSError: the disk is full or broken. What was done is done; the next time goes on from there.
            Damaged: a segment does not read as it was written, and was not kept.
        """
        before = self.state.rows_written
        spooled = sorted(spooled_files(self._directory / "spool"), key=lambda each: each.order)
        if not self._recovered:
            self._recover(spooled)
        failed = self._settle_all(spooled)
        self._end_lives(spooled, set(failed))
        _, damaged = self._sink.compact(self._directory, self._manifest, self._clock())
        for path in damaged:
            self._set_aside(path)
        retired = retire(self._directory, self._manifest, self._limits, self._clock())
        if any(retired.values()):
            text = f"removed {retired['age']} files for their age, {retired['size']} for the size of the log"
            self._note(logging.INFO, "retired", text, retired)
        self._manifest.tidy({each.name for each in spooled})
        self._manifest.keep_totals()
        for error in failed.values():
            raise error
        return self.state.rows_written - before

    # --- the start ---------------------------------------------------------------------------

    def _open(self) -> Manifest:
        try:
            return Manifest(self._directory)
        except ManifestDamaged as error:
            # What the log has in it is known without: the files say it.
            aside = move(self._directory / MANIFEST, self._quarantine)
            aside.rename(aside.with_name(f"{int(self._clock() * 1000)}-{MANIFEST}"))
            self._note(logging.ERROR, "manifest", f"{error}; set aside, and made anew from the files", {})
            return Manifest(self._directory)

    def _recover(self, spooled: Sequence[SpoolFile]) -> None:
        for place in ("ready", "log", "quarantine"):
            for partial in (self._directory / place).rglob(".*"):
                if partial.is_symlink() or not partial.is_dir():
                    remove(partial)
        names = {each.name for each in spooled}
        found = self._sink.recover(self._directory, self._manifest, names, self._clock())
        for path in found.taken:
            text = f"{path}: not in the manifest, taken in from the file"
            self._note(logging.WARNING, "taken in", text, {"path": path})
        for path, trouble in found.aside.items():
            # The manifest has not counted it, and no record is missing because of it.
            size = size_of(self._directory / path)
            self._explain(Path(path).name, *trouble, {"path": path, "rows": 0, "bytes": size})
            move(self._directory / path, self._quarantine)
        self._recovered = True

    # --- the spool ---------------------------------------------------------------------------

    def _settle_all(self, spooled: Sequence[SpoolFile]) -> dict[tuple[int, int] | str, OSError]:
        """Ship or set aside complete files; return failures, which only delay the files of their own life."""
        failed: dict[tuple[int, int] | str, OSError] = {}
        for each in spooled:
            if not each.is_open and each.life not in failed:
                try:
                    self._settle(each)
                except OSError as error:
                    failed[each.life] = error
        return failed

    def _settle(self, spooled: SpoolFile) -> None:
        trouble = spooled.trouble
        try:
            data, crc32 = spooled.content()
        except FileNotFoundError:
            return  # somebody has removed it
        except OSError as error:
            data, crc32, trouble = b"", 0, quarantine_reason(error)
        source = Source(spooled.name, crc32)
        if spooled.head:
            head = spooled.head
            source = replace(
                source,
                router=head.router_name,
                router_id=head.router_id,
                boot=head.boot,
                segno=head.segment,
                dropped=head.dropped,
            )
        was = self.state.settled.get(source.name)
        if was == (source.crc32, False):
            remove(spooled.path)
        elif was == (source.crc32, True):
            move(spooled.path, self._quarantine)
        elif was is not None:
            other = replace(source, name=spooled.path.name, segno=0)
            self._refuse(
                spooled.path, data, other, QuarantineReason(Reason.DUPLICATE, f"another {source.name} was here before")
            )
        elif trouble is not None:
            self._refuse(spooled.path, data, source, trouble)
        else:
            self._ship(spooled.path, data, source)

    def _ship(self, path: Path, data: bytes, source: Source) -> None:
        try:
            found = harvest(data, cut_off=path.suffix == PART)
            content = self._sink.content(data, found)
            if len(set(content.seqs)) != len(content.seqs):
                raise SpoolError(Problem.CORRUPT, "two records with one number", 0)
        except SpoolError as error:
            self._refuse(path, data, source, QuarantineReason(error.problem, str(error)))
            return
        seqs = set(content.seqs)
        boot = self.state.boot(source.router_id, source.boot)
        source = _completed(source, found, seqs)
        in_flight = [row for row in content.in_flight if row["seq"] not in seqs]
        ended = [seq for seq in boot.in_flight if seq in seqs]
        file = self._write(source, content.records) if seqs else None
        self._manifest.append("ship", source=asdict(source), file=file, in_flight=in_flight, ended=ended)
        remove(path)
        if found.torn_bytes:
            text = f"{path.name}: the router died while it wrote; {found.torn_bytes} bytes at the end are no record"
            self._note(logging.WARNING, "torn", text, {"file": path.name, "bytes": found.torn_bytes})

    def _write(self, source: Source, records: Any) -> dict[str, Any]:
        path = f"ready/{source.name}{self._sink.suffix}"
        metadata = {b"rpcmq:source": json.dumps(asdict(source)).encode()}
        return asdict(self._sink.write(self._directory, path, records, metadata, self._clock()))

    def _end_lives(self, spooled: Sequence[SpoolFile], unsettled: Collection[object]) -> None:
        """Record ``unknown`` for calls in flight in lives of routers that are over."""
        open_lives = {each.order[:2] for each in spooled if each.is_open}
        latest: dict[int, int] = {}
        for router_id, number in [*self.state.boots, *open_lives]:
            latest[router_id] = max(latest.get(router_id, 0), number)
        for (router_id, number), boot in self.state.boots.items():
            over = boot.final or number < latest[router_id]
            life = (router_id, number)
            if not boot.in_flight or not over or life in open_lives or life in unsettled:
                continue
            rows = list(boot.in_flight.values())
            seqs = list(boot.in_flight)
            name = f"{router_id}-{number}-unknown"
            fields = {"router": boot.router, "boot": number, "records": len(rows)}
            if boot.final:
                # Each of its messages has ended. What has no record was dropped, or is in a file that was set aside.
                ended = Source(name, 0, boot.router, router_id, number)
                self._manifest.append("ship", source=asdict(ended), ended=seqs)
                text = f"{boot.router}: {len(rows)} long calls have no record: it was dropped, or its file set aside"
                self._note(logging.WARNING, "no record", text, fields)
                continue
            source = Source(name, 0, boot.router, router_id, number, first_seq=min(seqs), last_seq=max(seqs))
            file = self._write(source, self._sink.of_rows(rows))
            self._manifest.append("ship", source=asdict(source), file=file, ended=seqs)
            text = f"{boot.router}: {len(rows)} calls were in flight when it died: unknown"
            if boot.dropped:
                text += f" (or ended before: {boot.dropped} records of that life were dropped)"
            self._note(logging.WARNING, "unknown", text, fields)

    # --- quarantine --------------------------------------------------------------------------

    @property
    def _quarantine(self) -> Path:
        return self._directory / "quarantine"

    def _refuse(self, path: Path, data: bytes, source: Source, trouble: QuarantineReason) -> None:
        """Quarantine a spool file: write the reason, then the manifest's line, then move the file."""
        rows = readable_rows(data)
        size = size_of(path)
        self._explain(path.name, *trouble, {"rows": rows, "bytes": size, "crc32": source.crc32})
        at = self._clock()
        line = {"source": asdict(source), "reason": trouble.reason, "rows": rows, "bytes": size, "at": at}
        self._manifest.append("quarantine", **line)
        move(path, self._quarantine)

    def _set_aside(self, path: str) -> None:
        """Set a file of records aside."""
        file = self.state.live[path]
        name = Path(path).name
        self._explain(name, Reason.DAMAGED, f"{path} is not what was written", {"rows": file.rows, "bytes": file.bytes})
        self._manifest.append("damage", path=path, reason=Reason.DAMAGED, at=self._clock())
        if (self._directory / path).exists():
            move(self._directory / path, self._quarantine)

    def _explain(self, name: str, reason: str, text: str, fields: dict[str, Any]) -> None:
        why = {"file": name, "reason": reason, "text": text, "at": self._clock()} | fields
        write_whole(self._quarantine / f"{name}.json", json.dumps(why, indent=2).encode() + b"\n", LOG_MODE)
        self._note(logging.WARNING, "quarantine", f"{name}: {reason}: {text}", why)


def _completed(source: Source, found: Harvest, seqs: set[int]) -> Source:
    """Return ``source`` completed from the file's content."""
    seal, mark, head = found.seal, found.mark, found.head
    return replace(
        source,
        first_seq=min(seqs, default=0),
        last_seq=max(seqs, default=0),
        given=mark.last_seq if mark else 0,
        dropped=max(source.dropped, seal.dropped if seal else 0),
        torn_bytes=found.torn_bytes,
        final=bool(seal and seal.final),
        cut=seal is None,
        last_us=head.wall(mark.monotonic) if mark else 0,
        rate=round(found.rate, 1),
    )
