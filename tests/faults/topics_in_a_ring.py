"""Row 2 of the fault matrix: five routers in a ring with two chords, one of which is killed at a time; what arrives?"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import pairwise
from random import Random
from time import monotonic
from typing import Any, Self

import gevent

from rpcmq.client import Client
from rpcmq.testing import eventually
from rpcmq.testing.processes import RouterProcess

__all__ = ["Ring", "Run", "matches"]

#: Each router with those of the ones before it that it connects to.
_PEERS = {"a": "", "b": "a", "c": "ba", "d": "cb", "e": "da"}
_WORDS, _LONG = "pqrs", 4
_SUBSCRIBERS, _PATTERNS = 10, 5
#: Events that may be under way to all subscriptions together while nothing fails; a second while something does.
_UNDER_WAY, _RATE = 4000, 400.0
#: Between two rounds of marks (seconds).
_PAUSE = 0.25


def matches(pattern: str, topic: str) -> bool:
    """Return whether ``pattern`` with ``*`` (a word) and ``#`` (any number of words) matches ``topic``."""
    return _match(pattern.split("."), topic.split("."))


def _match(pattern: list[str], words: list[str]) -> bool:
    if not pattern:
        return not words
    if pattern[0] == "#":
        return any(_match(pattern[1:], words[skipped:]) for skipped in range(len(words) + 1))
    return bool(words) and pattern[0] in ("*", words[0]) and _match(pattern[1:], words[1:])


def _patterns(rng: Random) -> Iterator[str]:
    while True:
        words = [rng.choice((*_WORDS, *_WORDS, "*", "*")) for _ in range(_LONG)]
        if rng.random() < 0.5:
            words[rng.randrange(1, _LONG) :] = ["#"]
        yield ".".join(words)


