"""Resources that a process uses, from ``/proc``."""

from __future__ import annotations

import os
import resource

__all__ = ["cpu_seconds", "rss_bytes"]


def rss_bytes(pid: int) -> int:
    """Memory of a process that is resident."""
    with open(f"/proc/{pid}/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


def cpu_seconds(pid: int) -> float:
    """Processor time that a process has used."""
    with open(f"/proc/{pid}/stat") as file:
        # The name of the program, which may contain anything, ends with the last bracket.
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
