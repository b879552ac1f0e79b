"""The dialer's times to dial, give up and pause: with a clock, and with any sequence of events."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rpcmq.core.process.dialer import INSIST_SECONDS, Dialer, Phase, Step
from rpcmq.core.process.uplink import Uplink
from rpcmq.core.process.uplink_states import UplinkState
from rpcmq.wire import Kind, control, pack
from rpcmq.wire.bodies import HelloBody

HELLO = HelloBody(versions=(1,), identity="api-1", queue_type="roundrobin", role="process", accepts=("json",))
ATTEMPT, PAUSE, HEARTBEAT, LOST = 5.0, 2.0, 5.0, 60.0
REASONS = ["identity-taken", "version", "too-many-links", "key", "draining", "hello-first", "protocol", ""]


class Process:
    """A dialer and its uplink, driven as the shell drives them."""

    def __init__(self, jitter: float = 0.5, urls: Sequence[str] = ("tcp://r:1",), first: int = 0) -> None:
        self.now = 100.0
        self.jitter = jitter
        self.steps: list[Step] = []
        self.said: list[int] = []
        self.uplink = Uplink(HELLO, lambda now, welcome: self.dialer.welcomed(now), self._refused)
        self.dialer = Dialer(self.uplink, urls, ATTEMPT, PAUSE, first)
        self.dialed: list[str] = []

    def _refused(self, reason: str, text: str) -> None:
        self.steps.append(self.dialer.refused(self.now, self.jitter, reason, text))

    def tick(self, seconds: float = 0.0) -> Step:
        """Let time pass; return the dialer's next step."""
        self.now += seconds
        self.uplink.tick(self.now)
        step = self.dialer.tick(self.now, self.jitter)
        self.steps.append(step)
        if step is Step.DIAL:
            self.dialed.append(self.dialer.url)
        # What is sent goes out, or is lost with the connection.
        self.said += [message[5] for message in self.uplink.first_messages + self.uplink.last_messages]
        self.uplink.first_messages.clear()
        self.uplink.last_messages.clear()
        return step

    def receive(self, message: bytes) -> None:
        self.uplink.receive(self.now, message)

    def welcome(self, **values: Any) -> None:
        body = {"router_id": 1, "boot": 5, "handle": 7, "token": "t", "received": 0, "resumed": False}
        body |= {"recovery_seconds": 0.0} | values
        self.receive(control(Kind.WELCOME, body))

    def refuse(self, reason: str) -> None:
        self.receive(control(Kind.REFUSED, {"reason": reason, "text": f"because of {reason}"}))

    def ended(self, problem: str = "closed") -> bool:
        return self.dialer.ended(self.now, self.jitter, problem)

    def dial(self) -> None:
        """Wait for the next attempt to begin."""
        for _ in range(3):
            if self.tick() is Step.DIAL:
                return
            due = self.dialer.next_deadline()
            assert due is not None
            self.now = max(self.now, due)
        raise AssertionError(f"{self.dialer.phase} {self.dialer.problem}")

    def connect(self, **welcome: Any) -> None:
        """A whole attempt that succeeds."""
        self.dial()
        self.dialer.reached(self.now)
        self.dialer.greeted(self.now)
        assert len(self.uplink.first_messages) == 1 and self.uplink.first_messages[0][5] == Kind.HELLO
        self.welcome(**welcome)
        assert self.dialer.phase is Phase.UP and self.uplink.ready


@pytest.fixture
def process() -> Process:
    process = Process()
    process.dialer.start(process.now)
    return process


def test_it_dials_at_once_when_it_is_started():
    process = Process()
    assert process.tick(100.0) is Step.NONE and process.dialer.next_deadline() is None
    process.dialer.start(process.now)
    assert process.tick() is Step.DIAL
    assert process.tick() is Step.NONE
    process.dialer.start(process.now)
    assert process.dialer.phase is Phase.CONNECTING


@pytest.mark.parametrize(
    ("phase", "problem"),
    [
        (Phase.CONNECTING, "no answer within 5 s"),
        (Phase.HANDSHAKE, "handshake with tcp://r:1: connected, but no answer within 5 s"),
        (Phase.GREETING, "connected, but the router has not welcomed us within 5 s"),
    ],
)
def test_an_attempt_is_given_up_in_each_phase_and_the_next_one_says_hello(process, phase, problem):
    process.dial()
    if phase is not Phase.CONNECTING:
        process.dialer.reached(process.now)
    if phase is Phase.GREETING:
        process.dialer.greeted(process.now)
    assert process.dialer.phase is phase
    assert process.tick(ATTEMPT - 0.1) is Step.NONE
    assert process.tick(0.1) is Step.HANG_UP
    assert process.dialer.problem == problem
    assert process.uplink.state is UplinkState.DOWN
    process.connect()
    assert process.dialer.problem == ""