class Ring:
    """The routers."""

    def __init__(self) -> None:
        self.routers: dict[str, RouterProcess] = {}
        self._running = ExitStack()
        with self._running:
            for id, (name, peers) in enumerate(_PEERS.items(), 1):
                urls = ",".join(self.routers[peer].url for peer in peers)
                made = RouterProcess(router_name=name, router_id=id, mesh_peers=urls, mesh_dial="peers")
                self.routers[name] = self._running.enter_context(made)
            self.wait_until_linked()
            self._running = self._running.pop_all()

    def wait_until_linked(self) -> None:
        """Wait until each router answers each other one."""

        def are_linked() -> bool:
            rows = [router.view("mesh")["routers"] for router in self.routers.values()]
            return all(sum(row["state"] == "answering" for row in each) == len(_PEERS) - 1 for each in rows)

        eventually(are_linked, 60.0, "all routers are linked")

    def homes(self) -> dict[str, str]:
        """The router of each publisher and subscriber, by its identity."""
        return {
            row["identity"]: name
            for name, router in self.routers.items()
            if router.exit_code is None
            for row in router.view("processes")["processes"]
            if row["state"] == "answering" and "-" in row["identity"]
        }

    def counted(self) -> int:
        """The losses that the routers that run have counted in this life."""
        return sum(
            router.varz()["published"].get("lost by routers", 0)
            for router in self.routers.values()
            if router.exit_code is None
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._running.close()


@dataclass
class Heard:
    """What one subscription got.

    Attributes:
        client: the identity of the subscriber.
        numbers: of each publisher's events, in the order in which they came.
        marks: the latest round of each publisher.
        subscription: the subscription itself.
    """

    client: str
    pattern: str
    numbers: defaultdict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    marks: dict[str, int] = field(default_factory=dict)
    subscription: Any = None

    def handle(self, context: Any, topic: str, payload: tuple[str, int]) -> None:
        """An event."""
        publisher, number = payload
        if topic.startswith("mark."):
            self.marks[publisher] = number
        else:
            self.numbers[publisher].append(number)


@dataclass
class Phase:
    """A time in which something, or nothing, fails.

    Attributes:
        victim: the router that was killed; empty: none was.
        homes: the router of each process before.
        killed_at: when (monotonic seconds).
        events: (publisher, number, topic, when) of each event.
    """

    victim: str = ""
    homes: dict[str, str] = field(default_factory=dict)
    killed_at: float = 0.0
    events: list[tuple[str, int, str, float]] = field(default_factory=list)


class Run:
    """Publishes ``count`` events, kills routers on the way, and says what became of them.

    Args:
        seed: of all choices.
        count: about so many events.
        kills: of routers, one at a time; each is back before the next one.
    """

    def __init__(self, seed: int, count: int, kills: int) -> None:
        self._rng = Random(seed)
        self._count, self._kills = count, kills
        self._phases: list[Phase] = []
        self._heard: list[Heard] = []
        self._publishers: dict[str, Client] = {}
        self._numbers: Counter[str] = Counter()
        self._wanted: dict[str, list[Heard]] = {}
        self._due = self._rounds = 0

    def run(self) -> dict[str, Any]:
        """Do it, and return the figures."""
        with Ring() as ring, ExitStack() as stack:
            self._connect(ring, stack)
            share = self._count // (self._kills + 1)
            for _ in range(self._kills):
                self._publish_while_all_is_well(share)
                self._kill_one(ring)
            self._publish_while_all_is_well(self._count - sum(self._numbers.values()))
            return self._figures(ring)

    def _connect(self, ring: Ring, stack: ExitStack) -> None:
        patterns, names = _patterns(self._rng), list(ring.routers)
        for number in range(_SUBSCRIBERS):
            url = ring.routers[names[number % len(names)]].url
            client = stack.enter_context(Client(url, f"subscriber-{number}", shell="gevent"))
            # The mark comes last: who gets one has all other patterns, too.
            for pattern in dict.fromkeys([*(next(patterns) for _ in range(_PATTERNS)), "mark.#"]):
                heard = Heard(f"subscriber-{number}", pattern)
                heard.subscription = client.subscribe(pattern, heard.handle, window=10_000)
                self._heard.append(heard)
        for name, router in ring.routers.items():
            publisher = f"publisher-{name}"
            self._publishers[publisher] = stack.enter_context(Client(router.url, publisher, shell="gevent"))

    # --- publishing --------------------------------------------------------------------------

    def _publish(self, phase: Phase) -> None:
        publisher = self._rng.choice(list(self._publishers))
        number, topic = self._numbers[publisher], ".".join(self._rng.choices(_WORDS, k=_LONG))
        self._numbers[publisher] += 1
        phase.events.append((publisher, number, topic, monotonic()))
        self._due += len(self._wanting(topic))
        self._publishers[publisher].publish(None, topic, (publisher, number))

    def _wanting(self, topic: str) -> list[Heard]:
        if topic not in self._wanted:
            self._wanted[topic] = [heard for heard in self._heard if matches(heard.pattern, topic)]
        return self._wanted[topic]

    @property
    def _got(self) -> int:
        return sum(len(numbers) for heard in self._heard for numbers in heard.numbers.values())

    def _publish_while_all_is_well(self, count: int) -> None:
        phase = Phase()
        self._phases.append(phase)
        missing = self._due - self._got  # what was lost before
        for sent in range(count):
            if sent % 200 == 0:
                eventually(lambda: self._due - self._got - missing < _UNDER_WAY, 120.0, "events are handled")
            self._publish(phase)
        eventually(lambda: self._due - self._got == missing, 120.0, "all events have come")

    def _kill_one(self, ring: Ring) -> None:
        homes = ring.homes()
        phase = Phase(self._rng.choice(sorted(set(homes.values()))), homes)
        self._phases.append(phase)
        self._for_a_while(phase, 0.5)
        ring.routers[phase.victim].kill()
        phase.killed_at = monotonic()
        self._until_converged(phase)
        ring.routers[phase.victim].restart()
        linking = gevent.spawn(ring.wait_until_linked)
        while not linking.ready():
            self._for_a_while(phase, _PAUSE)
        linking.get()
        self._until_converged(phase)
        self._settle()

    def _for_a_while(self, phase: Phase, seconds: float) -> None:
        until = monotonic() + seconds
        while monotonic() < until:
            self._publish(phase)
            gevent.sleep(1 / _RATE)

    def _until_converged(self, phase: Phase) -> None:
        """Publish until each subscriber has a mark that each publisher has sent since now."""
        first, until = self._rounds + 1, monotonic() + 120.0
        marked = [heard for heard in self._heard if heard.pattern == "mark.#"]
        while any(heard.marks.get(publisher, 0) < first for heard in marked for publisher in self._publishers):
            assert monotonic() < until, "subscribers miss the marks of publishers"
            self._rounds += 1
            for publisher, client in self._publishers.items():
                client.publish(None, "mark.now", (publisher, self._rounds))
            self._for_a_while(phase, _PAUSE)

    def _settle(self) -> None:
        """Wait until nothing comes any more: each mark follows all that its publisher has sent before."""
        self._rounds += 1
        for publisher, client in self._publishers.items():
            client.publish(None, "mark.now", (publisher, self._rounds))
        marked = [heard for heard in self._heard if heard.pattern == "mark.#"]
        eventually(
            lambda: all(heard.marks.get(each) == self._rounds for heard in marked for each in self._publishers), 60.0
        )

    # --- what became of them -----------------------------------------------------------------

    def _figures(self, ring: Ring) -> dict[str, Any]:
        figures: Counter[str] = Counter(copies=self._got)
        figures["doubled"] = sum(_doubled(each) for heard in self._heard for each in heard.numbers.values())
        figures["out of order"] = sum(_inversions(each) for heard in self._heard for each in heard.numbers.values())
        told = {heard.client: heard.subscription.lost for heard in self._heard}  # all of a process have the same
        figures["told as lost"] = sum(told.values())
        figures["counted by routers"] = ring.counted()
        figures["lost while nothing failed"] = figures["lost with the dead router"] = figures["lost between others"] = 0
        after: list[float] = []
        between_others: defaultdict[str, set[tuple[str, int]]] = defaultdict(set)
        got = {id(heard): {name: set(numbers) for name, numbers in heard.numbers.items()} for heard in self._heard}
        for phase in self._phases:
            for publisher, number, topic, at in phase.events:
                for heard in self._wanting(topic):
                    if number not in got[id(heard)].get(publisher, ()):
                        sort = _sort_of_loss(phase, publisher, heard.client)
                        figures[sort] += 1
                        if sort == "lost between others":
                            between_others[heard.client].add((publisher, number))
                        after.append(at - phase.killed_at)
        figures["lost between others and not counted"] = sum(
            max(0, len(events) - told[client]) for client, events in between_others.items()
        )
        after.sort()
        seconds = {"lost after the kill at most": round(after[-1], 3), "p99": round(_p99(after), 3)} if after else {}
        load = {
            "submitted": {"event": sum(self._numbers.values())},
            "faults": {"kill": self._kills},
            "lost": len(after),
        }
        return {**load, **figures, **seconds}


def _sort_of_loss(phase: Phase, publisher: str, subscriber: str) -> str:
    if not phase.victim:
        return "lost while nothing failed"
    concerned = phase.victim in (phase.homes[publisher], phase.homes[subscriber])
    return "lost with the dead router" if concerned else "lost between others"


def _doubled(numbers: list[int]) -> int:
    return len(numbers) - len(set(numbers))


def _inversions(numbers: Iterable[int]) -> int:
    """The number of times that a lower number follows a higher one."""
    ordered = list(numbers)
    return sum(later < earlier for earlier, later in pairwise(ordered))


def _p99(ordered: list[float]) -> float:
    return ordered[int(len(ordered) * 0.99)] if len(ordered) > 1 else ordered[0]
