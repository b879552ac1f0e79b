"""A drill with real processes: a router, services, callers, the faults between them, and the verdict.

::

    with Drill(Topology(services=3), seed=1) as drill:
        drill.load(count=10_000)
        drill.kill_service(0)
        drill.wait_sent()
        result = drill.finish()
"""

from __future__ import annotations

import shutil
import signal
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from random import Random
from time import monotonic
from typing import Any, Self

from gevent.lock import BoundedSemaphore

import rpcmq
from rpcmq.drill.checks import Verdict, Violation, check
from rpcmq.drill.common import TOPIC, Options, outcome_of
from rpcmq.drill.counts import count_router, write_drops
from rpcmq.drill.disturbances import RESTART
from rpcmq.drill.history import Event, Recorder, What, merged
from rpcmq.drill.keys import make_keys
from rpcmq.drill.names import named, traceparent_of
from rpcmq.drill.place import Place
from rpcmq.drill.proxy import FaultProxy
from rpcmq.drill.result import Result, bounds_of, config_of
from rpcmq.drill.stalls import StallWatch
from rpcmq.drill.topology import Topology
from rpcmq.errors import RpcError
from rpcmq.testing import eventually
from rpcmq.testing.interrupts import uninterrupted
from rpcmq.testing.processes import Program, RouterProcess

__all__ = ["Drill"]

#: Longest time for a process to start, for one to end, and for the last casts to be run (seconds).
_START_SECONDS = 60.0
_STOP_SECONDS = 60.0
_SETTLE_SECONDS = 60.0


