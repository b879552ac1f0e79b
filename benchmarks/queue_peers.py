"""The durable queue beside others: one process puts and, for whole cycles, another one works.

So many items are kept under way: each until its put is confirmed and, in a cycle, until its body has run as well. What
is put is on the disk when it is confirmed, in all of them. That an item is done is told to the queue after that: to the
others without waiting for the answer.
"""

from __future__ import annotations

import os
import tempfile
from contextlib import ExitStack
from pathlib import Path
from time import perf_counter

from benchmarks.children import ChildFailed
from benchmarks.disk import sync_sample
from benchmarks.queue_cost import Cost, tree
from benchmarks.queue_rivals import RIVALS, Queue
from benchmarks.queue_work import open_worked, wait_worked
from benchmarks.report import Benchmark, Options, Row, Target

__all__ = ["BENCHMARKS"]

_DISK = "disk: 4 KiB written and synced"
_OURS = "rpcmq"
_WIDTHS = (1, 64, 1024)
#: Items that wait when a worker starts, for each second of a round; and the longest wait for one of them (seconds).
_DRAINED, _PATIENCE = 500, 20.0


def run_puts(options: Options) -> list[Row]:
    """Confirmed puts, with nobody working."""
    return _run(options, is_worked=False)


def run_cycles(options: Options) -> list[Row]:
    """Items that were put and worked."""
    return _run(options, is_worked=True)


def _run(options: Options, is_worked: bool) -> list[Row]:
    rivals = [rival for rival in RIVALS if rival.only in ("", "cycles" if is_worked else "puts")]
    reasons = {rival.name: reason for rival in rivals if (reason := rival.missing())}
    for name, reason in reasons.items():
        options.notice(f"{name}: {reason}")
    if reasons:
        options.notice(f"{len(reasons)} of {len(rivals)} systems")
    rows = {(_DISK, 1): Row(_DISK, 1, [])}
    for _ in range(options.rounds):
        with tempfile.TemporaryDirectory(prefix="rpcmq-bench-") as folder:
            sample = sync_sample(Path(folder), options.seconds / 4)
            rows[_DISK, 1].samples.append({_metric(is_worked): sample.pop("per_second"), **sample})
        for rival in rivals:
            if rival.name in reasons:
                continue
            with tempfile.TemporaryDirectory(prefix="rpcmq-bench-") as folder:
                pipe = Path(folder) / "worked"
                os.mkfifo(pipe)
                with rival.start(str(pipe)) as queue:
                    for width in _WIDTHS:
                        if width > rival.widest:
                            continue
                        if rival.is_drained:
                            sample = _drained(queue, width, str(pipe), options.seconds)
                        else:
                            sample = _sample(queue, width, options.seconds, Path(folder), is_worked)
                        rows.setdefault((rival.name, width), Row(rival.name, width, [])).samples.append(sample)
    return sorted(rows.values(), key=lambda row: row.case)


def _metric(is_worked: bool) -> str:
    return "cycles_per_second" if is_worked else "puts_per_second"


def _sample(queue: Queue, width: int, seconds: float, folder: Path, is_worked: bool) -> dict[str, float]:
    """Keep ``width`` items under way for so many seconds."""
    with ExitStack() as stack:
        parts = dict(queue.servers)
        if is_worked:
            parts["worker"] = tree(stack.enter_context(queue.worker(width)).pid)
        producer = stack.enter_context(queue.producer())
        parts["producer"] = tree(producer.pid)
        cost = Cost(parts, folder)
        result = producer.ask(seconds, width=width, seconds=seconds, is_worked=is_worked)
        items = result["calls"]
        sample = {
            _metric(is_worked): result["calls_per_second"],
            "p50_us": result["p50_us"],
            "p99_us": result["p99_us"],
        }
        return sample | cost.of(items)


def _drained(queue: Queue, width: int, pipe: str, seconds: float) -> dict[str, float]:
    """Have a worker take what waits, from its first item on."""
    items = int(_DRAINED * seconds)
    queue.fill(items)
    file = open_worked(pipe)
    try:
        with queue.worker(width):
            first, worked = 0.0, 0
            while worked < items:
                count = wait_worked(file, _PATIENCE)
                if not count:
                    raise ChildFailed(f"{items - worked} of {items} items wait: none was worked in {_PATIENCE:g} s")
                if not first:
                    first, items = perf_counter(), items - count
                else:
                    worked += count
            return {"cycles_per_second": worked / (perf_counter() - first)}
    finally:
        os.close(file)


BENCHMARKS = (
    Benchmark(
        name="queue-puts",
        title="Durable puts of items of 300 bytes, each confirmed: one producer",
        case="under way",
        metric="puts_per_second",
        ours=_OURS,
        run=run_puts,
        targets=(
            Target("RabbitMQ, pika", "puts_per_second", (64,), at_least=1),
            Target("RabbitMQ, pika", "puts_per_second", (64,), at_least=5, ours="rpcmq, put_many(100)"),
        ),
    ),
    Benchmark(
        name="queue-cycles",
        title="Put and worked: one producer, one worker",
        case="under way",
        metric="cycles_per_second",
        ours=_OURS,
        run=run_cycles,
        targets=(
            Target("Celery, RabbitMQ", "cycles_per_second", (64,), at_least=8),
            Target("Celery, Redis", "cycles_per_second", (64,), at_least=8),
            Target("", "cycles_per_second", (64,), at_least=6000),
            Target("Procrastinate, draining", "cycles_per_second", (64,), at_least=5, ours="rpcmq, PostgreSQL"),
            Target("", "cycles_per_second", (64,), at_least=3000, ours="rpcmq, PostgreSQL"),
        ),
    ),
)
