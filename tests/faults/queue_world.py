"""A world with work queues: routers with queue servers, producers and workers, all real processes that can be hurt."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from json import loads
from pathlib import Path
from time import monotonic
from typing import Any, Self

import gevent

from rpcmq.client import Client
from rpcmq.client.queue.messages import Message
from rpcmq.client.queue.protocol import LOOK, at_operators
from rpcmq.core.queue.envelope import Envelope
from rpcmq.core.queue.policy import Policy
from rpcmq.drill.history import Recorder
from rpcmq.store.contract import Note, Position, Store, Stored
from rpcmq.store.process import open_store
from rpcmq.testing import eventually
from rpcmq.testing.processes import Program, RouterProcess
from rpcmq.testing.router_mesh import RouterMesh
from tests.faults.queue_history import History, check, read_history
from tests.faults.queue_roles import QUEUE, Options, Seen, open_effects

__all__ = ["QUICK", "Place", "QueueWorld"]

#: Settings of routers that notice soon what is gone.
QUICK: dict[str, Any] = {
    "link_heartbeat_seconds": 0.25, "link_unresponsive_seconds": 1.5, "link_lost_seconds": 3,
    "link_resume_seconds": 2, "router_recovery_seconds": 0.5, "mesh_silence_seconds": 1.0, "mesh_lost_seconds": 2.5,
}  # fmt: skip
#: Seconds in which all that was put must be worked at once everything is whole.
DRAINED = 30.0
_PATIENCE = 60.0


@dataclass
class Place:
    """A producer, a worker or a queue server, in one life after the other."""

    name: str
    command: list[str]
    options: Options | None = None
    lives: int = 0
    program: Program | None = None

    @property
    def life(self) -> str:
        """The name of its present life in the history."""
        return f"{self.name}#{self.lives}"

    @property
    def running(self) -> Program:
        """Its process."""
        assert self.program is not None
        return self.program


class QueueWorld:
    """Routers in a mesh, each with its queue server.

    Args:
        folder: for histories and stores.
        routers: their number.
        database: url of a PostgreSQL server; empty: each owner has a file.
        policy: of the queue.
        config: of the routers.
    """

    def __init__(
        self, folder: Path, routers: int = 3, database: str = "", policy: Policy | None = None, **config: Any
    ) -> None:
        self.folder, self._database = folder, database
        self.recorder = Recorder(folder / "world.history", "world")
        self._effects = open_effects(folder)
        self._running = ExitStack()
        with self._running:
            self.mesh = self._running.enter_context(RouterMesh(routers, **QUICK | config))
            self.places: dict[str, Place] = {}
            self.owners = [router.name.removeprefix("router ") for router in self.mesh]
            # As a person would have declared it before.
            for owner in self.owners:
                self._declare(owner, policy or Policy(lease=2.0, losses=1000, attempts=1000, backoff=0.1))
            for router, owner in zip(self.mesh, self.owners, strict=True):
                self._add_server(owner, router)
            self._running = self._running.pop_all()

    def _store(self, owner: str) -> str:
        return self._database or str(self.folder / f"store-{owner}")

    def _open(self, owner: str) -> Store:
        return open_store(self._store(owner), owner)

    def _declare(self, owner: str, policy: Policy) -> None:
        store = self._open(owner)
        store.apply([Note(f"policy {QUEUE}", policy.to_bytes()), Note("clean", b"1")])
        store.close()  # type: ignore[attr-defined]

    # --- processes ---------------------------------------------------------------------------

    def _add_server(self, owner: str, router: RouterProcess) -> None:
        command = [sys.executable, "-m", "rpcmq.queue_server", "--router", router.url, "--owner", owner]
        place = Place(f"queue-{owner}", [*command, "--store", self._store(owner), "--drain-seconds", "5"])
        self._begin(place, "are served")

    def add_workers(self, *routers: str, **options: Any) -> list[Place]:
        """Start a worker at each of ``routers``, which are names; one at ``""`` goes on at another one."""
        return self._add_all("work", "w", routers, **options)

    def add_producers(self, *routers: str, **options: Any) -> list[Place]:
        """Start a producer at each of ``routers``, as workers are."""
        return self._add_all("produce", "p", routers, **options)

    def _add_all(self, role: str, letter: str, routers: Iterable[str], **options: Any) -> list[Place]:
        starting = []
        for router in routers:
            number = sum(name.startswith(letter) for name in self.places)
            name = f"{letter}{number}"
            place = Place(name, [], Options(name, name, str(self.folder), self._urls(router), **options))
            place.command = [sys.executable, "-m", "tests.faults.queue_roles", role]
            self.places[name] = place
            starting.append(place)
        gevent.joinall([gevent.spawn(self._begin, place, "^ready$") for place in starting], raise_error=True)
        return starting

    def _urls(self, router: str) -> list[str]:
        return [self.mesh[router].url] if router else self.mesh.urls

    def _begin(self, place: Place, ready: str) -> None:
        self.places[place.name] = place
        place.lives += 1
        command = place.command
        if place.options is not None:
            fields = vars(place.options) | {"name": place.life}
            command = [*command, Options(**fields).to_json()]
        place.program = self._running.enter_context(Program(command, name=place.life))
        place.program.expect(ready, _PATIENCE)

    def start(self, place: Place) -> None:
        """Start a place whose process has ended, and wait until it is ready."""
        self._begin(place, "are served" if place.options is None else "^ready$")

    # --- faults ------------------------------------------------------------------------------

    def kill(self, place: Place) -> None:
        """SIGKILL. Its children end by themselves."""
        self.recorder.write(Seen.FAULT, "kill", target=place.life)
        place.running.kill()

    def stop_for(self, target: str, pids: Sequence[int], seconds: float) -> None:
        """SIGSTOP the processes of ``target``, and SIGCONT after ``seconds``."""
        self.recorder.write(Seen.FAULT, "stop", target=target)
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        gevent.sleep(seconds)
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
        self.recorder.write(Seen.HEALED, "stop", target=target)

    def store_of(self, place: Place) -> int:
        """The process id of the store of a queue server."""
        return eventually(lambda: next(_children(place.running.pid), 0))

    def kill_store_of(self, place: Place) -> None:
        """SIGKILL the process with the store of a queue server."""
        os.kill(self.store_of(place), signal.SIGKILL)

    def kill_everything(self) -> None:
        """SIGKILL all processes, as far as possible at once."""
        for place in self.places.values():
            if place.running.exit_code is None:
                self.recorder.write(Seen.FAULT, "kill", target=place.life)
        programs = [place.running for place in self.places.values()] + self.mesh.routers
        for program in programs:
            program.signal(signal.SIGKILL)
        for program in programs:
            program.wait()

    def start_everything(self) -> None:
        """Start whatever does not run, producers that have put all excepted."""
        routers = [router for router in self.mesh if router.exit_code is not None]
        gevent.joinall([gevent.spawn(router.restart) for router in routers], raise_error=True)
        gone = [each for each in self.places.values() if each.running.exit_code not in (None, 0)]
        gevent.joinall([gevent.spawn(self.start, place) for place in gone], raise_error=True)

    def whole(self) -> None:
        """Everything runs, and nothing is cut from now on."""
        self.recorder.write(Seen.WHOLE)

    # --- the end -----------------------------------------------------------------------------

    @property
    def servers(self) -> list[Place]:
        """The queue servers."""
        return [place for name, place in self.places.items() if name.startswith("queue-")]

    def wait_put(self, seconds: float = 300.0) -> None:
        """Wait until all producers have put all."""
        for name, place in self.places.items():
            if name.startswith("p"):
                assert place.running.wait(seconds) == 0, place.running.said()

    def history(self, **more: Any) -> History:
        """What was written down so far."""
        effects = [str(item) for (item,) in self._effects.execute("SELECT item FROM effects")]
        return read_history(self.folder, effects, **more)

    def wait_done(self, seconds: float = DRAINED) -> None:
        """Wait until no queue has an item that waits or runs."""
        with Client(self.mesh.urls, shell="gevent") as client:
            deadline = monotonic() + seconds
            while left := {owner: row for owner in self.owners if any((row := _rows(client, owner)).values())}:
                if monotonic() > deadline: print([client.call(None, at_operators(LOOK, owner), {"method": "queues", "args": {}}, timeout=10.0) for owner in self.owners]); [print(p.name, p.running.said()) for p in self.places.values()]; [print(r.name, r.said()) for r in self.mesh]; print(subprocess.run(["py-spy","--version"]) if 0 else "")
                assert monotonic() < deadline, f"after {seconds:g} s there are still {left}"
                gevent.sleep(0.1)

    def finish(self) -> History:
        """End all, look into the stores, and check what was promised."""
        others = [place for place in self.places.values() if not place.name.startswith("queue-")]
        for group in (others, self.servers):
            for place in group:
                place.running.signal(signal.SIGTERM)
            for place in group:
                place.running.wait()
        left, dead = 0, []
        for owner in self.owners:
            store = self._open(owner)
            recovered = store.recovered
            left += sum(recovered.ready.values()) + sum(recovered.postponed.values())
            dead += list(_dead(store))
            store.close()  # type: ignore[attr-defined]
        history = self.history(dead=dead, left=left)
        found = check(history)
        assert not found, f"{len(found)} promises broken:\n" + "\n".join(found[:20])
        return history

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._running.close()
        self.recorder.close()
        self._effects.close()


def _rows(client: Client, owner: str) -> dict[str, int]:
    """The numbers of items of ``owner`` that wait or run."""
    answer = client.call(None, at_operators(LOOK, owner), {"method": "queues", "args": {}}, timeout=10.0)
    states = ("ready", "postponed", "running")
    return {state: sum(row[state] for row in answer["queues"]) for state in states}


def _children(pid: int) -> Iterator[int]:
    try:
        text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    except OSError:
        return  # it has ended
    yield from map(int, text.split())


def _dead(store: Store) -> Iterator[str]:
    after = Position()
    while found := store.read_dead(QUEUE, after, 1000, 1 << 20):
        for each in found:
            assert isinstance(each, Stored)
            body = Message.from_bytes(Envelope.from_bytes(each.body).message).body
            yield loads(body)["args"]["item"]
        after = found[-1].position
