"""Random damage of stores, and whether a salvage tells the truth of what it has saved.

``python -m tests.store.salvage.damages COUNT [SEED]`` damages so many stores in each way, one after the other.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from random import Random

from rpcmq.store.contract import Lane, Maker, Position, Put, Stored, StoreError
from rpcmq.store.salvage.report import Report
from rpcmq.store.salvage.saving import Choices, salvage
from rpcmq.store.sqlite import SqliteStore
from rpcmq.store.sqlite_file import abandon
from rpcmq.store.sqlite_pages import PAGE_BYTES
from tests.store.memory_store import MemoryStore
from tests.store.random_changes import Content, RandomChanges, content_of

__all__ = ["CHOICES", "DAMAGES", "UNPLACED", "Broken", "RandomStore", "dead_of", "try_one"]

#: The queue of items that cannot be placed.
UNPLACED = "unplaced"
CHOICES = Choices(UNPLACED, False, 10**12, str.encode, lambda lane: f"horizon {lane.priority} {lane.queue}")
DAMAGES = ("bytes", "pages", "swapped", "cut")
_LOG = "queue.db-wal"
#: Of an item that which its worker sees.
Seen = tuple[bytes, bytes, Maker, int]


class Broken(Exception):
    """A salvage has invented, altered or missed something, or has not told of it."""


class RandomStore:
    """A store with random content in the file ``queue.db`` of a folder, and ways to damage it.

    Attributes:
        wanted: the content.
        put: whatever was ever put.
        lost: bytes that are damaged, and those around them.
        is_log_cut: whether the end of the log is missing, which nobody can notice.
    """

    def __init__(self, folder: Path, seed: int) -> None:
        self.random = Random(seed)
        self.path = folder / "queue.db"
        self.lost, self.is_log_cut = b"", False
        self.put: set[Seen] = set()
        store = SqliteStore(self.path, segment_items=self.random.choice((7, 50, 100_000)))
        model, changes = MemoryStore(), RandomChanges(self.random)
        for _ in range(self.random.choice((20, 100, 200))):
            some = changes.some(model)
            store.apply(some)
            model.apply(some)
            self.put |= {(each.body, each.id, each.maker, each.at) for each in some if isinstance(each, Put)}
        self.wanted = content_of(store)
        self._is_killed = self.random.random() < 0.5
        if self._is_killed:
            abandon(store._connection)
        else:
            store.close()

    def damage(self, how: str) -> None:
        """Damage one of the files, in one of the ways of :data:`DAMAGES`."""
        random, log = self.random, self.path.with_name(_LOG)
        path = log if self._is_killed and random.random() < 0.5 else self.path
        raw = bytearray(path.read_bytes())
        if how == "cut":
            self._cut(raw)
            self.is_log_cut = path == log
        elif how == "swapped":
            self._swap(raw)
        else:
            for _ in range(random.choice((1, 1, 2, 4))):
                self._overwrite(raw, random.randrange(len(raw)), how)
        path.write_bytes(raw)

    def _cut(self, raw: bytearray) -> None:
        size = self.random.randrange(len(raw))
        self._lose(raw, size, len(raw))
        del raw[size:]

    def _swap(self, raw: bytearray) -> None:
        pages = [slice(at, at + PAGE_BYTES) for at in range(0, len(raw), PAGE_BYTES)]
        first, second = self.random.choices(pages, k=2)
        if first != second and len(raw[first]) == len(raw[second]):
            self._lose(raw, first.start, first.stop)
            self._lose(raw, second.start, second.stop)
            raw[first], raw[second] = raw[second], raw[first]

    def _overwrite(self, raw: bytearray, at: int, how: str) -> None:
        random = self.random
        if how == "pages":
            at = at // PAGE_BYTES * PAGE_BYTES
        length = len(raw[at : at + (4 if how == "bytes" else PAGE_BYTES)])
        self._lose(raw, at, at + length)
        raw[at : at + length] = random.choice((bytes(length), random.randbytes(length)))

    def _lose(self, raw: bytearray, begin: int, end: int) -> None:
        # A frame of the log is a little longer than a page, and that after a damaged one is not sure.
        self.lost += raw[max(begin - PAGE_BYTES - 32, 0) : end + 2 * PAGE_BYTES]


def try_one(folder: Path, seed: int, how: str) -> Report | None:
    """Damage a store and save it; return the account, or None where it is no store without the end of its log.

    Raises:
        Broken: the account is not true.
    """
    damaged = RandomStore(folder, seed)
    damaged.damage(how)
    files = {path: path.read_bytes() for path in folder.iterdir()}
    try:
        report = salvage(damaged.path, folder / "new" / "queue.db", CHOICES)
    except StoreError:
        if damaged.is_log_cut:
            return None
        raise
    if any(path.read_bytes() != raw for path, raw in files.items()):
        raise Broken("the damaged files are changed")
    store = SqliteStore(folder / "new" / "queue.db")
    found, unplaced = content_of(store), dead_of(store, UNPLACED)
    store.close()
    _Check(damaged, report, found, unplaced).all()
    return report


def dead_of(store: SqliteStore, queue: str) -> list[Stored]:
    """The dead items of a queue."""
    return [each for each in store.read_dead(queue, Position(), 1 << 30, 1 << 40) if isinstance(each, Stored)]


class _Check:
    def __init__(self, damaged: RandomStore, report: Report, found: Content, unplaced: list[Stored]) -> None:
        self._damaged, self._report, self._unplaced = damaged, report, unplaced
        self._wanted, self._found = _by_place(damaged.wanted), _by_place(found)
        #: What is in the log is there as of a former time: no more can be said.
        self._is_of_before = damaged.is_log_cut or report.is_last_commit_left_out

    def all(self) -> None:
        """Raise where something was invented, altered or missed, or is not told."""
        if len(self._unplaced) != self._report.unplaced:
            raise Broken(f"{len(self._unplaced)} unplaced ones: {self._report}")
        for item in [*(item for _, item in self._found.values()), *self._unplaced]:
            if _seen(item) not in self._damaged.put:
                raise Broken(f"invented: {_brief(item)}")
        for place, (state, item) in self._wanted.items():
            if place in self._found:
                self._check_found(state, item, *self._found[place])
            elif not self._is_of_before:
                self._check_missing(state, item)
        if not self._is_of_before:
            for place in self._found.keys() - self._wanted.keys():
                self._check_ended(*self._found[place])

    def _check_found(self, state: str, item: Stored, now: str, same: Stored) -> None:
        if _seen(same) != _seen(item):
            raise Broken(f"in the place of {_brief(item)}: {_brief(same)}")
        if now != state and not (self._is_of_before or self._report.notices):
            raise Broken(f"{state} is {now}, which is not told: {_brief(item)} {self._report}")

    def _check_missing(self, state: str, item: Stored) -> None:
        if any(_seen(each) == _seen(item) for each in self._unplaced):
            return
        if item.body[:40] not in self._damaged.lost:
            raise Broken(f"missing, though it is not damaged: {state} {_brief(item)} {self._report}")
        queue = self._report.queues.get(item.lane.queue)
        priority, number = item.lane.priority, item.number
        is_told = self._report.notices or (queue is not None and (
            priority in queue.is_end_lost
            or any(lane == priority and first <= number <= last for lane, first, last in queue.lost)
        ))  # fmt: skip
        if not is_told:
            raise Broken(f"missing, which is not told: {state} {_brief(item)} {self._report}")

    def _check_ended(self, state: str, item: Stored) -> None:
        queue = self._report.queues[item.lane.queue]
        if not queue.may_run_again and not (state == "dead" and self._report.notices):
            raise Broken(f"had ended, and is there, which is not told: {state} {_brief(item)} {self._report}")


def _by_place(content: Content) -> dict[tuple[Lane, int], tuple[str, Stored]]:
    states: Iterator[tuple[str, list[Stored]]] = iter(
        [
            *(("ready", items) for items in content.ready.values()),
            ("postponed", content.postponed),
            *(("dead", items) for items in content.dead.values()),
        ]
    )
    return {(item.lane, item.number): (state, item) for state, items in states for item in items}


def _seen(item: Stored) -> Seen:
    return item.body, item.id, item.maker, item.at


def _brief(item: Stored) -> Stored:
    return item._replace(body=item.body[:4])


def _main(count: str, seed: str = "1") -> int:
    broken = whole = 0
    for each in range(int(seed), int(seed) + int(count)):
        for how in DAMAGES:
            with tempfile.TemporaryDirectory() as folder:
                try:
                    report = try_one(Path(folder), each, how)
                except Broken as error:
                    broken += 1
                    print(f"seed {each}, {how}: {error}", file=sys.stderr)
                else:
                    whole += report is not None and report.is_whole
    print(f"{int(count) * len(DAMAGES)} damaged stores, {broken} broken, {whole} saved whole")
    return bool(broken)


if __name__ == "__main__":
    sys.exit(_main(*sys.argv[1:]))
