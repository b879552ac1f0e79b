"""The cost of an item: CPU time of each process, syncs of the disk, and bytes that were written."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from time import perf_counter

from benchmarks.disk import device_flushes, written_bytes

__all__ = ["Cost", "Pids", "alone", "tree"]

_TICK = os.sysconf("SC_CLK_TCK")
#: The processes that do one part of the work, at present.
Pids = Callable[[], list[int]]


def alone(pid: int) -> Pids:
    """One process, without those that it has started."""
    return lambda: [pid]


def tree(pid: int) -> Pids:
    """A process with all that it has started."""
    return lambda: [pid, *_children(pid)]


def _children(pid: int) -> list[int]:
    found = []
    for file in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in map(int, file.read_text().split()):
            found += [child, *_children(child)]
    return found


class Cost:
    """Counts from now on.

    Args:
        parts: name of each part -> its processes.
        folder: on the disk whose syncs are counted, whoever asks for them.
    """

    def __init__(self, parts: Mapping[str, Pids], folder: Path) -> None:
        self._folder = folder
        self._processes = {name: pids() for name, pids in parts.items()}
        self._began = perf_counter()
        self._cpu = self._cpu_seconds()
        self._flushes = device_flushes(folder)
        self._written = self._written_bytes()

    def of(self, items: float) -> dict[str, float]:
        """Return what each of so many items has cost."""
        flushes, written = device_flushes(self._folder), self._written_bytes()
        costs = {f"{name}_cpu_us": (used - self._cpu[name]) / items * 1e6 for name, used in self._cpu_seconds().items()}
        if flushes is not None and self._flushes is not None and flushes > self._flushes:
            synced = flushes - self._flushes
            costs |= {"syncs_per_second": synced / (perf_counter() - self._began), "items_per_sync": items / synced}
        if written is not None and self._written is not None:
            costs["written_bytes"] = (written - self._written) / items
        return costs

    def _cpu_seconds(self) -> dict[str, float]:
        return {name: sum(map(_process_seconds, pids)) for name, pids in self._processes.items()}

    def _written_bytes(self) -> int | None:
        counts = [written_bytes(pid) for pids in self._processes.values() for pid in pids]
        return None if None in counts else sum(count or 0 for count in counts)


def _process_seconds(pid: int) -> float:
    """CPU time of a process so far, with that of threads that have ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / _TICK
