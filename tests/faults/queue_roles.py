"""Producers and workers of a queue under faults: ``python -m tests.faults.queue_roles ROLE OPTIONS``.

Each writes what it does to a history of its own, one line at a time, before or after it does it: a process that is
killed has written all that is over. What an item does to the world is a row in a database that all workers share.
"""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from random import Random
from typing import Any

import gevent
from gevent.event import Event as Flag

import rpcmq
from rpcmq.drill.history import Recorder, read
from rpcmq.errors import PutRefused, PutUnknown, RpcError

__all__ = ["EFFECTS", "QUEUE", "Options", "Seen"]

QUEUE = "billing"
#: Name of the database in which effects are made.
EFFECTS = "effects.db"
_TABLES = """
CREATE TABLE IF NOT EXISTS effects (item TEXT NOT NULL, process TEXT NOT NULL, attempt INTEGER NOT NULL);
"""


class Seen(StrEnum):
    """Kinds of events. In brackets: the fields beside time, process and item."""

    #: A producer begins to put an item [key].
    PUTTING = "putting"
    #: It has a receipt [owner, number, shown: the id that workers see].
    ACCEPTED = "accepted"
    #: It was told that the item is not in the queue, or that nobody knows.
    REFUSED = "refused"
    UNKNOWN = "unknown"
    #: A handler begins [attempt, fence, owner, key, shown, left].
    BEGIN = "begin"
    #: It ends [fence, outcome, left: seconds of its lease].
    END = "end"
    #: A fault begins, or is over; in place of the item: its kind [target].
    FAULT = "fault"
    HEALED = "healed"
    #: Everything is whole again from now on.
    WHOLE = "whole"
    #: All workers are equal from now on, and have enough to do [workers].
    EQUAL = "equal"


@dataclass(frozen=True)
class Options:
    """Options of one process.

    Attributes:
        name: in the history; another for each life.
        place: its name in the history without the number of its life.
        folder: of the world.
        routers: urls of which it uses one.
        count: items that a producer puts.
        rate: items a second of a producer, at the most; 0: as many as it can.
        concurrency: items that a worker runs, or puts that a producer makes, at the same time.
        seconds: that a handler takes at the most; for an item of a series ten times that.
        failing: part of the attempts that fail.
        keys: number of series that items belong to; 0: none does.
        queue: its name.
    """

    name: str
    place: str
    folder: str
    routers: Sequence[str]
    count: int = 0
    rate: float = 0.0
    concurrency: int = 8
    seconds: float = 0.005
    failing: float = 0.0
    keys: int = 0
    queue: str = QUEUE

    def to_json(self) -> str:
        """As an argument of the command line."""
        return json.dumps(asdict(self))


# --- producers -----------------------------------------------------------------------------------


class _Puts:
    """Puts items until all are in the queue, or nobody knows; goes on where an earlier life of it was killed."""

    def __init__(self, options: Options, recorder: Recorder, client: rpcmq.Client) -> None:
        self._options, self._recorder, self._client = options, recorder, client
        begun: set[str] = set()
        ended: set[str] = set()
        for file in Path(options.folder).glob(f"{options.place}#*.history"):
            for event in read(file):
                (begun if event.what == Seen.PUTTING else ended).add(event.id)
        #: Items that have an id of their producer may be put again.
        self._open = sorted(item for item in begun - ended if self._has_id(item))
        known = {int(item.rpartition("-")[2]) for item in begun}
        self._numbers = iter([n for n in range(options.count) if n not in known])
        self._random = Random(options.name)

    def _has_id(self, item: str) -> bool:
        return int(item.rpartition("-")[2]) % 3 == 0

    def _next(self) -> list[str]:
        if self._open:
            return [self._open.pop()]
        # Those with ids go one by one, the others in batches of some.
        items: list[str] = []
        for number in self._numbers:
            items.append(f"{self._options.place}-{number}")
            if self._has_id(items[-1]) or len(items) >= self._random.choice((1, 1, 5, 20)):
                break
        return items

    def _key_of(self, item: str) -> str | None:
        keys = self._options.keys
        number = int(item.rpartition("-")[2])
        return f"{self._options.place}/{number % keys}" if keys and self._has_id(item) else None

    def run(self) -> None:
        """Put items, one batch after the other."""
        rate = self._options.rate
        while items := self._next():
            for item in items:
                self._recorder.write(Seen.PUTTING, item, key=self._key_of(item))
            self._put(items)
            if rate:
                gevent.sleep(len(items) * self._options.concurrency / rate)

    def _put(self, items: list[str]) -> None:
        messages = [{"method": "work", "args": {"item": item, "key": self._key_of(item)}} for item in items]
        client, queue = self._client, self._options.queue
        try:
            if len(items) == 1:
                id = items[0] if self._has_id(items[0]) else None
                receipts = [client.put(None, queue, messages[0], id=id, key=self._key_of(items[0]), timeout=60.0)]
            elif self._has_id(items[-1]):
                # The last one of a batch has an id: it goes alone.
                self._put(items[:-1])
                self._put(items[-1:])
                return
            else:
                receipts = client.put_many(None, queue, messages, timeout=60.0)
        except PutRefused as error:
            self._all(Seen.REFUSED, items, error)
        except (PutUnknown, RpcError) as error:
            self._all(Seen.UNKNOWN, items, error)
        else:
            for item, receipt in zip(items, receipts, strict=True):
                fields = {"owner": receipt.owner, "number": receipt.number, "shown": receipt.id}
                self._recorder.write(Seen.ACCEPTED, item, **fields)

    def _all(self, what: Seen, items: list[str], error: Exception) -> None:
        for item in items:
            self._recorder.write(what, item, text=f"{type(error).__name__}: {error}"[:300])