@pytest.mark.parametrize("reason", REASONS)
def test_a_refusal_of_the_hello_ends_the_attempt_whatever_its_reason(process, reason):
    process.dial()
    process.dialer.greeted(process.now)
    process.refuse(reason)
    assert process.steps[-1] is Step.HANG_UP
    assert (process.dialer.phase, process.uplink.state) == (Phase.PAUSED, UplinkState.DOWN)
    assert process.dialer.problem == f"because of {reason}"
    process.connect()


@pytest.mark.parametrize("reason", REASONS)
def test_a_refusal_later_ends_the_connection_unless_it_is_about_a_message(process, reason):
    process.connect()
    process.refuse(reason)
    assert process.steps[-1] is (Step.NONE if reason == "protocol" else Step.HANG_UP)
    assert process.uplink.ready is (reason == "protocol")


def test_an_identity_that_is_taken_is_insisted_on_for_a_while_only(process):
    # However long the router was away before.
    for _ in range(20):
        process.dial()
        process.tick(ATTEMPT)
    began = process.now
    while not process.dialer.identity_taken:
        assert process.now < began + INSIST_SECONDS + 2 * PAUSE
        process.dial()
        process.dialer.greeted(process.now)
        process.refuse("identity-taken")
    assert process.now > began + INSIST_SECONDS
    assert process.dialer.phase is Phase.STOPPED and process.dialer.next_deadline() is None
    assert process.tick(100.0) is Step.NONE


def test_pauses_grow_to_the_longest_and_begin_anew_after_a_welcome(process):
    process.jitter = 1.0

    def pause() -> float:
        process.dial()
        process.ended()
        due = process.dialer.next_deadline()
        assert due is not None
        return float(round(due - process.now, 3))

    assert [pause() for _ in range(9)] == [0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.0, 2.0]
    process.connect()
    process.now += 1.0
    assert process.ended() and process.dialer.next_deadline() == process.now
    assert pause() == 0.02
    process.connect()
    # One that lasted only a moment is not followed by the next at once.
    assert process.ended() and process.dialer.next_deadline() == process.now + PAUSE / 4


def test_a_silent_router_is_noticed_and_given_up(process):
    process.connect()
    for _ in range(12):
        assert process.uplink.silent_seconds(process.now) == (process.now - process.uplink.heard) * (
            process.now - process.uplink.heard > 12.0
        )
        assert process.tick(HEARTBEAT) is (Step.NONE if process.now - process.uplink.heard < LOST else Step.HANG_UP)
    assert process.dialer.problem == "the router had been silent for 60.0 s"
    assert process.said.count(Kind.HEARTBEAT) >= 11
    process.connect()


def test_a_router_says_itself_how_long_its_silence_is_borne(process):
    process.dial()
    process.dialer.greeted(process.now)
    process.welcome(heartbeat_seconds=0.1, unresponsive_seconds=0.5, lost_seconds=1.0)
    for _ in range(9):
        assert process.tick(0.1) is Step.NONE
    assert process.uplink.silent_seconds(process.now) > 0.5
    assert process.tick(0.11) is Step.HANG_UP


def test_a_process_that_was_busy_or_stopped_does_not_call_the_router_silent(process):
    process.connect()
    assert process.tick(300.0) is Step.NONE
    assert process.uplink.silent_seconds(process.now) == 0.0
    for _ in range(3):
        process.tick(HEARTBEAT)
    assert process.uplink.silent_seconds(process.now) == 15.0


def test_anything_that_is_heard_ends_the_silence(process):
    process.connect()
    for _ in range(5):
        process.tick(HEARTBEAT)
    assert process.uplink.silent_seconds(process.now) == 25.0
    process.receive(pack(Kind.HEARTBEAT))
    assert process.uplink.silent_seconds(process.now) == 0.0


