"""The disk under a benchmark: how long a sync takes, and how often the device is made to do one."""

from __future__ import annotations

import os
from pathlib import Path
from statistics import median, quantiles
from time import perf_counter

__all__ = ["device_flushes", "sync_sample", "written_bytes"]

#: Bytes that are written and synced at a time, over others.
_BLOCK, _BLOCKS = 4096, 1024
#: Field of a device's `stat`.
_FLUSHES = 15


def sync_sample(directory: Path, seconds: float) -> dict[str, float]:
    """Write 4 KiB and sync them, for so many seconds: the rate, and how long each took."""
    path = directory / "syncs"
    file = os.open(path, os.O_WRONLY | os.O_CREAT)
    times: list[float] = []
    try:
        os.pwrite(file, bytes(_BLOCK * _BLOCKS), 0)
        os.fsync(file)
        began = perf_counter()
        while perf_counter() - began < seconds or len(times) < 20:
            before = perf_counter()
            os.pwrite(file, bytes(_BLOCK), len(times) % _BLOCKS * _BLOCK)
            os.fdatasync(file)
            times.append(perf_counter() - before)
        total = perf_counter() - began
    finally:
        os.close(file)
        path.unlink()
    return {
        "per_second": len(times) / total,
        "p50_us": median(times) * 1e6,
        "p99_us": quantiles(times, n=100)[98] * 1e6,
    }


def device_flushes(directory: Path) -> int | None:
    """The flushes of the device of ``directory`` so far, whoever asked for them; None where it does not count them."""
    number = directory.stat().st_dev
    device = Path(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}").resolve()
    if (device / "partition").exists():
        device = device.parent  # the whole device has the flushes
    try:
        return int((device / "stat").read_text().split()[_FLUSHES])
    except (OSError, IndexError):
        return None


def written_bytes(pid: int) -> int | None:
    """The bytes that a process has had written to disks so far; None where that is not for us to know."""
    try:
        lines = Path(f"/proc/{pid}/io").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) for line in lines if line.startswith("write_bytes:")), None)