def produce(options: Options, recorder: Recorder) -> None:
    """Put ``count`` items."""
    with rpcmq.Client(list(options.routers), options.name, shell="gevent", reconnect_max_seconds=0.2) as client:
        puts = _Puts(options, recorder, client)
        print("ready", flush=True)
        gevent.joinall([gevent.spawn(puts.run) for _ in range(options.concurrency)], raise_error=True)
    print("put", flush=True)


# --- workers -------------------------------------------------------------------------------------


class _Billing:
    def __init__(self, options: Options, recorder: Recorder) -> None:
        self._options, self._recorder = options, recorder
        self._random = Random(options.name)
        self._database = open_effects(Path(options.folder))

    def work(self, ctx: Any, item: str, key: str | None, seconds: float = 0.0) -> None:
        given = rpcmq.current_item()
        assert given is not None
        fence = list(given.fence)
        self._recorder.write(
            Seen.BEGIN, item, attempt=given.attempt, fence=fence, owner=given.owner, key=key, shown=given.id,
            left=round(given.remaining(), 3),
        )  # fmt: skip
        outcome = "failed"
        try:
            gevent.sleep(seconds or self._random.random() * self._options.seconds * (10 if key else 1))
            if self._random.random() < self._options.failing:
                if self._random.random() < 0.5:
                    raise rpcmq.RetryLater(0.1)
                raise ValueError("as it was to")
            self._have_effect(given, item)
            outcome = "ok"
        finally:
            self._recorder.write(Seen.END, item, fence=fence, outcome=outcome, left=round(given.remaining(), 3))

    def _have_effect(self, given: rpcmq.Item, item: str) -> None:
        row = (item, self._options.name, given.attempt)
        with rpcmq.once(self._database, given) as first:
            if first:
                self._database.execute("INSERT INTO effects VALUES (?, ?, ?)", row)


def open_effects(folder: Path) -> sqlite3.Connection:
    """The database of effects, which is made if it is not there."""
    database = sqlite3.connect(folder / EFFECTS, timeout=60.0)
    database.execute("PRAGMA journal_mode = wal")
    # The machine is not switched off, and what is tested is not its disk.
    database.execute("PRAGMA synchronous = off")
    database.executescript(_TABLES)
    rpcmq.once_schema(database)
    return database


def work(options: Options, recorder: Recorder) -> None:
    """Work at items until SIGTERM."""
    stopping = Flag()
    gevent.signal_handler(signal.SIGTERM, stopping.set)
    client = rpcmq.Client(list(options.routers), options.name, shell="gevent", reconnect_max_seconds=0.2)
    worker = rpcmq.Worker(options.queue, _Billing(options, recorder), client=client, concurrency=options.concurrency)
    worker.start(60.0)
    print("ready", flush=True)
    stopping.wait()
    worker.stop(10.0)
    client.close()


if __name__ == "__main__":
    role, text = sys.argv[1:]
    chosen = Options(**json.loads(text))
    with Recorder(Path(chosen.folder) / f"{chosen.name}.history", chosen.name) as written:
        {"produce": produce, "work": work}[role](chosen, written)
    # What a greenlet still does is of no interest.
    os._exit(0)
