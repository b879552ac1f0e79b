"""Row 8 of the fault matrix: disks that are full, fail to sync, tear the end of a file or flip a bit, many times over.

``python -m tests.store.bad_disks KIND POINTS [SEED]`` tries so many failures of one kind, one store after the other.
Nothing that was accepted is lost, and each store is used again as soon as the disk works, or its files are put right.

| kind | what happens |
|---|---|
| ``full`` | there is no room for some operations, one after the other |
| ``sync`` | a sync fails, and what it was to write is not on the disk, whatever is read; the power may go off later |
| ``torn`` | the power goes off, and what was not synced is there up to some byte |
| ``flipped`` | a bit of the file is flipped while it is open or closed, or one of the file or its log after a kill |
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from time import monotonic

import apsw

from rpcmq.store.contract import Put, StoreError
from rpcmq.store.sqlite_file import abandon
from tests.store.crashes import Broken, Trial
from tests.store.memory_store import MemoryStore
from tests.store.random_changes import content_of

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


@contextmanager
def _warnings() -> Iterator[list[str]]:
    """The warnings of a store meanwhile."""
    texts: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: texts.append(record.getMessage())  # type: ignore[method-assign]
    log = logging.getLogger("rpcmq.queue")
    log.addHandler(handler)
    try:
        yield texts
    finally:
        log.removeHandler(handler)


class _Flipped(Trial):
    _place, _wrong = ("", 0), -1

    def run(self) -> None:
        """Change something, flip a bit, and look at everything; a bit more than that it may say, and nothing else."""
        puts: list[Put] = []
        before = self._model.copy()
        for _ in range(40):
            changes = self._changes.some(self._model)
            puts += [each for each in changes if isinstance(each, Put)]
            was, operations = self._model.copy(), self.disk.operations
            if self._store.apply(changes) != self._model.apply(changes):
                raise Broken("wrong answers")
            if self.disk.operations > operations:
                before = was  # else there was nothing to commit
            if self.random.random() < 0.5:
                self.failures += 1
                self._flip(before)
                self._look(puts)
                self._flip_back()

    def _flip(self, before: MemoryStore) -> None:
        """Flip a bit, and have the store as it is then; ``before`` is the model without the last commit."""
        how = self.random.choice(("open", "closed", "killed"))
        if how == "closed":
            self._store.close()
        elif how == "killed":
            abandon(self._store._connection)
        # The file stands before its log. What is in that while it is open is in memory, too.
        size = self.disk.size_bytes("/queue.db" if how == "open" else "")
        self._place = self.disk.place_of(self.random.randrange(size << 3))
        self.disk.flip(*self._place)
        self._wrong = self.disk.byte_at(*self._place)
        if how == "open":
            return
        with _warnings() as texts:
            try:
                self._store = self.opened()
            except StoreError as error:
                if "damaged" not in str(error) or not self._place[0].endswith("-wal"):
                    raise Broken(f"{self._place}: {error}") from error
                self._flip_back()
                self._store = self.opened()
        if any("the last commit" in text for text in texts) and content_of(self._store) == content_of(before):
            self._model = before

    def _flip_back(self) -> None:
        """Put the bit right, unless it was written anew."""
        if self.disk.byte_at(*self._place) == self._wrong:
            self.disk.flip(*self._place)

    def _look(self, puts: list[Put]) -> None:
        self._store._connection.cache_flush()
        self._compare(content_of(self._model))
        for put in puts:
            if self._store.known([put]) != self._model.known([put]):
                raise Broken(f"{put.id!r} {put.maker}: {self._store.known([put])}")
        notes = dict(self._store._connection.execute("SELECT name, value FROM notes"))
        if {name: value for name, value in notes.items() if not name.startswith(".")} != self._model._notes:
            raise Broken(f"notes: {notes}")


KINDS: dict[str, type[_Full | _Sync | _Torn | _Flipped]] = {
    "full": _Full, "sync": _Sync, "torn": _Torn, "flipped": _Flipped,
}  # fmt: skip


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
