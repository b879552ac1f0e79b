"""Files of records that the manifest does not name: what a crash left, or all there is when the manifest is lost."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from rpcmq.latency import segment
from rpcmq.latency.compact import inputs_of
from rpcmq.latency.files import remove
from rpcmq.latency.log_state import File, Source
from rpcmq.latency.manifest import Manifest
from rpcmq.latency.sinks import RecoveryResult
from rpcmq.latency.spooled import QuarantineReason, Reason
from rpcmq.log_format import Problem

__all__ = ["recover"]


def recover(directory: Path, manifest: Manifest, spooled: Collection[str], now: float) -> RecoveryResult:
    """Remove or take in the Parquet files that the manifest does not name.

    * A segment whose spool file is still there will be made again, the same, in its place.
    * What was made of segments, or files of ``log/``, that are all there is removed: it will be made again.
    * What has records that another file has, whatever its name, is a copy, and no part of the log; nor is what cannot
      be read as records of the shipper.
    * All else is the only place of its records and is taken in.

    Args:
        spooled: names of the spool files that are there.
        now: seconds since 1970.

    Raises:
        OSError: not all of it could be done.
    """
    return _Recovery(directory, manifest, spooled, now).run()


@dataclass
class _Recovery:
    directory: Path
    manifest: Manifest
    spooled: Collection[str]
    now: float
    found: RecoveryResult = field(default_factory=RecoveryResult)

    def run(self) -> RecoveryResult:
        for inputs, paths in self._compactions().items():
            self._settle_compaction(inputs, paths)
        strays = [path for path in self._strays("ready/*.parquet") if Path(path).stem not in self.spooled]
        sources = {path: source for path in strays if (source := self._source(path)) is not None}
        # Of a segment and its copy the one with its own name stays.
        for path in sorted(sources, key=lambda path: (sources[path].name != Path(path).stem, path)):
            self._settle_segment(path, sources[path])
        return self.found

    def _strays(self, pattern: str) -> Iterator[str]:
        state = self.manifest.state
        for found in sorted(self.directory.glob(pattern)):
            path = found.relative_to(self.directory).as_posix()
            named = path in state.live or path in state.superseded or path in state.retired
            if not named and not found.name.startswith("."):
                yield path

    # --- files of log/ ---------------------------------------------------------------------------

    def _compactions(self) -> dict[tuple[str, ...], list[str]]:
        """Files of ``log/`` by what they were made of."""
        groups: dict[tuple[str, ...], list[str]] = {}
        for path in self._strays("log/v1/*/*/*.parquet"):
            try:
                groups.setdefault(tuple(inputs_of(self.directory / path)), []).append(path)
            except segment.Damaged as error:
                self.found.aside[path] = QuarantineReason(Problem.FOREIGN, str(error))
        return groups

    def _settle_compaction(self, inputs: tuple[str, ...], paths: list[str]) -> None:
        if all(self._is_there(each) for each in inputs):
            for path in paths:
                remove(self.directory / path)
            return
        state = self.manifest.state
        known = [each for each in inputs if each in state.live]
        files: list[File] = []
        for path in paths:
            # One that was folded into another may have been removed meanwhile.
            file = self._entry(path) if (self.directory / path).exists() else None
            if file and self._is_new(file, [*(f for p, f in state.live.items() if p not in known), *files]):
                files.append(file)
        if not files:
            return
        self.manifest.append("compact", files=[asdict(file) for file in files], inputs=known, at=self.now)
        for each in inputs:
            if each not in state.superseded:
                remove(self.directory / each)
        self.found.taken += [file.path for file in files]

    def _is_there(self, path: str) -> bool:
        if path in self.manifest.state.superseded:
            return False
        return (self.directory / path).exists() or Path(path).stem in self.spooled

    # --- segments --------------------------------------------------------------------------------

    def _source(self, path: str) -> Source | None:
        """Return the source of the segment ``path``; None if it is no segment."""
        try:
            return _checked(Source(**json.loads(segment.metadata_of(self.directory / path)[segment.SOURCE])))
        except segment.Damaged as error:
            self.found.aside[path] = QuarantineReason(Problem.FOREIGN, f"no Parquet: {error}")
        except KeyError:
            self.found.aside[path] = QuarantineReason(
                Problem.FOREIGN, "Parquet that does not say which spool file it is of"
            )
        except (ValueError, TypeError) as error:
            self.found.aside[path] = QuarantineReason(
                Problem.FOREIGN, f"what it says of its spool file is wrong: {error}"
            )
        return None

    def _settle_segment(self, path: str, source: Source) -> None:
        file = self._entry(path)
        if file is None:
            return
        boot = self.manifest.state.boots.get((source.router_id, source.boot))
        if not source.segno and boot and boot.in_flight and source.name == Path(path).stem:
            # Calls in flight still have to be recorded.
            remove(self.directory / path)
        elif self._is_new(file, self.manifest.state.live.values()):
            again = bool(boot and boot.has_counted(source))
            self.manifest.append("ship", source=asdict(source), file=asdict(file), again=again)
            self.found.taken.append(path)

    # --- both ------------------------------------------------------------------------------------

    def _entry(self, path: str) -> File | None:
        try:
            return segment.entry(self.directory, path, self.now)
        except segment.Damaged as error:
            self.found.aside[path] = QuarantineReason(Reason.DAMAGED, str(error))
            return None

    def _is_new(self, file: File, others: Collection[File]) -> bool:
        """Return whether no other file has a record of this one, which is a copy otherwise."""
        mine: pa.Table | None = None
        for other in others:
            # A record's time is the same wherever it is.
            if file.rows and other.path.endswith(".parquet") and _overlap(file, other):
                mine = mine if mine is not None else segment.identities(self.directory, file.path)
                try:
                    twice = _shared(mine, segment.identities(self.directory, other.path))
                except (segment.Damaged, FileNotFoundError):
                    continue  # whoever reads it next sets it aside
                if twice:
                    text = f"has {twice} records that are in {other.path}"
                    self.found.aside[file.path] = QuarantineReason(Reason.DUPLICATE, text)
                    return False
        return True


def _checked(source: Source) -> Source:
    for name, sample in asdict(Source("", 0)).items():
        value = getattr(source, name)
        if type(value) is not type(sample):
            raise ValueError(f"{name} = {value!r}")
    return source


def _overlap(one: File, other: File) -> bool:
    return one.first_us <= other.last_us and other.first_us <= one.last_us


def _shared(mine: pa.Table, others: pa.Table) -> int:
    """Return how many of the records of ``mine`` are also in ``others``."""
    others = others.filter(pc.is_in(others["seq"], mine["seq"].combine_chunks()))
    return int(mine.join(others, mine.column_names, join_type="left semi").num_rows) if others.num_rows else 0
