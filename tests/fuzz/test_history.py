"""Callers and consumers that talk, break, come back and die in any order: what is promised holds.

* Each call ends exactly once, unless its caller gave it up or was away for too long.
* A call or cast that is not idempotent is delivered at most once; an idempotent one once an attempt.
* Nothing is in two places, no credit is exceeded, and at the end every table is empty.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from rpcmq.core.router.settings import Settings
from rpcmq.errors import Outcome
from rpcmq.testing.invariants import check_router, left_behind
from rpcmq.testing.network import Call, Message, Network, Process
from rpcmq.wire import Flag, Kind

pytestmark = pytest.mark.fuzz

CALLERS, CONSUMERS = 2, 3
#: What a REQUEST or CAST can be refused or ended with here; nothing else may come.
OUTCOMES = {
    Outcome.OK,
    Outcome.REMOTE_ERROR,
    Outcome.TIMEOUT,
    Outcome.LINK_LOST,
    Outcome.OVERLOADED,
    Outcome.NO_CONSUMER,
}

callers = st.integers(0, CALLERS - 1)
consumers = st.integers(0, CONSUMERS - 1)
ttls = st.sampled_from([None, 0.0, 0.5, 3.0, 20.0])
#: The shared topic, the own topics of two consumers in both spellings, and one that nobody serves.
addressees = st.sampled_from(
    [("compute", ""), ("compute", ""), ("compute", "node-0"), ("compute.node-1", ""), ("nobody", "")]
)
seconds = st.sampled_from([0.0, 0.01, 0.3, 1.0, 8.0, 14.0, 40.0])


class History(RuleBasedStateMachine):
    """The router is real, and so are both ends' sessions; what the processes do is up to hypothesis."""

    @initialize(max_messages=st.sampled_from([2, 1000]))
    def start(self, max_messages: int) -> None:
        self.net = Network(Settings(recovery_seconds=0.0, queue_max_messages=max_messages, mailbox_max_seconds=60.0))
        self.callers = [self.net.process(f"api-{i}") for i in range(CALLERS)]
        self.consumers = [self.net.process(f"node-{i}") for i in range(CONSUMERS)]
        #: Every process there has been.
        self.processes = self.callers + self.consumers
        self.tags: list[int | None] = [None] * CONSUMERS
        self.calls: list[Call] = []
        self.given_up: set[bytes] = set()
        self.casts: list[Call] = []
        self.idempotent: set[bytes] = set()
        #: What each consumer has and has not answered.
        self.held: list[list[Message]] = [[] for _ in range(CONSUMERS)]
        for number in range(CONSUMERS - 1):
            self.register(number, 2)

    def teardown(self) -> None:
        if not hasattr(self, "net"):
            return
        self._let_all_end()
        for call in self.calls:
            lost_patience = call.key in self.given_up
            assert len(call.ends) <= 1 if lost_patience else len(call.ends) == 1, (call.key.hex(), call.answers)
        for process in self.callers + self.consumers:
            process.stop()
        self.net.advance(200)
        assert left_behind(self.net.router) == {}

    def _let_all_end(self) -> None:
        for process in self.callers + self.consumers:
            self._may_be_welcomed(process, process.heal)
            if not process.uplink.ready:
                self._may_be_welcomed(process, process.connect)
        for number in range(CONSUMERS):
            self.take(number)
            while self.held[number]:
                self._answer(number, 0, False)
                self.take(number)
        self.net.advance(130)

    # --- what processes do -------------------------------------------------------------------

    @rule(
        caller=callers,
        to=addressees,
        ttl=ttls,
        flags=st.sampled_from([0, 0, Flag.IDEMPOTENT, Flag.MANDATORY]),
        times=st.integers(1, 3),
    )
    def call(self, caller: int, to: tuple[str, str], ttl: float | None, flags: int, times: int) -> None:
        process = self.callers[caller]
        for _ in range(times if process.uplink.origin else 0):
            call = process.request(to[0], "m", server=to[1], ttl=ttl, flags=flags)
            self.calls.append(call)
            self._note(call, flags)

    @rule(caller=callers, to=addressees, ttl=ttls, flags=st.sampled_from([0, 0, Flag.IDEMPOTENT, Flag.FANOUT]))
    def cast(self, caller: int, to: tuple[str, str], ttl: float | None, flags: int) -> None:
        process = self.callers[caller]
        if process.uplink.origin:
            cast = process.cast(to[0], "m", server=to[1], ttl=ttl, flags=flags)
            self.casts.append(cast)
            self._note(cast, flags)

    def _note(self, call: Call, flags: int) -> None:
        if flags & Flag.IDEMPOTENT:
            self.idempotent.add(call.key)

    @rule(data=st.data())
    @precondition(lambda self: self.calls)
    def cancel(self, data: st.DataObject) -> None:
        call = data.draw(st.sampled_from(self.calls))
        self.given_up.add(call.key)
        if call.key.startswith(call.process.uplink.origin) and not call.ends:
            call.process.cancel(call)

    @rule(number=consumers, credit=st.integers(1, 3))
    def register(self, number: int, credit: int) -> None:
        if self.tags[number] is None:
            process = self.consumers[number]
            self.tags[number] = process.register("compute", server=process.identity, credit=credit)

    @rule(number=consumers)
    def unregister(self, number: int) -> None:
        tag = self.tags[number]
        if tag is not None:
            self.consumers[number].unregister(tag)
            self.tags[number] = None

    @rule(number=consumers)
    def take(self, number: int) -> None:
        self.held[number] += self.consumers[number].got(Kind.REQUEST, Kind.CAST)

    @rule(number=consumers, position=st.integers(0, 5), fails=st.booleans())
    def answer(self, number: int, position: int, fails: bool) -> None:
        self.take(number)
        if self.held[number]:
            self._answer(number, position % len(self.held[number]), fails)

    def _answer(self, number: int, position: int, fails: bool) -> None:
        process, message = self.consumers[number], self.held[number].pop(position)
        if message.kind is Kind.CAST:
            process.settle(message, outcome=Outcome.REMOTE_ERROR if fails else Outcome.OK)
        elif fails:
            process.fault(message)
        else:
            process.reply(message)

    @rule(number=consumers)
    def stream(self, number: int) -> None:
        self.take(number)
        for message in self.held[number]:
            if message.kind is Kind.REQUEST:
                self.consumers[number].item(message)
                return

    # --- what happens to them ----------------------------------------------------------------

    def _any(self, number: int) -> Process:
        return (self.callers + self.consumers)[number]

    @rule(
        number=st.integers(0, CALLERS + CONSUMERS - 1),
        is_cut_off=st.booleans(),
        is_noticed=st.booleans(),
        caller=callers,
        flags=st.sampled_from([0, 0, Flag.IDEMPOTENT]),
        seconds=st.sampled_from([0.0, 0.0, 0.1, 1.0, 1.0, 45.0]),
    )
    def be_away(self, number: int, is_cut_off: bool, is_noticed: bool, caller: int, flags: int, seconds: float) -> None:
        """The usual trouble: a connection breaks, with messages under way, and there is another after a while."""
        process = self._any(number)
        if is_cut_off:
            process.cut_off()
            self.call(caller, ("compute", ""), None, flags, 2)
            self.answer(0, 0, False)
        process.lose(is_noticed)
        self.call(caller, ("compute", ""), None, flags, 1)
        self.net.advance(seconds)
        self._may_be_welcomed(process, process.heal)
        self._may_be_welcomed(process, process.connect)

    @rule(number=st.integers(0, CALLERS + CONSUMERS - 1), is_noticed=st.booleans())
    def lose(self, number: int, is_noticed: bool) -> None:
        self._any(number).lose(is_noticed)

    @rule(number=st.integers(0, CALLERS + CONSUMERS - 1))
    def connect(self, number: int) -> None:
        self._may_be_welcomed(self._any(number), self._any(number).connect)

    def _may_be_welcomed(self, process: Process, action: Callable[[], None]) -> None:
        """As a client does when the router knows nothing of it: what was under way is over."""
        welcomes = len(process.welcomes)
        action()
        if len(process.welcomes) == welcomes or process.welcomes[-1].resumed:
            return
        if process in self.callers:
            self.given_up |= {call.key for call in self.calls if call.process is process}
        else:
            number = self.consumers.index(process)
            self.tags[number] = None
            self.take(number)
            self.held[number].clear()

    @rule(number=st.integers(0, CALLERS + CONSUMERS - 1))
    def cut_off(self, number: int) -> None:
        self._any(number).cut_off()

    @rule(number=st.integers(0, CALLERS + CONSUMERS - 1))
    def heal(self, number: int) -> None:
        self._may_be_welcomed(self._any(number), self._any(number).heal)

    @rule(number=consumers)
    def die(self, number: int) -> None:
        """Killed; another process takes its place, and its identity."""
        self.consumers[number].die()
        self.consumers[number] = successor = self.net.process(f"node-{number}")
        self.processes.append(successor)
        self.tags[number] = None
        self.held[number].clear()

    @rule(seconds=seconds)
    def time_passes(self, seconds: float) -> None:
        self.net.advance(seconds)

    # --- what is promised --------------------------------------------------------------------

    @invariant()
    def nothing_is_in_two_places(self) -> None:
        if hasattr(self, "net"):
            check_router(self.net.router)

    @invariant()
    def no_call_ends_twice(self) -> None:
        for call in getattr(self, "calls", ()):
            assert len(call.ends) <= 1, call.ends
            assert {end.outcome for end in call.ends} <= OUTCOMES

    @invariant()
    def nothing_is_delivered_twice(self) -> None:
        if not hasattr(self, "net"):
            return
        deliveries: Counter[tuple[bytes, int, int]] = Counter()
        for number, process in enumerate(self.processes):
            for message in process.received:
                if message.kind in (Kind.REQUEST, Kind.CAST):
                    attempt, is_fanout = message.header.attempt, message.header.flags & Flag.FANOUT
                    assert attempt == 0 or message.key in self.idempotent
                    deliveries[message.key, attempt, number if is_fanout else -1] += 1
        assert not deliveries or max(deliveries.values()) == 1

    @invariant()
    def sessions_agree(self) -> None:
        """Neither end believes to have received what the other did not send."""
        assert not hasattr(self, "net") or self.net.router.refused.total() == 0, self.net.router.refused


TestHistory = History.TestCase
TestHistory.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("number", range(8))
def test_many_longer_histories(number: int):
    """In portions: others each time."""
    run_state_machine_as_test(History, settings=settings(max_examples=200, stateful_step_count=80, database=None))
