"""Routers with the node poison under faults, in virtual time: the same seed gives the same run.

Workers die of some methods, and by chance, and it is known of each method how many have died while they ran it. To see
one seed::

    python -m tests.faults.poison_simulation 17 rough      # or quiet, or kept
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from dataclasses import dataclass
from itertools import count
from random import Random
from typing import Any

from rpcmq.core.router.router import Router
from rpcmq.core.router.settings import Settings
from rpcmq.errors import CallQuarantined, error_for
from rpcmq.nodes.keeper import Keeper
from rpcmq.nodes.poison import Poison
from rpcmq.nodes.poison.node import POISON_KIND
from rpcmq.testing.invariants import check_router
from rpcmq.testing.mesh_network import Call, MeshNetwork, Process
from rpcmq.testing.nodes import engine_with, node_of, plan_of, plug_in_of
from rpcmq.testing.process import Message
from rpcmq.wire import Flag, Kind

__all__ = ["PoisonSimulation"]

_ROUTERS = "abc"
_STEPS, _WORKERS = 120, 6
#: A link between routers that was cut or a router that was killed is back, and all have told each other, after so long;
#: nobody has died for long enough to end doubtful quarantines.
_SETTLED_SECONDS = 100.0
_MAX_QUARANTINED, _MAX_SUSPECTS, _MAX_KILLS = 20, 2_000, 10
#: Workers that a method kills, at most, where nobody dies by chance: where an innocent call dies with it each time, the
#: five tries of both, and another one.
_MOST_DEATHS = 6


@dataclass(eq=False)
class Worker:
    """A process that consumes, with the messages that it has and what becomes of them when."""

    name: str
    process: Process
    router: str
    seen: int = 0


class PoisonSimulation:
    """One run.

    Args:
        is_rough: whether workers die by chance as well, and routers and the links between them fail.
        keeps: whether quarantines are on a disk, and all routers are killed at once now and then.
        settings: of the node.

    Attributes:
        deaths: of each method, how many workers have died while they had it.
        has_chance_deaths: whether workers have died by chance.
        stopped: how many calls were stopped.
        told: what has happened, line by line.
    """

    def __init__(self, seed: int, is_rough: bool, keeps: bool = False, **settings: Any) -> None:
        self._random = random = Random(f"poison {seed}")
        self._is_rough = is_rough
        self._plan = plan_of(Poison, settings={"max_quarantined": _MAX_QUARANTINED, **settings})
        self._keepers = {name: Keeper(1 << 20) for name in _ROUTERS} if keeps else {}
        self.net = MeshNetwork(_ROUTERS, engine=self._engine)
        self._booted = dict.fromkeys(_ROUTERS, self.net.now)
        self.net.advance(3.0)
        self._numbers = count()
        self._workers: dict[str, Worker] = {}
        self._due: list[tuple[float, int, str, Message]] = []
        self._callers = {name: self.net.process(f"api-{name}", router=name) for name in _ROUTERS}
        #: Methods that kill, and seconds after which they do.
        self.killers = {f"kill-{n}": random.choice((0.0, 0.01, 0.3)) for n in range(random.randint(1, 3))}
        self._open: dict[str, Call] = {}
        self.deaths: Counter[str] = Counter()
        self.has_chance_deaths = False
        self.stopped = 0
        self.told: list[str] = []
        for _ in range(_WORKERS):
            self._start_worker()

    def _engine(self, router: Settings, *args: Any, **options: Any) -> Router:
        keeper = self._keepers.get(router.router_name)
        keepers = {} if keeper is None else {"poison": keeper}
        return engine_with(self._plan, keepers=keepers)(router, *args, **options)

    def run(self) -> None:
        """Do it.

        Raises:
            AssertionError: an invariant does not hold.
        """
        for _ in range(_STEPS):
            self._act()
            self._advance(self._random.choice((0.02, 0.2, 1.5)))
        self._mend()
        self._advance(_SETTLED_SECONDS)
        self._check_end()

    # --- what happens ------------------------------------------------------------------------

    def _act(self) -> None:
        rough = ("death", "death", "lose", "restart", "cut", "heal", "leave") if self._is_rough else ("leave",)
        what = self._random.choice((*["call"] * 12, *rough, *(("blackout",) if self._keepers else ())))
        self._tell(what)
        if what == "call":
            self._call()
        elif what == "restart":
            self._restart(self._random.choice(_ROUTERS))
        elif what == "blackout":
            self._restart(*self._random.sample(_ROUTERS, len(_ROUTERS)))
        elif what in ("cut", "heal"):
            one, other = self._random.sample(_ROUTERS, 2)
            (self.net.cut if what == "cut" else self.net.heal)(one, other)
        elif len(self._workers) > 2:
            worker = self._random.choice(list(self._workers.values()))
            if what == "death":
                self.has_chance_deaths = True
                self._die(worker)
            elif what == "leave":
                self._drop(worker)
                worker.process.stop()
                self._start_worker()
            else:
                worker.process.lose()
                worker.process.connect()

    def _tell(self, text: str) -> None:
        self.told.append(f"{self.net.now:9.3f} {text}")

    def _call(self) -> None:
        random = self._random
        method = f"once-{next(self._numbers)}" if random.random() < 0.7 else "often"
        if random.random() < 0.3:
            method = random.choice(list(self.killers))
            if method in self._open and not self._open[method].ends:
                return  # one at a time: those who die of it together look like a host that fails
        self.send(random.choice(_ROUTERS), method, random.random() < 0.7)

    def send(self, router: str, method: str, is_idempotent: bool = False) -> Call:
        """Make a call at ``router``."""
        flags = Flag.IDEMPOTENT if is_idempotent else 0
        call = self._open[method] = self._callers[router].request("compute", method, b"{}", flags=flags, ttl=60)
        self._tell(f"{method} is called at {router}")
        return call

    def _restart(self, *routers: str) -> None:
        for worker in [each for each in self._workers.values() if each.router in routers]:
            self._drop(worker)
            worker.process.stop()
        now = self.net.now
        before = {router: self.quarantined_at(router) for router in _ROUTERS}
        for router in routers:
            self.net.hosts[router].kill()
        for router in routers:
            self.net.hosts[router].start(clock_step=now - self._booted[router])
            self._booted[router] = now
            if self._keepers and len(routers) == len(_ROUTERS):
                assert self.quarantined_at(router) >= before[router], f"router {router} has forgotten something"
            self._callers[router].stop()
            self._callers[router] = self.net.process(f"api-{router}-{next(self._numbers)}", router=router)
        while len(self._workers) < _WORKERS:
            self._start_worker()

    def _start_worker(self) -> None:
        name, router = f"w{next(self._numbers)}", self._random.choice(_ROUTERS)
        process = self.net.process(name, router=router, host=f"host of {name}", pid=1)
        process.register("compute", credit=4)
        self._workers[name] = Worker(name, process, router)

    def _drop(self, worker: Worker) -> list[str]:
        """Take the worker away; return the methods that it was running."""
        del self._workers[worker.name]
        had = [message.method for _, _, name, message in self._due if name == worker.name]
        self._due = [each for each in self._due if each[2] != worker.name]
        return had

    def _die(self, worker: Worker) -> None:
        had = self._drop(worker)
        self.deaths.update(set(had))
        self._tell(f"{worker.name} at {worker.router} dies with {had}")
        worker.process.die()
        self._start_worker()

    # --- time --------------------------------------------------------------------------------

    def _advance(self, seconds: float) -> None:
        until = self.net.now + seconds
        while self.net.now < until:
            self._look_at_inboxes()
            next_at = min((at for at, *_ in self._due), default=until)
            self.net.advance(max(0.0, min(next_at, until, self.net.now + 0.5) - self.net.now))
            self._look_at_inboxes()
            for due in [each for each in self._due if each[0] <= self.net.now]:
                if due in self._due:
                    self._due.remove(due)
                    self._end(*due)
            self._check()

    def _look_at_inboxes(self) -> None:
        for worker in self._workers.values():
            inbox = worker.process.inbox
            for message in inbox[worker.seen :]:
                if message.kind is Kind.REQUEST:
                    kills_after = self.killers.get(message.method)
                    takes = self._random.choice((0.0, 0.1, 2.0)) if kills_after is None else kills_after
                    self._due.append((self.net.now + takes, next(self._numbers), worker.name, message))
            worker.seen = len(inbox)

    def _end(self, at: float, number: int, name: str, message: Message) -> None:
        worker = self._workers[name]
        if message.method not in self.killers:
            worker.process.reply(message, b"done")
            return
        self._due.append((at, number, name, message))
        self._die(worker)

    def _mend(self) -> None:
        self.net.heal()
        self._tell("all is well again")

    # --- invariants --------------------------------------------------------------------------

    def _check(self) -> None:
        for router in _ROUTERS:
            check_router(self.net.router_of(router))
            plug_in = plug_in_of(self.net.router_of(router), "poison")
            assert not plug_in.out, f"the node is out of router {router}: {plug_in.out}"
            evidence = node_of(self.net.router_of(router), "poison")._evidence
            assert len(evidence.quarantined) <= _MAX_QUARANTINED and len(evidence.suspects) <= _MAX_SUSPECTS
            for suspect in [*evidence.quarantined.values(), *evidence.suspects.values()]:
                assert len(suspect.kills) <= _MAX_KILLS
            for method in self.quarantined_at(router):
                assert self.deaths[method] >= 2, f"{method} has killed {self.deaths[method]}"
                assert self.has_chance_deaths or method in self.killers, f"{method} has killed nobody"

    def quarantined_at(self, router: str) -> set[str]:
        """The methods that are quarantined at ``router``."""
        evidence = node_of(self.net.router_of(router), "poison")._evidence
        return {each.call.method for each in evidence.quarantined.values()}

    def _check_end(self) -> None:
        all_of_them = {router: self.quarantined_at(router) for router in _ROUTERS}
        quarantined = all_of_them["a"]
        assert all(each == quarantined for each in all_of_them.values()), f"routers do not agree: {all_of_them}"
        if not self.has_chance_deaths:
            for method in self.killers:
                assert (method in quarantined) == (self.deaths[method] >= 2) or self.deaths[method] < _MOST_DEATHS
                assert self.deaths[method] <= _MOST_DEATHS, f"{method} has killed {self.deaths[method]}"
        for method in sorted(quarantined):
            before = self.deaths[method]
            for router in _ROUTERS:
                call = self.send(router, method, is_idempotent=True)
                self._advance(1.0)
                (end,) = call.ends
                assert end.kind is Kind.ERROR, f"{method} is not stopped at {router}"
                error = error_for(end.outcome, end.body["text"], end.body.get("details"))
                assert isinstance(error, CallQuarantined), f"{method} ends with {error!r} at {router}"
                self.stopped += 1
            assert self.deaths[method] == before, f"{method} was given to a consumer while it was quarantined"
        self._release(sorted(quarantined))

    def _release(self, quarantined: list[str]) -> None:
        at = self._random.choice(_ROUTERS)
        self._tell(f"{quarantined} are released at {at}")
        ask = json.dumps({"do": "release", "fingerprint": ""}).encode()
        call = self._callers[at].send(POISON_KIND, ask, ttl=60_000)
        self._advance(5.0)
        (answer,) = call.answers
        assert len(json.loads(answer.payload)["calls"]) == len(quarantined)
        for router in _ROUTERS:
            assert not self.quarantined_at(router), f"{self.quarantined_at(router)} not released at {router}"
        for method in quarantined:
            before = self.deaths[method]
            self.killers.setdefault(method, 0.0)
            self.send(self._random.choice(_ROUTERS), method)
            self._advance(5.0)
            assert self.deaths[method] == before + 1, f"{method} reaches nobody after its release"


def _replay(seed: int, kind: str) -> None:
    simulation = PoisonSimulation(seed, kind != "quiet", keeps=kind == "kept")
    try:
        simulation.run()
    finally:
        print("\n".join(simulation.told))


if __name__ == "__main__":
    _replay(int(sys.argv[1]), sys.argv[2])
