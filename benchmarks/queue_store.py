"""The store of queue items alone, beside its disk: commits of 1 to 1,000 items, and on top of a backlog."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from statistics import median, quantiles

from benchmarks import queue_ends
from benchmarks.children import child, peak_mib, program, router, say
from benchmarks.queue_cost import tree
from benchmarks.report import Benchmark, Options, Row, Target
from rpcmq.client.queue.messages import Message
from rpcmq.core.queue.envelope import Envelope
from rpcmq.store.contract import Done, Lane, Maker, Put, Store

__all__ = ["BENCHMARKS"]

_LANE, _OTHER_LANE = Lane("billing", 0), Lane("other", 0)
_BODY = Envelope(Message(b"charge", 1, bytes(280)).to_bytes()).to_bytes()
_BATCHES = (1, 10, 100, 1000)
_DEPTHS = (0, 1_000_000)
_DEEPEST, _DEEPEST_DISK = 10_000_000, "5 GB"
#: Seconds that an item of the backlog may take, at worst.
_FILLING = 1e-3
#: Items of a commit while a backlog is made, and while rates are measured on top of it.
_FILL, _CYCLE = 1000, 64
#: Commits of so many items after which the write-ahead log begins anew, as it does after a second or two of work.
_WARMING = 40
#: Names the environment variable with the url of a database for the benchmark.
_DATABASE = "QUEUE_DATABASE"
#: Bytes of the file for bare syncs.
_OVERWRITTEN = 4 << 20


class _Producer:
    """Makes items; their ids are its own, or random ones that a user gave."""

    def __init__(self, has_random_ids: bool = False, name: int = 1 << 40) -> None:
        self._count = 0
        self._name = name
        self._has_random_ids = has_random_ids

    def items(self, number: int) -> list[Put]:
        if self._has_random_ids:
            return [Put(_LANE, _BODY, 1, id=os.urandom(16), digest=b"d") for _ in range(number)]
        first = self._count + 1
        self._count += number
        return [Put(_LANE, _BODY, 1, maker=Maker(self._name, each)) for each in range(first, first + number)]


def _sample(step: Callable[[], object], items: int, seconds: float) -> dict[str, float]:
    """Do ``step``, which handles so many items, for so many seconds."""
    times: list[float] = []
    cpu, began = time.process_time(), time.perf_counter()
    while time.perf_counter() - began < seconds or len(times) < 20:
        before = time.perf_counter()
        step()
        times.append(time.perf_counter() - before)
    total = time.perf_counter() - began
    return {
        "items_per_second": len(times) * items / total,
        "commits_per_second": len(times) / total,
        "p50_us": median(times) * 1e6,
        "p99_us": quantiles(times, n=100)[98] * 1e6,
        "item_cpu_us": (time.process_time() - cpu) / (len(times) * items) * 1e6,
    }


def _sync_step(directory: str, items: int) -> Iterator[Callable[[], object]]:
    """Bodies written over others, and synced: what any store on this disk has to wait for."""
    size, offset = len(_BODY) * items, 0
    file = os.open(Path(directory) / "plain", os.O_WRONLY | os.O_CREAT)

    def step() -> None:
        nonlocal offset
        os.pwrite(file, _BODY * items, offset)
        os.fdatasync(file)
        offset = (offset + size) % (_OVERWRITTEN - size)

    try:
        os.pwrite(file, bytes(_OVERWRITTEN), 0)
        os.fsync(file)
        yield step
    finally:
        os.close(file)


def _open(path: Path) -> Store:
    from rpcmq.store.sqlite import SqliteStore  # the other benchmarks need no apsw

    return SqliteStore(path)


def _warm(store: Store) -> None:
    """Let the write-ahead log begin anew: while it grows, a sync takes several times as long."""
    producer = _Producer(name=1)
    for _ in range(_WARMING):
        store.apply([put._replace(lane=_OTHER_LANE) for put in producer.items(_FILL)])


def _put_step(directory: str, items: int) -> Iterator[Callable[[], object]]:
    store, producer = _open(Path(directory) / "put.db"), _Producer()
    try:
        _warm(store)
        yield lambda: store.apply(producer.items(items))
    finally:
        store.close()


def _cycle_step(directory: str, items: int) -> Iterator[Callable[[], object]]:
    """Put, read, done: two commits."""
    store = _open(Path(directory) / "cycle.db")
    try:
        _warm(store)
        yield _cycle_of(store, _Producer(), items)
    finally:
        store.close()


def _cycle_of(store: Store, producer: _Producer, items: int) -> Callable[[], None]:
    """Put so many items; read as many of the oldest, and they are done."""
    after = 0

    def step() -> None:
        nonlocal after
        store.apply(producer.items(items))
        found = store.read(_LANE, after, items, 1 << 30)
        assert len(found) == items
        after = found[-1].number
        store.apply([Done(_LANE, item.number) for item in found])

    return step


def _postgres_step(directory: str, items: int) -> Iterator[Callable[[], object]]:
    """Put, read, done in the database that :data:`_DATABASE` names."""
    from rpcmq.store.postgres import PostgresStore

    owner = f"bench-{os.getpid()}-{time.monotonic_ns()}"
    store = PostgresStore(os.environ[_DATABASE], owner)
    try:
        yield _cycle_of(store, _Producer(), items)
    finally:
        store.close()


_STEPS = {"disk: write and fdatasync": _sync_step, "put": _put_step, "put, read, done": _cycle_step}


def run_commits(options: Options) -> list[Row]:
    """Rates of commits of so many items, in turns with bare syncs."""
    samples: dict[tuple[str, int], list[dict[str, float]]] = {}
    systems = dict(_STEPS)
    if os.environ.get(_DATABASE):
        systems["PostgreSQL: put, read, done"] = _postgres_step
    else:
        options.notice(f"PostgreSQL: {_DATABASE} names no database")
    for _ in range(options.rounds):
        for items in _BATCHES:
            for system, steps in systems.items():
                with tempfile.TemporaryDirectory(prefix="rpcmq-bench-") as directory:
                    for step in steps(directory, items):
                        samples.setdefault((system, items), []).append(_sample(step, items, options.seconds / 2))
    return [Row(system, items, rows) for (system, items), rows in samples.items()]


def run_backlog(options: Options) -> list[Row]:
    """Rates on top of a backlog, time to open it, and memory; ten million items where that is asked for."""
    if not options.is_long:
        options.notice(f"a backlog of {_DEEPEST:,} items: --long, which takes minutes and {_DEEPEST_DISK} of disk")
    with ExitStack() as stack:
        backlogs: list[tuple[Row, dict[str, object]]] = []
        for depth in (*_DEPTHS, _DEEPEST) if options.is_long else _DEPTHS:
            for system, has_random_ids in {"ids of clients": False, "random ids of users": True}.items():
                if has_random_ids and depth == _DEEPEST:
                    continue
                directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="rpcmq-bench-"))
                arguments: dict[str, object] = {"directory": directory, "has_random_ids": has_random_ids}
                with child(fill, depth=depth, **arguments) as filling:
                    filling.heard(60 + depth * _FILLING)
                backlogs.append((Row(system, depth, []), arguments))
        for number in range(options.rounds):
            for row, arguments in backlogs:
                # Processes of their own: the most memory that one had used would be that of the next, too.
                with child(cycles, seconds=options.seconds, producer=number + 1, **arguments) as cycling:
                    row.samples.append(cycling.heard(60 + options.seconds))
        for row, arguments in backlogs:
            served = _served(str(arguments["directory"]))
            row.samples[:] = [sample | served for sample in row.samples]
    return [row for row, _ in backlogs]


def _served(directory: str) -> dict[str, float]:
    """Start a queue server on the backlog: the time until it serves, and memory after some puts."""
    with router() as (routing, url):
        command = [
            sys.executable,
            "-m",
            "rpcmq.queue_server",
            "--router",
            url,
            "--owner",
            "bench",
            "--store",
            directory,
        ]
        began = time.perf_counter()
        with program("queue server", [*command, "--store", directory]) as serving:
            serving.line("are served")
            ready = time.perf_counter() - began
            # Into another queue: this one may be full.
            with child(queue_ends.fill, url=url, items=1000, queue="other") as filling:
                filling.heard()
            (store,) = tree(serving.pid)()[1:]
            memory = {"router_mib": routing.pid, "queue_mib": serving.pid, "store_mib": store}
            return {"start_ms": ready * 1e3} | {name: peak_mib(pid) for name, pid in memory.items()}


def fill(directory: str, depth: int, has_random_ids: bool) -> None:
    """Put so many items into a new store in ``directory``."""
    store, producer = _open(Path(directory) / "queue.db"), _Producer(has_random_ids)
    for _ in range(depth // _FILL):
        store.apply(producer.items(_FILL))
    store.close()
    say("filled")


def cycles(directory: str, seconds: float, producer: int, has_random_ids: bool) -> None:
    """Put, read and do items on top of those that are there, whose producer was another one."""
    path = Path(directory) / "queue.db"
    began = time.perf_counter()
    store = _open(path)
    opening = time.perf_counter() - began
    sample = _sample(_cycle_of(store, _Producer(has_random_ids, producer), _CYCLE), _CYCLE, seconds)
    store.close()
    opened = {"opening_ms": opening * 1e3, "peak_mib": peak_mib(), "disk_mib": path.stat().st_size / (1 << 20)}
    say({**sample, **opened})


BENCHMARKS = (
    Benchmark(
        name="queue-store",
        title="The store of queue items, and the disk it is on: commits of so many items of 300 bytes",
        case="items a commit",
        metric="items_per_second",
        ours="put",
        run=run_commits,
        targets=(Target("disk: write and fdatasync", "commits_per_second", (1,), at_least=0.6),),
    ),
    Benchmark(
        name="queue-backlog",
        title="Put, read and done on top of a backlog, 64 items a commit",
        case="items waiting",
        metric="items_per_second",
        ours="ids of clients",
        run=run_backlog,
    ),
)
