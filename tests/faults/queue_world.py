"""A world with work queues: routers with queue servers, producers and workers, all real processes that can be hurt."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from io import FileIO
from json import loads
from pathlib import Path
from typing import Any, Self

import gevent

from rpcmq.client import Client
from rpcmq.client.queue.messages import Message
from rpcmq.client.queue.protocol import CHANGE, LOOK, at_operators
from rpcmq.core.queue.envelope import Envelope
from rpcmq.drill.history import Recorder
from rpcmq.drill.router_links import CuttableMesh
from rpcmq.store.contract import Position, Store, Stored
from rpcmq.store.process import open_store
from rpcmq.testing import eventually
from rpcmq.testing.processes import Program, RouterProcess
from tests.faults.queue_history import History, check, read_history
from tests.faults.queue_roles import QUEUE, Options, Seen, open_effects

__all__ = ["LASTING", "QUICK", "Place", "QueueWorld"]

#: Settings of routers that notice soon what is gone.
QUICK: dict[str, Any] = {
    "link_heartbeat_seconds": 0.25, "link_unresponsive_seconds": 1.5, "link_lost_seconds": 3,
    "link_resume_seconds": 2, "router_recovery_seconds": 0.5, "mesh_silence_seconds": 1.0, "mesh_lost_seconds": 2.5,
    "queue_orphan_seconds": 10,
}  # fmt: skip
#: Settings of a queue whose items are tried for ever, and soon.
LASTING: Mapping[str, Any] = {"lease": 2.0, "losses": 1000, "attempts": 1000, "backoff": 0.1}
#: Seconds in which all that was put must be worked at once everything is whole.
DRAINED = 30.0
#: Variable of all processes of a world, with its folder.
_WORLD = "QUEUE_WORLD"
_PATIENCE = 60.0


@dataclass
class Place:
    """A producer or a worker, in one life after the other."""

    role: str
    options: Options
    lives: int = 0
    program: Program | None = None

    @property
    def name(self) -> str:
        """Its name in the history."""
        return self.options.place

    @property
    def life(self) -> str:
        """The name of its present life."""
        return f"{self.name}#{self.lives}"

    @property
    def running(self) -> Program:
        """Its process."""
        assert self.program is not None
        return self.program


class _QueueMesh(CuttableMesh):
    """Routers with queue servers.

    Args:
        folder: for their directories.
        database: url of a PostgreSQL server; empty: each has a file.
    """

    def __init__(self, folder: Path, database: str, count: int, **config: Any) -> None:
        self._folder, self._database = folder, database
        super().__init__(count, **config)

    def _start(self, number: int, **more: Any) -> RouterProcess:
        directory = str(self._folder / f"queues-{chr(ord('a') + number)}")
        return super()._start(number, queue_dir=directory, queue_store=self._database, **more)


class QueueWorld:
    """Routers in a mesh, each with its queue server.

    Args:
        folder: for histories and stores.
        routers: their number.
        database: url of a PostgreSQL server; empty: each owner has a file.
        settings: of the queue.
        config: of the routers.

    Attributes:
        database: the url by which this process looks into it at the end.
    """

    def __init__(
        self, folder: Path, routers: int = 3, database: str = "", settings: Mapping[str, Any] = LASTING, **config: Any
    ) -> None:
        self.folder, self.database = folder, database
        self.recorder = Recorder(folder / "world.history", "world")
        self._effects = open_effects(folder)
        self._running = ExitStack()
        with self._running:
            # All that is started from now on inherits it, and is known by it.
            os.environ[_WORLD] = str(folder)
            self._running.callback(self._end_all)
            self.mesh = self._running.enter_context(_QueueMesh(folder, database, routers, **QUICK | config))
            self._running.callback(self._end_all)
            self.places: dict[str, Place] = {}
            self.owners = [router.name.removeprefix("router ") for router in self.mesh]
            self._client = self._running.enter_context(Client(self.mesh.urls, shell="gevent"))
            for owner in self.owners:
                arguments = {"queue": QUEUE, "settings": dict(settings), "create": True}
                answer = self.operate(CHANGE, owner, "set", **arguments)
                assert answer is not None and answer.get("settings"), answer
            self._running = self._running.pop_all()

    def operate(self, topic: str, owner: str, method: str, **arguments: Any) -> Any:
        """Do what an operator may."""
        message = {"method": method, "args": arguments}
        return self._client.call(None, at_operators(topic, owner), message, timeout=_PATIENCE)

    def _open(self, owner: str) -> Store:
        return open_store(self.database or str(self.folder / f"queues-{owner}"), owner)

    # --- processes ---------------------------------------------------------------------------

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
            urls = [self.mesh.urls[self.owners.index(router)]] if router else self.mesh.urls
            self.places[name] = place = Place(role, Options(name, name, str(self.folder), urls, **options))
            starting.append(place)
        gevent.joinall([gevent.spawn(self.start, place) for place in starting], raise_error=True)
        return starting

    def start(self, place: Place) -> None:
        """Start a place, and wait until it is ready."""
        place.lives += 1
        options = replace(place.options, name=place.life)
        command = [sys.executable, "-m", "tests.faults.queue_roles", place.role, options.to_json()]
        place.program = self._running.enter_context(Program(command, name=place.life))
        place.program.expect("^ready$", _PATIENCE)

    def rush(self, count: int, *, workers: int = 3, producers: int = 2, rate: float = 400.0) -> None:
        """Start workers that may go to any router, and producers that stay where they are."""
        self.add_workers(*[""] * workers, failing=0.02)
        self.add_producers(*self.owners[:producers], count=count // producers, keys=5, rate=rate)

    def drain(self, is_shared: bool = False) -> History:
        """Wait until all was put and worked at, end all, and check what was promised.

        Args:
            is_shared: the workers are equal: each is to do its share afterwards.
        """
        self.start_everything()
        self.wait_put()
        self.whole()
        self.wait_done()
        if is_shared:
            self.share()
        return self.finish()

    def share(self, items: int = 600) -> None:
        """Put items that take a quarter of a second each, which all workers are to share equally, and wait for them."""
        workers = sorted(name for name in self.places if name.startswith("w"))
        self.recorder.write(Seen.EQUAL, "", workers=workers)
        names = [f"shared-{number}" for number in range(items)]
        for name in names:
            self.recorder.write(Seen.PUTTING, name, key=None)
        messages = [{"method": "work", "args": {"item": name, "key": None, "seconds": 0.25}} for name in names]
        receipts = self._client.put_many(None, QUEUE, messages, timeout=_PATIENCE)
        for name, receipt in zip(names, receipts, strict=True):
            self.recorder.write(Seen.ACCEPTED, name, owner=receipt.owner, number=receipt.number, shown=receipt.id)
        self.wait_done(_PATIENCE)

    def server(self, owner: str) -> int:
        """The process id of the queue server of ``owner``."""
        return int(eventually(lambda: self._server(owner), _PATIENCE, f"{owner} has a queue server"))

    def _server(self, owner: str) -> int:
        try:
            pid = int(self.mesh[owner].view("queues")["pid"] or 0)
        except OSError:
            return 0  # the router does not run
        # One that the router did not start itself stays in its view for a moment after it was killed.
        return pid if _lives(pid) else 0

    def store(self, owner: str) -> int:
        """The process id of the store of the queue server of ``owner``."""
        return int(eventually(lambda: next(_stores(self.server(owner)), 0), _PATIENCE, f"{owner} has a store"))

    # --- faults ------------------------------------------------------------------------------

    def kill(self, place: Place) -> None:
        """SIGKILL."""
        self.recorder.write(Seen.FAULT, "kill", target=place.life)
        place.running.kill()

    def kill_process(self, target: str, pid: int) -> None:
        """SIGKILL a queue server or a store, and wait for its end: nobody takes it for one that runs then."""
        self.recorder.write(Seen.FAULT, "kill", target=target)
        _kill([pid])
        eventually(lambda: not _lives(pid), _PATIENCE, f"{target} has ended")

    def stop_for(self, target: str, pids: Sequence[int], seconds: float) -> None:
        """SIGSTOP the processes of ``target``, and SIGCONT after ``seconds`` those that nobody has killed meanwhile."""
        with ExitStack() as stack:
            stopped = [stack.enter_context(process) for pid in pids if (process := _process(pid))]
            self.recorder.write(Seen.FAULT, "stop", target=target)
            _signal(stopped, signal.SIGSTOP)
            gevent.sleep(seconds)
            _signal(stopped, signal.SIGCONT)
            self.recorder.write(Seen.HEALED, "stop", target=target)

    def kill_everything(self) -> None:
        """SIGKILL all processes, as far as possible at once."""
        servers = [pid for pid in map(self._server, self.owners) if pid]
        servers += [store for pid in servers for store in _stores(pid)]
        for place in self.places.values():
            if place.running.exit_code is None:
                self.recorder.write(Seen.FAULT, "kill", target=place.life)
        programs = [*self.mesh.routers, *(place.running for place in self.places.values())]
        for program in programs:
            program.signal(signal.SIGKILL)
        _kill(servers)
        for program in programs:
            program.wait()

    def start_everything(self) -> None:
        """Start whatever does not run, but for producers that have put all."""
        routers = [router for router in self.mesh if router.exit_code is not None]
        gevent.joinall([gevent.spawn(router.restart) for router in routers], raise_error=True)
        gone = [each for each in self.places.values() if each.running.exit_code not in (None, 0)]
        gevent.joinall([gevent.spawn(self.start, place) for place in gone], raise_error=True)

    def whole(self) -> None:
        """Everything runs, and nothing is cut from now on."""
        self.recorder.write(Seen.WHOLE)

    # --- the end -----------------------------------------------------------------------------

    def wait_put(self, seconds: float = 300.0) -> None:
        """Wait until all producers have put all."""
        for name, place in self.places.items():
            if name.startswith("p"):
                assert place.running.wait(seconds) == 0, place.running.said()

    def wait_accepted(self, count: int) -> None:
        """Wait until so many items were accepted, and more are being put."""
        eventually(lambda: len(self.history().accepted) >= count, _PATIENCE, f"{count} items are accepted")

    def history(self, **more: Any) -> History:
        """What was written down so far."""
        effects = [str(item) for (item,) in self._effects.execute("SELECT item FROM effects")]
        return read_history(self.folder, effects, **more)

    def wait_done(self, seconds: float = DRAINED) -> None:
        """Wait until no queue has an item that waits or runs."""

        def is_done() -> bool:
            left = {owner: rows for owner in self.owners if any((rows := self.left(owner)).values())}
            assert not left, f"there are still {left}"
            return True

        eventually(is_done, seconds, "all is worked at")

    def left(self, owner: str) -> dict[str, int]:
        """The numbers of items of ``owner`` that wait or run, and of requests that its store has not answered."""
        answer = self.operate(LOOK, owner, "queues")
        numbers = {state: sum(row[state] for row in answer["queues"]) for state in ("ready", "postponed", "running")}
        # One that has failed just now is in none of these states before the store knows.
        return numbers | {"unanswered": answer["store"]["unanswered"]}

    def finish(self) -> History:
        """End all, look into the stores, and check what was promised."""
        for group in ([place.running for place in self.places.values()], self.mesh.routers):
            for program in group:
                program.signal(signal.SIGTERM)
            for program in group:
                program.wait()
        left, dead = 0, []
        for owner in self.owners:
            store = self._open(owner)
            recovered = store.recovered
            left += sum(recovered.ready.values()) + sum(recovered.postponed.values())
            dead += list(_dead(store))
            store.close()
        history = self.history(dead=dead, left=left)
        found = check(history)
        assert not found, f"{len(found)} promises broken:\n" + "\n".join(found[:20])
        return history

    def _end_all(self) -> None:
        """Kill all processes of this world: queue servers and stores outlive routers, and some may be stopped."""
        os.environ.pop(_WORLD, None)
        mark = f"{_WORLD}={self.folder}".encode()

        def has_ended() -> bool:
            pids = [pid for pid in _others() if mark in _environment(pid)]
            _kill(pids)
            assert not pids, f"{pids} live"
            return True

        eventually(has_ended, _PATIENCE, "no process of the world is left")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._running.close()
        self.recorder.close()
        self._effects.close()


def _process(pid: int) -> FileIO | None:
    """A file that stands for this process, and never for a later one of its number; None: it has ended."""
    with suppress(ProcessLookupError):
        return FileIO(os.pidfd_open(pid))
    return None


def _signal(processes: Iterable[FileIO], number: int) -> None:
    for process in processes:
        try:
            signal.pidfd_send_signal(process.fileno(), number)
        except ProcessLookupError:
            pass  # it has ended: a queue server kills its store where that does not end in time


def _lives(pid: int) -> bool:
    """Return whether a process runs or is stopped, and has not ended."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


def _others() -> list[int]:
    """All processes but this one."""
    return [int(entry) for entry in os.listdir("/proc") if entry.isdigit() and int(entry) != os.getpid()]


def _environment(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []  # it has ended, or is another user's


def _stores(server: int) -> Iterator[int]:
    """The process ids of the stores of a queue server."""
    try:
        children = Path(f"/proc/{server}/task/{server}/children").read_text().split()
    except OSError:
        return  # it has ended
    for child in children:
        try:
            if b"rpcmq.store.process" in Path(f"/proc/{child}/cmdline").read_bytes():
                yield int(child)
        except OSError:
            pass  # it has just ended


def _kill(pids: Iterable[int]) -> None:
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass  # it has ended


def _dead(store: Store) -> Iterator[str]:
    after = Position()
    while found := store.read_dead(QUEUE, after, 1000, 1 << 20):
        for each in found:
            assert isinstance(each, Stored)
            body = Message.from_bytes(Envelope.from_bytes(each.body).message).body
            yield loads(body)["args"]["item"]
        after = found[-1].position
