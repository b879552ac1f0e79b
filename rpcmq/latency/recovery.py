"""Files of records that the manifest does not name: what a crash left, or all there is when the manifest is lost."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from dataclasses import asdict
from pathlib import Path

from rpcmq.latency import segment
from rpcmq.latency.compact import inputs_of
from rpcmq.latency.files import move, remove
from rpcmq.latency.manifest import File, Manifest, Source

__all__ = ["recover"]


def recover(directory: Path, manifest: Manifest, spooled: Collection[str], now: float) -> list[str]:
    """Remove or take in the Parquet files that the manifest does not name.

    * A segment whose spool file is still there will be made again, the same, in its place.
    * What was made of segments, or files of ``log/``, that are all there is removed: it will be made again.
    * All else is the only place of its records and is taken in; what cannot be read goes into quarantine.

    Args:
        spooled: names of the spool files that are there.
        now: seconds since 1970.

    Returns:
        Paths of the files that were taken in or set aside.

    Raises:
        OSError: not all of it could be done.
    """
    taken = []
    for inputs, paths in _compactions(directory, manifest).items():
        if all(_is_there(directory, manifest, each, spooled) for each in inputs):
            for path in paths:
                remove(directory / path)
            continue
        # One that was folded into another may have been removed meanwhile.
        paths = [path for path in paths if (directory / path).exists()]
        files = list(filter(None, (_entry(directory, path, now) for path in paths)))
        if not files:
            continue
        known = [each for each in inputs if each in manifest.state.live]
        manifest.append("compact", files=[asdict(file) for file in files], inputs=known, at=now)
        for each in inputs:
            if each not in manifest.state.superseded:
                remove(directory / each)
        taken += paths
    for path in _strays(directory, manifest, "ready/*.parquet"):
        if Path(path).stem not in spooled and _take_in(directory, manifest, path, now):
            taken.append(path)
    return taken


def _strays(directory: Path, manifest: Manifest, pattern: str) -> Iterator[str]:
    state = manifest.state
    for found in sorted(directory.glob(pattern)):
        path = found.relative_to(directory).as_posix()
        named = path in state.live or path in state.superseded or path in state.retired
        if not named and not found.name.startswith("."):
            yield path


def _compactions(directory: Path, manifest: Manifest) -> dict[tuple[str, ...], list[str]]:
    """Files of ``log/`` by what they were made of."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for path in _strays(directory, manifest, "log/v1/*/*/*.parquet"):
        try:
            groups.setdefault(tuple(inputs_of(directory / path)), []).append(path)
        except segment.Damaged:
            move(directory / path, directory / "quarantine")
    return groups


def _is_there(directory: Path, manifest: Manifest, path: str, spooled: Collection[str]) -> bool:
    if path in manifest.state.superseded:
        return False
    return (directory / path).exists() or Path(path).stem in spooled


def _entry(directory: Path, path: str, at: float) -> File | None:
    try:
        return segment.entry(directory, path, at)
    except segment.Damaged:
        move(directory / path, directory / "quarantine")
        return None


def _take_in(directory: Path, manifest: Manifest, path: str, at: float) -> bool:
    file = _entry(directory, path, at)
    if file is None:
        return True
    source = Source(**json.loads(segment.metadata_of(directory / path)[segment.SOURCE]))
    boot = manifest.state.boot(source.router_id, source.boot)
    if not source.segno and boot.in_flight:
        # What is to be said of calls in flight is still to be said.
        remove(directory / path)
        return False
    manifest.append("ship", source=asdict(source), file=asdict(file), again=boot.has_counted(source))
    return True