class Drill:
    """Runs the processes of ``topology``, and injects faults.

    Args:
        seed: of all choices.
        folder: where the histories go, and stay; default: a temporary folder.
        program: module that is run for a role and its options.
    """

    def __init__(
        self, topology: Topology, seed: int, folder: Path | None = None, program: str = "rpcmq.drill.load"
    ) -> None:
        self._program = program
        self.topology = topology
        self.seed = seed
        self.rng = Random(seed)
        self.bounds = bounds_of(topology.router, topology.router_config)
        config = config_of(topology.router, topology.router_config)
        self._folder = folder or Path(tempfile.mkdtemp(prefix="rpcmq-drill-"))
        self._keeps_folder = folder is not None
        self._folder.mkdir(parents=True, exist_ok=True)
        #: Folder of the router's dispatch log, overriding its configuration; None: as the topology says.
        self._log = None if "dispatch_log_directory" in topology.router else self._folder / "dispatch-log"
        #: Folder of this drill's keys, and its processes' key file; None and empty if its router has no keys.
        self._keys: Path | None = None
        self._key_file = ""
        if config.security.keys:
            self._keys = Path(tempfile.mkdtemp(prefix="rpcmq-drill-keys-"))
            self._key_file = make_keys(self._keys)
        self.recorder = Recorder(self._folder / "drill.history", "drill")
        self.places: dict[str, Place] = {}
        self.proxies: dict[str, FaultProxy] = {}
        self.faults: dict[str, int] = {}
        self._lives = 0
        self._ended: list[Program] = []
        self._began = monotonic()
        self._problems: list[Violation] = []
        #: Longest time for the last casts to end (seconds); those to topics without consumers are dropped first.
        self._settle_seconds = 20.0 + (config.mailbox.unclaimed_seconds * 1.5 if topology.misspelt else 0.0)
        #: Held while the router is down, stopped or starved.
        self.router_lock = BoundedSemaphore()
        self._client: rpcmq.Client | None = None
        self._watch = StallWatch()

    # --- life --------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        try:
            self._start_routers(self._settings())
            services = [self.add(f"s{n}", "service") for n in range(self.topology.services)]
            services += [self.add(f"e{n}", "subscriber") for n in range(self.topology.subscribers)]
            self.expect_ready(services)
        except BaseException:
            self.close()
            raise
        return self

    def _settings(self) -> dict[str, Any]:
        settings = dict(self.topology.router)
        if self._log is not None:
            settings["dispatch_log_directory"] = str(self._log)
            # An idle router has no file open for long, so that descriptors can be counted.
            settings.setdefault("dispatch_log_segment_seconds", 2)
        if self._keys is not None:
            settings["security_keys"] = str(self._keys)
        return settings

    def _start_routers(self, settings: dict[str, Any]) -> None:
        program = ("-m", "rpcmq.drill.router", str(self._folder))
        self.router = RouterProcess(file=self.topology.router_config, program=program, **settings)

    def _url(self) -> str:
        return self.router.url

    @contextmanager
    def router_fault(self) -> Iterator[None]:
        """Around a fault of the router."""
        yield

    @property
    def routers(self) -> Sequence[RouterProcess]:
        """The drill's routers."""
        return [self.router] if hasattr(self, "router") else []

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """End everything at once; nothing interrupts that."""
        uninterrupted(self._close)

    def _close(self) -> None:
        self._watch.close()
        if self._client is not None:
            self._client.close(0.0)
        for place in self.places.values():
            place.program.close()
        for program in self._ended:
            program.close()
        for proxy in self.proxies.values():
            proxy.close()
        for router in self.routers:
            router.close()
        self.recorder.close()
        if self._keys is not None:
            shutil.rmtree(self._keys, ignore_errors=True)
        if not self._keeps_folder:
            shutil.rmtree(self._folder, ignore_errors=True)

    # --- processes ---------------------------------------------------------------------------

    def add(self, name: str, role: str, **options: Any) -> Place:
        """Start one more process; see :class:`rpcmq.drill.load.Options`."""
        url = self._url()
        if not self.topology.direct:
            self.proxies[name] = FaultProxy(url)
            url = self.proxies[name].url
        self.places[name] = place = Place(name, role, self._start(name, role, url, options), url, options)
        return place

    def _start(self, name: str, role: str, url: str, options: dict[str, Any]) -> Program:
        self._lives += 1
        life = f"{name}#{self._lives}"
        told = Options(
            url,
            life,
            name,
            str(self._folder / f"{life}.history"),
            self.seed * 1000 + self._lives,
            asdict(self.topology),
            settle_seconds=self._settle_seconds,
            **options,
        )
        env = {"RPCMQ_KEY_FILE": self._key_file} if self._key_file else {}
        if role == "plain":
            return Program([sys.executable, "-m", "rpcmq.drill.plain", told.to_json()], env, life)
        patching = ("gevent.monkey", "--module") if self.topology.patched else ()
        return Program([sys.executable, "-m", *patching, self._program, role, told.to_json()], env, life)

    def next_number(self) -> int:
        """A number that was not used before."""
        self._lives += 1
        return self._lives

    def stop_place(self, place: Place) -> None:
        """Let a process end in order, and forget its place."""
        self._end([place])
        self._ended.append(place.program)
        del self.places[place.name]

    def expect_ready(self, places: Iterable[Place]) -> None:
        """Wait until they have begun."""
        for place in places:
            place.program.expect("^ready$", _START_SECONDS)

    def named(self, role: str) -> list[Place]:
        """The places of ``role``."""
        return [place for place in self.places.values() if place.role == role]

    @property
    def callers(self) -> list[Place]:
        """The processes that call."""
        return self.named("caller")

    @property
    def services(self) -> list[Place]:
        """The processes that serve."""
        return self.named("service")

    # --- load --------------------------------------------------------------------------------

    def load(self, count: int = 0) -> None:
        """Let the callers begin.

        Args:
            count: messages in all; 0: until :meth:`finish`.
        """
        each = -(-count // max(1, self.topology.callers))
        self._began = monotonic()
        places = [self.add(f"c{n}", "caller", count=each) for n in range(self.topology.callers)]
        self.expect_ready([*places, *(self.add(f"p{n}", "plain") for n in range(self.topology.plain))])

    def wait_sent(self, timeout: float = 3600.0) -> None:
        """Wait until all callers have sent their count and had their answers."""
        for place in self.callers:
            place.program.wait(timeout)

    @property
    def sent(self) -> int:
        """About how many messages the callers have sent."""
        total = 0
        for place in self.callers:
            total += next((int(line[5:]) for line in reversed(place.program.lines) if line.startswith("sent ")), 0)
        return total

    # --- faults ------------------------------------------------------------------------------

    def fault(self, kind: str, target: str) -> None:
        """Write down that a fault begins."""
        self.faults[kind] = self.faults.get(kind, 0) + 1
        self.recorder.write(What.FAULT, kind, target=target)

    def healed(self, kind: str, target: str) -> None:
        """Write down that it is over."""
        self.recorder.write(What.HEALED, kind, target=target)

    def kill(self, place: Place) -> None:
        """SIGKILL."""
        place.program.signal(signal.SIGKILL)
        self.fault("kill", place.life)
        place.program.wait()
        self._ended.append(place.program)

    def revive(self, place: Place) -> None:
        """Replace an ended process; return when the new one is ready."""
        place.is_starting = True
        place.program = self._start(place.name, place.role, place.url, place.options)
        self.expect_ready([place])
        place.is_starting = False

    def stop(self, place: Place) -> None:
        """SIGSTOP."""
        place.program.pause()
        place.is_stopped = True
        self.fault("stop", place.life)

    def resume(self, place: Place) -> None:
        """SIGCONT."""
        self.healed("stop", place.life)
        place.is_stopped = False
        place.program.resume()

    def hog(self, place: Place, seconds: float) -> None:
        """Call a handler of ``place`` that holds its processor for so long."""
        if self._client is None:
            patience, keys = seconds + 30.0, self._key_file
            self._client = rpcmq.Client(self.router.url, "drill", timeout=patience, key_file=keys, shell="gevent")
        id = f"drill-{self.next_number()}"
        args = {"id": id, "topic": TOPIC, "seconds": seconds, "fails": False, "hogs": True, "text": ""}
        timeout = seconds + 30.0
        self.recorder.write(What.SUBMIT, id, verb="call", topic=TOPIC, timeout=timeout)
        try:
            message = {"method": "work", "args": args}
            of = self._client.call(None, f"{TOPIC}.{place.name}", message, timeout, traceparent=traceparent_of(id))
        except RpcError as error:
            self.recorder.write(What.END, id, outcome=outcome_of(error), text=str(error)[:200])
        else:
            self.recorder.write(What.END, id, outcome="ok", of=of)
        self.recorder.write(What.DONE, left=0)

    def kill_router(self) -> None:
        """SIGKILL; what it has counted is written down before."""
        self._count_router()
        self.router.signal(signal.SIGKILL)
        self.fault("kill", "router")
        self.router.wait()

    def restart_router(self, kind: str = "kill") -> None:
        """Start it again on the same port; the fault ``kind`` is over."""
        self.router.restart()
        self.healed(kind, "router")

    def end_router(self) -> None:
        """SIGTERM, and wait until it has ended in order."""
        self.router.signal(signal.SIGTERM)
        self.fault(RESTART, "router")
        self._expect_end_of_router(self.router)
        self.recorder.write(What.EXITED)

    def _expect_end_of_router(self, router: RouterProcess) -> None:
        if (code := router.wait(self.bounds.drain + _STOP_SECONDS)) != 0:
            self._problem("router", f"it ended with {code}: {router.said()[-500:]}")

    # --- what the router says ----------------------------------------------------------------

    def _count_router(self) -> None:
        self._problems += count_router(self.router, self.recorder)

    def _problem(self, check: str, text: str) -> None:
        self._problems.append(Violation(check, text))

    @property
    def is_idle(self) -> bool:
        """Whether no router has anything in its hands, or asks consumers whether they have had it."""
        rows = [row for router in self.routers for row in router.view("topics")["topics"]]
        if any(row["in_flight"] or (row["queued"] and row["consumers"]) for row in rows):
            return False
        return not any(row["state"] == "asked" for router in self.routers for row in router.view("stuck")["stuck"])

    # --- the end -----------------------------------------------------------------------------

    def finish(self, figures: Mapping[str, Any] | None = None) -> Result:
        """Let everything come to its end, and judge.

        Returns:
            The verdict, with what was measured.
        """
        for proxy in self.proxies.values():
            proxy.heal()
        for place in list(self.places.values()):
            if place.is_stopped:
                self.resume(place)
        self.end_load()
        seconds = monotonic() - self._began
        with suppress(AssertionError):  # then the verdict says what was not run
            eventually(lambda: self.is_idle, _SETTLE_SECONDS)
        for router in self.routers:
            self._problems += count_router(router, self.recorder)
        if self.topology.misspelt:
            write_drops(self.router, self.recorder)
        self._end([p for p in self.places.values() if p.role in ("service", "subscriber")])
        for router in self.routers:
            router.signal(signal.SIGTERM)
            self._expect_end_of_router(router)
        verdict = self._check()
        verdict.violations += self._problems
        return Result(self.seed, seconds, verdict, dict(self.faults), dict(figures or {}))

    def _check(self) -> Verdict:
        return check(self.events(), self.bounds, self._watch.stalls)

    def end_load(self) -> None:
        """Stop the load; return when all answers have arrived."""
        self._end([p for p in self.places.values() if p.role not in ("service", "subscriber")])

    def events(self) -> Iterator[Event]:
        """Iterate over the events of all processes, by time."""
        return named(merged(sorted(self._folder.glob("*.history"))))

    def _end(self, places: list[Place]) -> None:
        for place in places:
            place.program.signal(signal.SIGTERM)
        for place in places:
            patience = _STOP_SECONDS + self.topology.timeout + self._settle_seconds
            try:
                code = place.program.wait(patience)
            except AssertionError as error:
                self._problem("process", f"{place.life} did not end: {error}")
                place.program.kill()
            else:
                if code:
                    self._problem("process", f"{place.life} ended with {code}: {place.program.said()[-500:]}")
