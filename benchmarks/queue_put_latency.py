"""The latency of a durable put, beside that of a call and of a sync of the disk."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from benchmarks.children import Child
from benchmarks.disk import sync_sample
from benchmarks.ends import both
from benchmarks.queue_rivals import OURS
from benchmarks.report import Benchmark, Options, Row, Target

__all__ = ["BENCHMARK"]

_PUT, _CALL, _SYNC = "put", "call", "sync of 4 KiB"
_GOAL = "call + 2 syncs + 150 \N{MICRO SIGN}s"
_EXTRA = 150.0
#: Items after which the store's write-ahead log begins anew: while it grows, a sync takes several times as long.
_WARMING = 40_000


def run(options: Options) -> list[Row]:
    """One at a time, in turns, over the same router."""
    if reason := OURS.missing():
        options.notice(f"{OURS.name}: {reason}")
        return []
    rows = {system: Row(system, 1, []) for system in (_PUT, _CALL, _SYNC, _GOAL)}
    with tempfile.TemporaryDirectory(prefix="rpcmq-bench-") as folder:
        pipe = Path(folder) / "worked"
        os.mkfifo(pipe)
        with OURS.start(str(pipe)) as queue, queue.producer() as producing, both(queue.url, ["compute"]) as calling:
            queue.fill(_WARMING)
            for _ in range(options.rounds):
                put = _ask(producing, options.seconds, is_worked=False)
                call = _ask(calling, options.seconds, verb="call")
                sync = sync_sample(Path(folder), options.seconds)
                del sync["per_second"]
                goal = {"p50_us": call["p50_us"] + 2 * sync["p50_us"] + _EXTRA}
                for system, sample in {_PUT: put, _CALL: call, _SYNC: sync, _GOAL: goal}.items():
                    rows[system].samples.append(sample)
    return list(rows.values())


def _ask(child: Child, seconds: float, **command: object) -> dict[str, float]:
    result = child.ask(seconds, width=1, seconds=seconds, **command)
    return {name: result[name] for name in ("p50_us", "p99_us")}


BENCHMARK = Benchmark(
    name="queue-put-latency",
    title="A durable put, one at a time",
    case="under way",
    metric="p50_us",
    ours=_PUT,
    run=run,
    targets=(Target(_GOAL, "p50_us", (1,), at_most=1.0),),
)
