"""Row 1 of the fault matrix: routers, workers, producers, queue servers and stores are killed, stopped and cut in turn.

``python -m tests.faults.queue_drill SEEDS STORE COUNT [LONGEST]`` runs the seeds ``5`` or ``5-8`` one after the other,
with the store ``file`` or ``database``, so many items each, and faults of at most ``LONGEST`` seconds. It prints what
the histories say.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
import traceback
from collections import Counter
from pathlib import Path
from random import Random
from time import monotonic
from typing import Any

from tests.faults.queue_faults import QueueFaults
from tests.faults.queue_history import History
from tests.faults.queue_world import QueueWorld
from tests.store.postgres_server import PostgresServer

__all__ = ["drill"]

#: Seconds that a fault lasts, at the most.
_LONGEST = 8.0


def drill(
    folder: Path, count: int, seed: int, longest: float = _LONGEST, postgres: PostgresServer | None = None
) -> tuple[History, Counter[str]]:
    """Put ``count`` items while everything is hurt in turn, until all are put; return what happened, and the faults.

    Raises:
        AssertionError: something that was promised does not hold; or it is not drained in time.
    """
    random = Random(seed)
    print(f"seed {seed}")
    with QueueWorld(folder, 3, "" if postgres is None else postgres.url) as world:
        world.add_workers("a", "b", "c", *[""] * 3, failing=0.01)
        world.add_producers("a", "b", "c", "a", count=count // 4, keys=5, rate=min(100.0, count / 60))
        faults = QueueFaults(world, random, longest, postgres)
        faults.all_in_turn()
        producers = [place for name, place in world.places.items() if name.startswith("p")]
        is_put = lambda: all(place.running.exit_code is not None for place in producers)  # noqa: E731
        while not is_put():
            faults.all_in_turn(lambda: not is_put())
        return world.drain(is_shared=True), faults.counts


def _figures(history: History, faults: Counter[str]) -> dict[str, Any]:
    effects = history.effects.values()
    since = max(event.at for event in history.events if event.what == "equal")
    return {
        "put": len(history.put), "accepted": len(history.accepted), "done": len(history.done),
        "effects": sum(effects), "effects twice": sum(each > 1 for each in effects),
        "lost": len(history.accepted.keys() - history.done.keys() - history.dead), "dead": len(history.dead),
        "drained after": round(history.seconds_to_drain(), 1), "shares": list(history.shares(since).values()),
        "faults": dict(sorted(faults.items())),
    }  # fmt: skip


def _run(seed: int, store: str, count: int, longest: float, postgres: PostgresServer | None) -> bool:
    began = monotonic()
    folder = Path(tempfile.mkdtemp(prefix="queue-drill-"))
    try:
        row = _figures(*drill(folder, count, seed, longest, postgres))
        shutil.rmtree(folder)
    except Exception:
        # The next seed is tried nevertheless; what the processes have written of this one stays.
        traceback.print_exc()
        row = {"failed": True, "histories": str(folder)}
    print("result", json.dumps({"seed": seed, "store": store, "seconds": round(monotonic() - began)} | row), flush=True)
    return "failed" not in row


def _main(seeds: str, store: str, count: str, longest: str = str(_LONGEST)) -> int:
    first, _, last = seeds.partition("-")
    ok = True
    for seed in range(int(first), int(last or first) + 1):
        if store == "file":
            ok &= _run(seed, store, int(count), float(longest), None)
            continue
        # A store that a seed before has left is none of its business.
        with PostgresServer(is_synced=False) as postgres:
            ok &= _run(seed, store, int(count), float(longest), postgres)
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(_main(*sys.argv[1:]))
