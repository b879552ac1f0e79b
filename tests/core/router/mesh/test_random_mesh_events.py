"""Random subscriptions, events and lost links at three routers: each subscriber gets what it wants, once, in order."""

from __future__ import annotations

from itertools import combinations

from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from rpcmq.core.common.topic_patterns import PatternTrie
from rpcmq.testing.mesh_network import MeshNetwork, Process
from rpcmq.wire import Kind
from tests.core.router.mesh.links import end_link, link_all, link_routers

ROUTERS = "abc"
PATTERNS = ("a", "b", "a.#", "*.b", "#", "a.b")
TOPICS = ("a", "b", "a.b", "b.a", "c.b")
PER_ROUTER = 2

routers = st.sampled_from(ROUTERS)
numbers = st.integers(0, PER_ROUTER - 1)
pairs = st.sampled_from(list(combinations(ROUTERS, 2)))


def matches(pattern: str, topic: str) -> bool:
    trie: PatternTrie[int] = PatternTrie()
    trie.add(pattern.encode(), 1)
    return bool(trie.match(topic.encode()))


class MeshOfEvents(RuleBasedStateMachine):
    """What each subscriber must have, and what it may have: events sent while nothing was broken, and all others."""

    @initialize()
    def start(self) -> None:
        self.net = link_all(MeshNetwork(names=ROUTERS))
        self.published = 0
        #: The router, number and topic of each event.
        self.events: list[tuple[str, int, str]] = []
        self.broken: set[tuple[str, str]] = set()
        self.slow: set[tuple[str, str]] = set()
        self.publishers = {r: self.net.process(f"pub-{r}", router=r) for r in ROUTERS}
        self.subscribers: dict[tuple[str, int], Process] = {}
        self.patterns: dict[tuple[str, int], set[str]] = {}
        self.must: dict[tuple[str, int], list[tuple[str, int]]] = {}
        self.may: dict[tuple[str, int], set[tuple[str, int]]] = {}
        for router in ROUTERS:
            for number in range(PER_ROUTER):
                self._come((router, number))

    def _come(self, who: tuple[str, int]) -> None:
        router, number = who
        name = f"sub-{router}-{number}"
        self.subscribers[who] = self.net.process(name, queue_type="pubsub", router=router)
        self.patterns[who], self.must[who] = set(), []
        # It may come late over a link that was cut.
        self.may.setdefault(who, set())

    def _is_broken(self, one: str, other: str) -> bool:
        return tuple(sorted((one, other))) in self.broken

    @rule(router=routers, number=numbers, pattern=st.sampled_from(PATTERNS))
    def subscribe(self, router: str, number: int, pattern: str) -> None:
        asked = self.subscribers[router, number].subscribe(pattern)
        if not asked.answers:
            # There and back over slow links; a second where one is cut.
            self.net.advance(1.1 if self.broken else 0.5)
        assert [m.kind for m in asked.answers] == [Kind.SUBSCRIBED]
        self.patterns[router, number].add(pattern)
        # Those that are under way from another router come after all.
        under_way = {(at, event) for at, event, topic in self.events if at != router and matches(pattern, topic)}
        self.may[router, number] |= under_way

    @rule(router=routers, other=routers, number=numbers, topic=st.sampled_from(TOPICS))
    def subscribe_and_publish(self, router: str, other: str, number: int, topic: str) -> None:
        """A subscription that is confirmed gets what is published anywhere from then on."""
        self.subscribe(router, number, topic)
        self.publish(other, topic, 1)

    @rule(router=routers, number=numbers, pattern=st.sampled_from(PATTERNS), times=st.integers(1, 3))
    def come_and_go(self, router: str, number: int, pattern: str, times: int) -> None:
        """Subscribe and unsubscribe faster than other routers answer."""
        self.settle()
        subscriber = self.subscribers[router, number]
        for _ in range(times):
            subscriber.unsubscribe(pattern)
            subscriber.subscribe(pattern)
        self.patterns[router, number].discard(pattern)
        self.subscribe(router, number, pattern)

    @rule(router=routers, number=numbers, pattern=st.sampled_from(PATTERNS))
    def unsubscribe(self, router: str, number: int, pattern: str) -> None:
        self.settle()
        self.subscribers[router, number].unsubscribe(pattern)
        self.patterns[router, number].discard(pattern)
        self.net.advance(0.5)

    @rule(router=routers, topic=st.sampled_from(TOPICS), count=st.integers(1, 5))
    def publish(self, router: str, topic: str, count: int) -> None:
        with self.net.together():
            for _ in range(count):
                self.published += 1
                self.publishers[router].publish(topic, b"%d" % self.published)
                event = (router, self.published)
                self.events.append((*event, topic))
                for who, patterns in self.patterns.items():
                    if any(matches(pattern, topic) for pattern in patterns):
                        self.may[who].add(event)
                        if who[0] == router or not self._is_broken(who[0], router):
                            self.must[who].append(event)

    @rule(router=routers, number=numbers)
    def subscriber_dies_and_comes_back(self, router: str, number: int) -> None:
        self.settle()
        self.subscribers[router, number].stop()
        self._come((router, number))

    @rule(pair=pairs, how=st.sampled_from(("reset", "cut", "end")))
    def break_link(self, pair: tuple[str, str], how: str) -> None:
        if pair in self.broken:
            return
        self.settle()
        if how == "end":
            end_link(self.net, *pair)
        else:
            getattr(self.net, how)(*pair)
        self.broken.add(pair)

    @rule(seconds=st.sampled_from((0.3, 2.0, 8.0)))
    def time_passes(self, seconds: float) -> None:
        self.net.advance(seconds)

    @rule(pair=pairs)
    def mend_link(self, pair: tuple[str, str]) -> None:
        if pair not in self.broken:
            return
        self.net.heal(*pair)
        link_routers(self.net, *pair)
        self.broken.discard(pair)

    @rule(pair=pairs)
    def slow_down(self, pair: tuple[str, str]) -> None:
        if pair not in self.broken:
            self.net.delay(*pair, 0.2)
            self.slow.add(pair)

    @rule(pair=pairs)
    def stall_and_go_on(self, pair: tuple[str, str]) -> None:
        if pair in self.broken:
            return
        self.net.cut(*pair)
        self.publish(pair[0], "a", 2)
        self.publish(pair[1], "a.b", 2)
        self.net.heal(*pair)

    @rule()
    def settle(self) -> None:
        """Let everything arrive, and compare."""
        self.net.advance(0.5)
        for who, subscriber in self.subscribers.items():
            got = [int(m.payload) for m in subscriber.received if m.kind is Kind.PUBLISH]
            assert len(set(got)) == len(got), f"{who} has an event twice"
            assert set(got) <= {number for _, number in self.may[who]}, f"{who} has one that it did not ask for"
            assert {number for _, number in self.must[who]} <= set(got), f"{who} lacks one"
            origin = {number: router for router, number in self.may[who]}
            for router in ROUTERS:
                of_router = [number for number in got if origin[number] == router]
                assert of_router == sorted(of_router), f"the events of one publisher are out of order at {who}"

    @invariant()
    def nothing_is_refused(self) -> None:
        for host in self.net.hosts.values():
            assert host.router.refused == {}
            assert [note.text for note in host.notes if note.event == "internal error"] == []

    def teardown(self) -> None:
        if not hasattr(self, "net"):
            return
        self.settle()
        for pair in sorted(self.broken):  # in the same order in each process
            self.mend_link(pair)
        for subscriber in self.subscribers.values():
            subscriber.stop()
        self.net.advance(0.5)
        for router in ROUTERS:
            pubsub = self.net.router_of(router).pubsub
            assert pubsub.patterns == {} and pubsub._tries == {}, f"{router} keeps patterns that nobody wants"


TestMeshOfEvents = MeshOfEvents.TestCase
TestMeshOfEvents.settings = settings(max_examples=30, stateful_step_count=40, deadline=None, phases=(Phase.generate,))
