"""Random consumers, declarations, lost links and restarts at two to four routers: at rest all tables are the truth."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import combinations
from random import Random
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from rpcmq.core.router.mesh import announcer, interest, learner, own_addresses
from rpcmq.core.router.model import Topic
from rpcmq.core.router.settings import Settings
from rpcmq.testing.mesh_network import MeshNetwork, Process
from rpcmq.wire import Address, Kind, json_bytes, pack
from tests.core.router.mesh.known_addresses import assert_known, interest_of

ROUTERS = "abcd"
#: "a.b" is the own topic of a server, too, and "b.c" never consumed by that name.
ADDRESSES = [Address("a"), Address("a", "b"), Address("b", "c"), Address("a.b"), Address("b.c"), Address("a", "b", "x")]
GROUPS = ("", "", "g", "h")
#: So that everything is done in several pieces, and few consumers are many.
SMALL = {
    (announcer, "_PLACES_IN_ONE_TICK"): 2,
    (announcer, "_MESSAGE_BYTES"): 60,
    (announcer, "_CHUNKS_IN_ONE_TICK"): 1,
    (announcer, "_BACKLOG_MESSAGES"): 3,
    (announcer, "_MOST_BACKLOG_MESSAGES"): 6,
    (interest, "_ENTERED_AT_ONCE"): 2,
    (learner, "_SWEPT_AT_ONCE"): 3,
    (learner, "_CLEARED_AT_ONCE"): 1,
    (own_addresses, "MAX_INLINE"): 2,
}


@contextmanager
def small() -> Iterator[None]:
    patches = [patch.object(module, name, value) for (module, name), value in SMALL.items()]
    for each in patches:
        each.start()
    try:
        yield
    finally:
        for each in patches:
            each.stop()


class History:
    """A random history: all that changes the addresses of a router, or what another one hears of it."""

    def __init__(self, seed: int) -> None:
        self.random = random = Random(seed)
        ages: dict[str, Any] = {"recovery_seconds": 0.0, "mailbox_max_seconds": 2.0, "unclaimed_seconds": 2.0}
        self.names = ROUTERS[: random.randint(2, 4)]
        self.net = MeshNetwork(names=self.names, settings=Settings(**ages))
        self.processes: dict[tuple[str, int], Process] = {}
        self.tags: dict[Process, list[int]] = {}
        self.links_end = random.random() < 0.6
        self.net.advance(random.choice((0.0, 0.5)))

    def run(self, steps: int) -> None:
        """Take ``steps``; in some histories links stay as they are, so that there is much to tell over them."""
        often = [self.register] * 6 + [self.unregister] * 3 + [self.be_addressed] * 3 + [self.wait] * 4 + [self.declare]
        rare = [self.forget, self.go, self.pause_or_resume, self.lose_connection, self.delay]
        cruel = [self.cut, self.heal, self.reset, self.end_session, self.restart] if self.links_end else []
        for _ in range(steps):
            self.random.choice(self.random.choice((often, often, rare, cruel or often)))()
            for host in self.net.hosts.values():
                errors = [note.text for note in host.notes if note.event == "internal error"]
                assert not errors, errors[0]

    def _process(self) -> Process:
        who = self.random.choice(self.names), self.random.randrange(5)
        process = self.processes.get(who)
        if process is None:
            name = f"p-{who[0]}-{who[1]}"
            process = self.processes[who] = self.net.process(name, router=who[0], follows_mesh=False)
            self.tags[process] = []
        return process

    def _pair(self) -> tuple[str, str]:
        one, other = self.random.sample(self.names, 2)
        return one, other

    def _address(self) -> tuple[Address, str]:
        address = self.random.choice(ADDRESSES)
        return address, "" if address.server else self.random.choice(GROUPS)

    # --- addresses ---------------------------------------------------------------------------

    def register(self) -> None:
        address, group = self._address()
        with self.net.together():
            for _ in range(self.random.randint(1, 4)):
                process = self._process()
                credit = self.random.randint(1, 3)
                tag = process.register(address.topic, address.server, address.exchange, credit, group=group)
                self.tags[process].append(tag)

    def unregister(self) -> None:
        for process in list(self.processes.values()):
            if self.tags[process] and self.random.random() < 0.3:
                process.unregister(self.tags[process].pop(0))

    def declare(self) -> None:
        address, group = self._address()
        body = json_bytes({"group": group})
        self._process().send(Kind.DECLARE, body, format=1, address=address.encode())

    def be_addressed(self) -> None:
        """A sender makes the topic or server, as its first message would."""
        router = self.net.router_of(self.random.choice(self.names))
        message = pack(Kind.CAST, b"", format=1, address=self._address()[0].encode(), method=b"m")
        router.directory.resolve(self.net.now, message)

    def forget(self) -> None:
        """An operator forgets a topic."""
        directory = self.net.router_of(self.random.choice(self.names)).directory
        topic = directory.place_of(self._address()[0]._replace(server=""))
        if isinstance(topic, Topic):
            directory.forget(topic)

    # --- processes ---------------------------------------------------------------------------

    def go(self) -> None:
        if self.processes:
            self.processes.pop(self.random.choice(list(self.processes))).die()

    def pause_or_resume(self) -> None:
        process = self._process()
        process.resume() if process.is_paused else process.pause()

    def lose_connection(self) -> None:
        process = self._process()
        process.lose()
        if self.random.random() < 0.5:
            process.connect()

    # --- routers -----------------------------------------------------------------------------

    def cut(self) -> None:
        self.net.cut(*self._pair())

    def heal(self) -> None:
        self.net.heal(*self._pair())

    def delay(self) -> None:
        self.net.delay(*self._pair(), self.random.choice((0.0, 0.003, 0.2)))

    def reset(self) -> None:
        self.net.reset(*self._pair())

    def end_session(self) -> None:
        one, other = self._pair()
        for neighbour in list(self.net.router_of(one).mesh.neighbours):
            if neighbour.name == other:
                self.net.router_of(one).links.end(self.net.now, neighbour.link, "for a test")
        self.net.run()

    def restart(self) -> None:
        router = self.random.choice(self.names)
        for who in [who for who in self.processes if who[0] == router]:
            self.processes.pop(who).die()
        self.net.hosts[router].restart()

    def wait(self) -> None:
        self.net.advance(self.random.choice((0.001, 0.004, 0.006, 0.02, 0.5, 3.0)))

    # --- rest --------------------------------------------------------------------------------

    def come_to_rest(self) -> None:
        """Mend everything, and wait until nothing moves."""
        self.net.heal()
        for one, other in combinations(self.names, 2):
            self.net.delay(one, other, 0.0)
        for process in self.processes.values():
            if process.is_paused:
                process.resume()
            if process.connection is None:
                process.connect()
        # Not long enough for a digest without a change, which would mend what is wrong.
        self.net.advance(20.0)

    def check(self) -> None:
        """Each router is linked to each other one and knows its addresses; none has ever had to ask again."""
        for name in self.names:
            router = self.net.router_of(name)
            assert {n.name for n in router.mesh.neighbours} == set(self.names) - {name}
            assert interest_of(self.net, name).has_converged(self.net.now)
            notes = [note.text for note in self.net.hosts[name].notes if note.event == "interest asked for anew"]
            assert notes == []
        assert_known(self.net)


def check_history(seed: int) -> None:
    with small():
        history = History(seed)
        history.run(60)
        history.come_to_rest()
        history.check()


@settings(max_examples=20, deadline=None, phases=(Phase.generate,))
@given(seed=st.integers(0, 1 << 32))
def test_random_histories(seed: int) -> None:
    check_history(seed)


@pytest.mark.parametrize(
    "seed",
    [
        pytest.param(54734, id="a session ends while it is being resumed"),
        pytest.param(2538, id="a session is resumed in the place of a later one"),
    ],
)
def test_histories_that_have_failed(seed: int) -> None:
    check_history(seed)


@pytest.mark.long
@pytest.mark.timeout(600)
@settings(max_examples=1000, deadline=None, phases=(Phase.generate,))
@given(seed=st.integers(0, 1 << 32))
def test_many_random_histories(seed: int) -> None:
    check_history(seed)
