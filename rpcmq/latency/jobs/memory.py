"""Memory for an engine on this machine."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

__all__ = ["engine_memory"]

_MIB = 1 << 20


def engine_memory() -> int:
    """MiB: a quarter of what there is, from 1,024 to 4,096."""
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    # A container's share, where it has one.
    with suppress(OSError, ValueError):
        total = min(total, int(Path("/sys/fs/cgroup/memory.max").read_text()))
    return max(1024, min(4096, total // 4 // _MIB))
