"""Kills routers again and again while a worker is stopped, or is killed, too: each fence is held by one worker.

``python -m tests.faults.queue_router_deaths KILLS ROUTERS [SEED]``: counts items, attempts and kills; fails as the
test does.
"""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from pathlib import Path
from random import Random

import gevent

from tests.faults.queue_history import History
from tests.faults.queue_roles import Seen
from tests.faults.queue_world import Place, QueueWorld

__all__ = ["kill_routers"]

#: Workers, items of a worker at the same time, the longest run of an item (seconds), and items a second.
_WORKERS, _CONCURRENCY, _LONGEST, _RATE = 4, 3, 2.0, 8.0
#: Seconds for which a router stays away.
_AWAY = 0.3


def kill_routers(folder: Path, kills: int, routers: int, seed: int = 0) -> tuple[History, Counter[str]]:
    """Kill a router so often, and check all that was promised; return the history and the numbers of what was done."""
    random, counts = Random(seed), Counter[str]()
    with QueueWorld(folder, routers, router_recovery_seconds=1.0) as world:
        world.add_workers(*[""] * _WORKERS, concurrency=_CONCURRENCY, seconds=_LONGEST)
        world.add_producers(*world.owners, count=int(kills * 3.5 * _RATE / routers), rate=_RATE / routers)
        for number in range(kills):
            gevent.sleep(random.uniform(0.5, 1.5))
            worker = world.places[f"w{number % _WORKERS}"]
            hurt = random.choice([_stop, _kill])
            counts[hurt.__name__.strip("_")] += 1
            hurting = gevent.spawn(hurt, world, worker, random)
            router = world.mesh[random.choice(world.owners)]
            gevent.sleep(random.uniform(0.0, 0.1))
            world.recorder.write(Seen.FAULT, "kill", target=router.name)
            router.kill()
            gevent.sleep(random.uniform(0.0, _AWAY))
            router.restart()
            world.recorder.write(Seen.HEALED, "kill", target=router.name)
            counts["routers killed"] += 1
            hurting.get()
        return world.drain(), counts


def _stop(world: QueueWorld, worker: Place, random: Random) -> None:
    world.stop_for(worker.life, [worker.running.pid], random.choice((1.0, 2.0, 3.0, 5.0, 8.0)))


def _kill(world: QueueWorld, worker: Place, random: Random) -> None:
    gevent.sleep(random.uniform(0.0, 0.3))
    world.kill(worker)
    gevent.sleep(random.uniform(0.0, 3.0))
    world.start(worker)


if __name__ == "__main__":
    arguments = [int(each) for each in sys.argv[1:]]
    with tempfile.TemporaryDirectory() as place:
        found, numbers = kill_routers(Path(place), *arguments)
    again = sum(count > 1 for count in Counter(each.item for each in found.attempts).values())
    print(f"{len(found.accepted)} items, {len(found.attempts)} attempts, {again} items again, {dict(numbers)}")
