"""Power cuts and failing disks at random moments: nothing that was accepted is lost, or goes back, or is there in part.

``python -m tests.store.crashes POINTS [SEED]`` tries so many moments; with ``--normal`` commits are not synced, and it
must find losses.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from itertools import count
from pathlib import Path
from random import Random
from time import monotonic

import apsw

from rpcmq.store.contract import Change, Release, StoreError, StoreFailed
from rpcmq.store.sqlite import SqliteStore
from rpcmq.store.sqlite_file import abandon
from tests.store.crash_disk import CrashDisk
from tests.store.memory_store import MemoryStore
from tests.store.random_changes import Content, RandomChanges, content_of, differences

__all__ = ["Broken", "Trial", "points_of"]

_PATH = Path("/queue.db")
_FAILURES = (apsw.SQLITE_FULL, apsw.SQLITE_IOERR)
_ROUNDS = 60
#: A store that cannot be opened after so many attempts never will be.
_MOST_OPENINGS = 50


class Broken(AssertionError):
    """A store has lost something, or has it twice or in part."""


class Trial:
    """One store that is used, cut off and opened again, beside one that is told the same and never fails.

    Attributes:
        points: how many power cuts there were.
        failures: how many batches have failed.
    """

    def __init__(self, seed: int, is_synced: bool = True) -> None:
        self.random = random = Random(seed)
        self.disk = CrashDisk(f"crash-{seed}", random)
        self._is_synced = is_synced
        self._changes = RandomChanges(random)
        self._model = MemoryStore()
        self.points = self.failures = 0
        self._store = self._open()

    def run(self) -> None:
        """Change something, most times with a power cut or a failure on the way."""
        for _ in range(_ROUNDS):
            changes = self._changes.some(self._model)
            self.plan_trouble()
            try:
                verdicts = self._store.apply(changes)
            except StoreFailed:
                self.failures += 1
                self._after_failure(changes)
            else:
                if verdicts != self._model.apply(changes):
                    raise Broken(f"wrong answers: {verdicts}")
        self.disk.cut_at = self.disk.fail_sync_in = 0
        self.disk.fail_at.clear()
        self._compare(content_of(self._model))

    def close(self) -> None:
        """Let go of the disk, which must work for that."""
        self.disk.crash()
        try:
            abandon(self._store._connection)
        except apsw.ConnectionClosedError:
            pass  # a failure has closed it
        self.disk.unregister()

    def plan_trouble(self) -> None:
        """Let the disk fail in the next moments, or not."""
        random, disk = self.random, self.disk
        choice = random.random()
        if choice < 0.5:
            disk.cut_at = disk.operations + random.randrange(1, 20)
        elif choice < 0.6:
            disk.fail_at[disk.operations + random.randrange(1, 20)] = random.choice(_FAILURES)

    def _open(self) -> SqliteStore:
        for _ in range(_MOST_OPENINGS):
            try:
                return self.opened()
            except StoreFailed:
                self._mend_disk()
            except StoreError as error:
                raise Broken(f"it is refused: {error}") from error
        raise Broken("it cannot be opened any more")

    def opened(self) -> SqliteStore:
        """Another opening of the store."""
        store = SqliteStore(_PATH, segment_items=8, segment_bytes=1000, vfs=self.disk.name)
        store._connection.pragma("wal_autocheckpoint", 20)
        if not self._is_synced:
            store._connection.pragma("synchronous", "normal")
        return store

    def _mend_disk(self) -> None:
        """A power cut is over, with what was not synced lost; another one may come during recovery."""
        if self.disk.is_off:
            self.points += 1
            self.disk.crash()
            if self.random.random() < 0.2:
                self.disk.cut_at = self.disk.operations + self.random.randrange(1, 20)

    def _after_failure(self, changes: list[Change]) -> None:
        """The batch is there, or is not; done once more, as the contract has it, it is there once.

        But for an item that was refused for a unique key of which the batch itself lets go: it is put the second time.
        """
        before, once = self._model, self._model.copy()
        once.apply(changes)
        models = [once]
        if any(isinstance(each, Release) for each in changes):
            models.append(once.copy())
            models[1].apply(changes)
        wanted = [content_of(each) for each in models]
        is_open = False
        while not is_open:
            self._mend_disk()
            self._store = self._open()
            try:
                found = content_of(self._store)
                if found not in wanted and found != (was := content_of(before)):
                    raise Broken(
                        f"neither before:\n{differences(found, was)}\nnor after:\n{differences(found, wanted[0])}"
                    )
                self._store.apply(changes)
                is_open = True
            except (StoreFailed, apsw.Error):
                continue
        found = content_of(self._store)
        if found not in wanted:
            raise Broken(differences(found, wanted[0]))
        self._model = models[wanted.index(found)]
        self._count()

    def _compare(self, wanted: Content) -> None:
        found = content_of(self._store)
        if found != wanted:
            raise Broken(differences(found, wanted))
        self._count()

    def _count(self) -> None:
        counted, expected = self._store.recount(), replace(self._model.recount(), epoch=self._store.recovered.epoch)
        if counted != expected:
            raise Broken(f"counted {counted}, not {expected}")


def points_of(seed: int, is_synced: bool = True) -> int:
    """Try the moments of one seed, and return how many power cuts there were.

    Raises:
        Broken: the store has lost something, or has it twice or in part.
    """
    trial = Trial(seed, is_synced)
    try:
        trial.run()
    finally:
        trial.close()
    return trial.points


def _main(points: int, seed: int, is_synced: bool) -> int:
    began, done, broken = monotonic(), 0, 0
    for each in count(seed):
        try:
            done += points_of(each, is_synced)
        except Broken as error:
            broken += 1
            if is_synced:
                print(f"seed {each}: {error}", file=sys.stderr)
        if done >= points or (not is_synced and each - seed >= points):
            break
    print(f"{done} power cuts in {monotonic() - began:.1f} s, {each - seed + 1} stores, {broken} broken")
    return bool(broken) == is_synced


if __name__ == "__main__":
    numbers = [int(each) for each in sys.argv[1:] if each.isdecimal()]
    sys.exit(_main(numbers[0], numbers[1] if len(numbers) > 1 else 1, "--normal" not in sys.argv))