EVENTS = st.one_of(
    st.tuples(st.just("tick"), st.floats(0.0, 10.0)),
    st.tuples(st.just("refuse"), st.sampled_from(REASONS)),
    st.tuples(
        st.just("welcome"), st.sampled_from([{}, {"boot": 6}, {"resumed": True}, {"resumed": True, "received": 9}])
    ),
    st.tuples(st.sampled_from(["reached", "greeted", "ended", "drain", "reply", "nonsense", "send"]), st.none()),
)


@given(st.lists(EVENTS, max_size=60), st.floats(0.0, 1.0))
def test_whatever_has_happened_a_process_that_can_reach_a_router_is_soon_ready(events, jitter):
    process = Process(jitter)
    process.dialer.start(process.now)
    for event, value in events:
        match event:
            case "tick":
                process.tick(value)
            case "refuse":
                process.refuse(value)
            case "welcome":
                process.welcome(**value)
            case "reached":
                process.dialer.reached(process.now)
            case "greeted":
                process.dialer.greeted(process.now)
            case "ended":
                process.ended()
            case "drain":
                process.receive(control(Kind.DRAIN, {"text": "bye"}))
            case "reply":
                process.receive(pack(Kind.REPLY))
            case "nonsense":
                process.receive(b"nonsense")
            case "send":
                process.uplink.send(pack(Kind.CAST))
        # Paused and down are the same, and so are a connection that stands and an uplink that is ready.
        assert process.uplink.ready is (process.dialer.phase is Phase.UP)
        if process.dialer.phase in (Phase.PAUSED, Phase.STOPPED):
            assert process.uplink.state is UplinkState.DOWN
    # The connection that there may be is dead and does not say so; each new one leads to a router that answers.
    until = process.now + LOST + HEARTBEAT + ATTEMPT + PAUSE
    while not process.dialer.identity_taken:
        if process.tick() is Step.DIAL:
            process.dialer.reached(process.now)
            process.dialer.greeted(process.now)
            process.welcome(boot=7)
            assert process.uplink.ready
            return
        process.now += 0.25
        assert process.now < until, (process.dialer.phase, process.dialer.problem)


# --- back before the recovery window is over -------------------------------------------------------


@given(
    recovery=st.floats(1.0, 60.0),
    attempt=st.floats(0.5, 3600.0),
    pause=st.floats(0.01, 3600.0),
    refuses=st.booleans(),
    outage=st.floats(0.0, 300.0),
    jitters=st.lists(st.floats(0.0, 1.0), min_size=1, max_size=10),
)
def test_a_process_is_back_within_the_recovery_window_whatever_its_settings(
    recovery, attempt, pause, refuses, outage, jitters
):
    process = Process()
    process.dialer = Dialer(process.uplink, ("tcp://r:1",), attempt, pause)
    process.dialer.start(process.now)
    process.dial()
    process.dialer.greeted(process.now)
    process.welcome(recovery_seconds=recovery)
    process.now += 10.0
    process.ended()
    started = process.now + outage
    # Until the router is back nothing is taken: attempts are refused at once, or lead nowhere.
    for n in range(100_000):
        due = process.dialer.next_deadline()
        assert due is not None
        if process.dialer.phase is Phase.PAUSED and max(due, process.now) >= started:
            break
        process.jitter = jitters[n % len(jitters)]
        process.now = max(due, process.now)
        if process.tick() is Step.DIAL and refuses:
            process.now += 0.01
            process.ended("nothing listens there")
    assert due - started <= 0.75 * recovery + 0.02


def test_a_router_that_takes_connections_and_is_slow_is_given_more_time_with_each_attempt(process):
    process.connect(recovery_seconds=2.5)
    process.ended()
    lasted = []
    for _ in range(5):
        process.dial()
        began = process.now
        process.dialer.reached(process.now)
        due = process.dialer.next_deadline()
        assert due is not None
        lasted.append(due - began)
        process.now = due
        assert process.tick() is Step.HANG_UP
    assert lasted == pytest.approx([1.25, 2.5, 5.0, 5.0, 5.0])
    process.connect(recovery_seconds=2.5)
    process.ended()
    process.dial()
    process.dialer.reached(process.now)
    assert process.dialer.next_deadline() == pytest.approx(process.now + 1.25)


@pytest.mark.parametrize("recovery", [-1, float("nan"), "2", None, [1]])
def test_an_impossible_recovery_window_is_refused(process, recovery):
    process.dial()
    process.dialer.greeted(process.now)
    process.welcome(recovery_seconds=recovery)
    assert process.uplink.discarded == {"body": 1} and not process.uplink.ready
