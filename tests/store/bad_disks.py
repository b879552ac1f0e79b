"""Row 8 of the fault matrix: disks that are full, fail to sync, or leave the end of a file torn, many times over.

``python -m tests.store.bad_disks KIND POINTS [SEED]`` tries so many failures of one kind, one store after the other.
Nothing that was accepted is lost, and each store is used again as soon as the disk works.

| kind | what happens |
|---|---|
| ``full`` | there is no room for some operations, one after the other |
| ``sync`` | a sync fails, and what it was to write is not on the disk, whatever is read; the power may go off later |
| ``torn`` | the power goes off, and what was not synced is there up to some byte |
"""

from __future__ import annotations

import sys
from itertools import count
from time import monotonic

import apsw

from tests.store.crashes import Broken, Trial

__all__ = ["KINDS", "failures_of"]


class _Full(Trial):
    def plan_trouble(self) -> None:
        """There is no room for some operations."""
        if self.random.random() < 0.5:
            first = self.disk.operations + self.random.randrange(1, 20)
            self.disk.fail_at = dict.fromkeys(range(first, first + self.random.randrange(1, 40)), apsw.SQLITE_FULL)


class _Sync(Trial):
    def plan_trouble(self) -> None:
        """One of the next syncs fails, and sometimes the power goes off a little later."""
        random, disk = self.random, self.disk
        if random.random() < 0.5:
            disk.fail_sync_in = random.choice((1, 1, 2, 3))
        if random.random() < 0.3:
            disk.cut_at = disk.operations + random.randrange(1, 40)


class _Torn(Trial):
    def plan_trouble(self) -> None:
        """The power goes off in one of the next moments."""
        self.disk.is_torn = True
        if self.random.random() < 0.5:
            self.disk.cut_at = self.disk.operations + self.random.randrange(1, 20)


KINDS: dict[str, type[_Full | _Sync | _Torn]] = {"full": _Full, "sync": _Sync, "torn": _Torn}


def failures_of(kind: str, seed: int) -> int:
    """Use one store, and return how many failures there were.

    Raises:
        Broken: it has lost something, or has it twice or in part.
    """
    trial = KINDS[kind](seed)
    try:
        trial.run()
    finally:
        trial.close()
    return trial.failures


def _main(kind: str, points: str, seed: str = "1") -> int:
    began, done, broken = monotonic(), 0, 0
    for each in count(int(seed)):
        try:
            done += failures_of(kind, each)
        except Broken as error:
            broken += 1
            print(f"seed {each}: {error}", file=sys.stderr)
        if done >= int(points) or broken > int(points):
            break
    stores = each - int(seed) + 1
    print(f"{kind}: {done} failures in {monotonic() - began:.1f} s, {stores} stores, {broken} broken")
    return bool(broken)


if __name__ == "__main__":
    sys.exit(_main(*sys.argv[1:]))
