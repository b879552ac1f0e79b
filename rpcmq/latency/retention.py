"""Retention: remove records beyond the limits of age and size, the oldest first, and count them."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from pathlib import Path
from typing import NamedTuple

from rpcmq.latency.files import remove, size_of
from rpcmq.latency.manifest import Manifest

__all__ = ["Limits", "retire", "sweep"]

#: A file in quarantine that takes more than this share of the log's size is the first to go.
_LARGE = 0.1


class Limits(NamedTuple):
    """Limits of a log's age and size.

    Attributes:
        age: seconds since they were shipped, after which records go.
        bytes: of all files that the shipper made; the spool is not its own.
        ready: seconds that a segment stays in ``ready/`` when its records are in ``log/``.
    """

    age: float = inf
    bytes: float = inf
    ready: float = 86400.0


def retire(directory: Path, manifest: Manifest, limits: Limits, now: float) -> dict[str, int]:
    """Remove what is beyond ``limits`` at ``now`` (seconds since 1970).

    What nobody misses goes first: segments whose records are in ``log/``. Then, of what is in quarantine, that which
    alone takes more than a tenth of the log's size: it must not cost records. Then files by age, records and quarantine
    alike.

    Returns:
        Files of records that went, by why: ``age``, ``size``.

    Raises:
        OSError: the manifest could not be written.
    """
    sweep(directory, manifest, now - limits.ready)
    state = manifest.state
    held = [_Held(file.at, file.path, file.bytes) for file in state.live.values()]
    spoilt = [_spoilt_file(path) for path in _spoilt(directory)]
    held += [each for each in spoilt if each.bytes <= limits.bytes * _LARGE]
    large = [each for each in spoilt if each.bytes > limits.bytes * _LARGE]
    spare = {path: size_of(directory / path) for path in sorted(state.superseded, key=state.superseded.__getitem__)}
    excess = sum(each.bytes for each in [*held, *large]) + sum(spare.values()) - limits.bytes
    for path, size in spare.items():
        if excess > 0:
            _drop(directory, manifest, path)
            excess -= size
    gone: dict[str, list[str]] = {"age": [], "size": []}
    for each in large:
        if excess > 0:
            gone["size"].append(each.path)
            excess -= each.bytes
        else:
            held.append(each)
    held.sort()
    for each in held:
        if each.at < now - limits.age:
            gone["age"].append(each.path)
        elif excess > 0:
            gone["size"].append(each.path)
        else:
            break
        excess -= each.bytes
    for why, paths in gone.items():
        _retire(directory, manifest, paths, why, now)
    return {why: len(paths) for why, paths in gone.items()}


def sweep(directory: Path, manifest: Manifest, before: float) -> None:
    """Remove the files of what was retired, and the segments superseded ``before`` (seconds since 1970).

    Files of ``log/`` that were superseded go at once: whoever reads that directory by name is not to read them, too.
    """
    state = manifest.state
    old = [path for path, at in state.superseded.items() if at < before or path.startswith("log/")]
    for path in [*state.retired, *old]:
        _drop(directory, manifest, path)


class _Held(NamedTuple):
    at: float
    path: str
    bytes: int


def _spoilt(directory: Path) -> Iterator[Path]:
    # Leave foreign directories in the spool to their owner.
    found = (directory / "quarantine").glob("[!.]*")
    return (path for path in found if path.is_symlink() or not path.is_dir())


def _spoilt_file(path: Path) -> _Held:
    status = path.lstat()
    # What it takes of the disk: a file may say that it is larger than that is.
    return _Held(status.st_mtime, f"quarantine/{path.name}", status.st_blocks * 512)


def _retire(directory: Path, manifest: Manifest, paths: list[str], why: str, now: float) -> None:
    records = [path for path in paths if path in manifest.state.live]
    if records:
        # Record the removal first: readers must not look for files that are gone for good.
        manifest.append("retire", paths=records, why=why, at=now)
    for path in paths:
        _drop(directory, manifest, path)


def _drop(directory: Path, manifest: Manifest, path: str) -> None:
    file = directory / path
    remove(file)
    # What is gone needs no memory; if the journal is read again, it is looked for in vain once more.
    manifest.state.retired.discard(path)
    manifest.state.superseded.pop(path, None)
    if path.startswith("log/"):
        _remove_empty(file.parent, directory / "log")


def _remove_empty(path: Path, top: Path) -> None:
    try:
        while path != top:
            path.rmdir()
            path = path.parent
    except OSError:
        # Not empty, or gone.
        return
