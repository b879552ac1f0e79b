"""The engine of a router alone, without sockets: the CPU time of a call whose caller and service are linked to it."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Mapping
from time import process_time

from benchmarks.children import child, commands, say
from benchmarks.report import Options, Row
from rpcmq.core.router.router import Router
from rpcmq.wire import Address, Kind, control, json_bytes, pack

__all__ = ["NAMES", "Engine", "measure_in_turn", "rows_of"]

#: The identities of the two processes, which are their routes and keys, too.
NAMES = ("service", "caller")
#: Calls in a batch, and batches between two looks at the clock.
_BATCH, _BATCHES = 32, 100
#: Batches that a process receives before it acknowledges them.
_UNACKNOWLEDGED = 4


class Engine:
    """A router's engine, a caller and a service, whose frames are made before they are measured.

    Args:
        now: the time at which everything happens.
    """

    def __init__(self, router: Router, now: float = 0.0) -> None:
        self.router, self.now = router, now
        for name in NAMES:
            hello = {
                "identity": name,
                "queue_type": "roundrobin",
                "versions": [1],
                "accepts": ["json"],
                "follows_mesh": True,
            }
            router.receive(now, name.encode(), control(Kind.HELLO, hello), (), name)
        self._service, self._caller = (router.links.routes[name.encode()] for name in NAMES)
        self._address = Address("compute").encode()
        self._sequence = 0
        #: Messages that each process has acknowledged.
        self._taken = {self._service: 0, self._caller: 0}
        body, key = json_bytes({"credit": 1000}), self._service.origin + (1).to_bytes(8)
        register = pack(Kind.REGISTER, body, format=1, address=self._address, key=key)
        router.receive(now, b"service", register)

    def _batch(self) -> tuple[bytes, bytes]:
        requests, replies = [], []
        for _ in range(_BATCH):
            self._sequence += 1
            key = self._caller.origin + self._sequence.to_bytes(8)
            fields = {"ttl": 60_000, "key": key, "address": self._address, "method": b"reboot_instance"}
            requests.append(pack(Kind.REQUEST, bytes(100), format=1, **fields))  # type: ignore[arg-type]
            replies.append(pack(Kind.REPLY, bytes(100), format=1, ttl=10, key=key))
        return b"".join(requests), b"".join(replies)

    def _acknowledge(self) -> None:
        """Let both processes have what was sent to them."""
        for name, link in zip(NAMES, (self._service, self._caller), strict=True):
            self._taken[link] += link.unacknowledged
            self.router.receive(self.now, name.encode(), pack(Kind.ACK, sequence=self._taken[link]))

    def measure(self) -> float:
        """CPU time of a call, from request to reply (microseconds)."""
        batches = [self._batch() for _ in range(_BATCHES)]
        router, now = self.router, self.now
        receive, run_next_turn, dirty = router.receive, router.run_next_turn, router.links.dirty
        gc.disable()
        began = process_time()
        for number, (requests, replies) in enumerate(batches, 1):
            receive(now, b"caller", requests)
            receive(now, b"service", replies)
            # As the shell does in each wake-up: a new turn begins, and each link sends what it has in one batch.
            run_next_turn(now)
            sessions = dirty[:]
            dirty.clear()
            for session in sessions:
                session.marked = False
                session.last_messages.clear()
                if session.may_send:
                    session.batch()
                    session.batch_was_sent()
            if not number % _UNACKNOWLEDGED:
                self._acknowledge()
        used = process_time() - began
        gc.enable()
        if router.dispatch.requests.calls_in_flight or router.refused:
            raise RuntimeError(f"calls were refused: {dict(router.refused)}")
        return used / (_BATCH * _BATCHES) * 1e6


def measure_in_turn(engines: Mapping[str, Engine]) -> None:
    """Measure engines in this process, a child, in turn as it is told."""
    for each in engines.values():
        each.measure()
    gc.collect()
    gc.freeze()
    say("ready")
    while True:
        command = commands().get()
        say({name: engines[name].measure() for name in (list(engines) if command["forth"] else list(engines)[::-1])})


def rows_of(options: Options, engine: Callable[[], None], systems: Iterable[str]) -> list[Row]:
    """CPU time of a call in the engines that the child ``engine`` measures: no sockets."""
    rows = [Row(name, "call", []) for name in systems]
    with child(engine) as measured:
        measured.heard()
        for number in range(int(options.rounds * options.seconds * 2)):
            found = measured.ask(5, forth=number % 2)
            for row in rows:
                row.samples.append({"engine_us": found[row.system], "calls_per_second": 1e6 / found[row.system]})
    return rows
