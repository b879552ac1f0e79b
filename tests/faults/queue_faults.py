"""The faults of a world with queues, in turn: each thing is killed, stopped or cut, and whole again a little later."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random

import gevent
import psycopg

from tests.faults.queue_roles import Seen
from tests.faults.queue_world import Place, QueueWorld
from tests.store.postgres_server import PostgresServer

__all__ = ["QueueFaults"]

#: Ends the sessions of all owners.
_CUT_OFF = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'rpcmq queue of %'"


class QueueFaults:
    """The faults of ``world``.

    Args:
        longest: seconds that a fault lasts, at the most.
        postgres: the database server that it uses; None: each owner has a file.

    Attributes:
        counts: how often each has happened.
    """

    def __init__(
        self, world: QueueWorld, random: Random, longest: float, postgres: PostgresServer | None = None
    ) -> None:
        self._world, self._random, self._longest = world, random, longest
        self._postgres = postgres
        self.counts: Counter[str] = Counter()
        self.faults: list[Callable[[], None]] = [
            self._kill_worker, self._stop_worker, self._kill_producer, self._kill_router, self._stop_router,
            self._kill_server, self._stop_server, self._kill_store, self._stop_store, self._cut, self._cut_one_way,
            self._cut_worker,
        ]  # fmt: skip
        if postgres is not None:
            self.faults += [self._kill_database, self._cut_sessions]

    def all_in_turn(self, goes_on: Callable[[], bool] = lambda: True) -> None:
        """Let each of them happen once, in any order, for as long as ``goes_on``."""
        for fault in self._random.sample(self.faults, len(self.faults)):
            if not goes_on():
                return
            self.counts[fault.__name__.strip("_")] += 1
            print(f"{fault.__name__.strip('_')}", flush=True)
            fault()
            gevent.sleep(self._random.uniform(0.0, 0.5))

    # --- programs ----------------------------------------------------------------------------

    def _place(self, letter: str) -> Place:
        return self._random.choice([place for name, place in self._world.places.items() if name.startswith(letter)])

    def _seconds(self) -> float:
        return self._random.uniform(0.2, self._longest)

    def _kill_worker(self) -> None:
        self._kill(self._place("w"))

    def _kill_producer(self) -> None:
        self._kill(self._place("p"))

    def _kill(self, place: Place) -> None:
        if place.running.exit_code is None:
            self._world.kill(place)
            gevent.sleep(self._seconds() / 4)
            self._world.start(place)

    def _stop_worker(self) -> None:
        worker = self._place("w")
        self._world.stop_for(worker.life, [worker.running.pid], self._seconds())

    # --- routers and queue servers -----------------------------------------------------------

    def _owner(self) -> str:
        return self._random.choice(self._world.owners)

    def _kill_router(self) -> None:
        router = self._world.mesh[self._owner()]
        router.kill()
        gevent.sleep(self._seconds() / 4)
        router.restart()

    def _stop_router(self) -> None:
        owner = self._owner()
        self._world.stop_for(owner, [self._world.mesh[owner].pid], self._seconds())

    def _kill_server(self) -> None:
        owner = self._owner()
        self._world.kill_process(f"queue {owner}", self._world.server(owner))

    def _stop_server(self) -> None:
        owner = self._owner()
        self._world.stop_for(f"queue {owner}", [self._world.server(owner)], self._seconds())

    def _kill_store(self) -> None:
        owner = self._owner()
        self._world.kill_process(f"store {owner}", self._world.store(owner))

    def _stop_store(self) -> None:
        owner = self._owner()
        self._world.stop_for(f"store {owner}", [self._world.store(owner)], self._seconds())

    def _cut(self, is_one_way: bool = False) -> None:
        one, other = self._random.sample(self._world.mesh.routers, 2)
        self._cut_for(f"{one.name} {other.name}", lambda: self._world.mesh.cut(one, other, is_one_way))

    def _cut_one_way(self) -> None:
        self._cut(is_one_way=True)

    def _cut_worker(self) -> None:
        worker = self._place("w")
        self._cut_for(worker.life, lambda: self._world.mesh.cut_off(worker.running.pid))

    def _cut_for(self, target: str, cut: Callable[[], None]) -> None:
        self._world.recorder.write(Seen.FAULT, "cut", target=target)
        cut()
        gevent.sleep(self._seconds())
        self._world.mesh.heal()
        self._world.recorder.write(Seen.HEALED, "cut", target=target)

    # --- databases ---------------------------------------------------------------------------

    def _kill_database(self) -> None:
        assert self._postgres is not None
        self._postgres.kill()
        gevent.sleep(self._seconds() / 4)
        self._postgres.start()

    def _cut_sessions(self) -> None:
        assert self._postgres is not None
        with psycopg.connect(self._postgres.url, autocommit=True) as connection:
            connection.execute(_CUT_OFF)
