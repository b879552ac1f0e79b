"""Process-wide limits and tuning: open files, cores, memory, garbage collection."""

from __future__ import annotations

import gc
import os
import resource

from rpcmq.errors import ConfigError

__all__ = ["half_of_memory", "pin", "raise_open_files", "tune_gc"]

#: Memory limit of this process's control group (a container, a unit with MemoryMax=).
_CGROUP_LIMIT = "/sys/fs/cgroup/memory.max"


def raise_open_files() -> int:
    """Raise the limit of open files to the hard limit; each link is one.

    Nothing in this process uses select(2), which is why the soft limit is low by default.

    Returns:
        How many it is now.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == hard:
        return soft
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (OSError, ValueError):
        return soft
    return hard


def pin(cpu: int) -> frozenset[int]:
    """Let this thread, and the threads and processes that it will start, run on core ``cpu`` only; -1: anywhere.

    Returns:
        The cores that it could run on before.

    Raises:
        ConfigError: there is no such core, or it is not for this process.
    """
    before = frozenset(os.sched_getaffinity(0))
    if cpu == -1:
        return before
    try:
        os.sched_setaffinity(0, {cpu})
    except (OSError, ValueError, OverflowError) as error:
        cores = ", ".join(map(str, sorted(before)))
        raise ConfigError(
            f"router.cpu = {cpu}: there is no such core, or this process may not run there ({error}); "
            f"it runs on: {cores}. Choose one of them, or -1 for any"
        ) from None
    return before


def half_of_memory() -> int:
    """Return half of the memory available to this process (bytes)."""
    most = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    try:
        with open(_CGROUP_LIMIT, encoding="ascii") as file:
            most = min(most, int(file.read()))
    except (OSError, ValueError):
        pass  # there is none, or it is "max"
    return most // 2


def tune_gc() -> None:
    """Make the cyclic garbage collector rare. To be called when everything is loaded and started.

    Routing makes no reference cycles: a message is freed as its last queue lets it go. But each
    message that waits is a live object, so with Python's defaults a growing queue starts a collection
    every few hundred messages, each of which finds nothing, and some of which look at all of them
    while every caller waits. What lives for ever (modules, classes) is frozen: no collection looks at
    it again.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)
