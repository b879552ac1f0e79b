"""The dialer with several routers: which one it dials, and that none is forgotten."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rpcmq.core.process.dialer import Phase, Step
from rpcmq.core.process.router_choice import RouterChoice
from rpcmq.wire import Kind, control
from tests.core.process.test_dialer import ATTEMPT, HEARTBEAT, LOST, PAUSE, REASONS, Process

A, B, C = URLS = ("tcp://a:1", "tcp://b:1", "tcp://c:1")


@pytest.fixture
def process() -> Process:
    """A process with the routers a, b and c, that is connected to a for some time."""
    process = Process(urls=URLS)
    process.dialer.start(process.now)
    process.connect()
    process.now += 1.0
    return process


@pytest.mark.parametrize("first", [0, 1, 2, 3, 2**32 - 1])
def test_it_begins_where_it_is_told_and_goes_round(first):
    process = Process(urls=URLS, first=first)
    process.dialer.start(process.now)
    for _ in range(6):
        process.dial()
        process.ended("nothing listens there")
    at = first % 3
    assert process.dialed == [*URLS[at:], *URLS[:at]] * 2


def test_a_list_of_no_routers_is_refused():
    with pytest.raises(ValueError, match="no router is named"):
        RouterChoice([])


def test_a_lost_connection_is_made_again_to_the_same_router_and_only_then_to_the_next(process):
    process.ended("the connection was lost")
    assert process.tick() is Step.DIAL
    assert process.dialed == [A, A]
    process.ended("nothing listens there")
    assert process.tick() is Step.DIAL, "the next one has no pause"
    assert process.dialed == [A, A, B]


def test_a_router_that_ends_each_connection_at_once_is_left(process):
    process.ended()
    process.connect()
    process.ended()
    assert process.tick() is Step.DIAL
    assert process.dialed == [A, A, B]


def test_a_silent_router_is_left(process):
    while process.tick(HEARTBEAT) is Step.NONE:
        assert process.now < 100.0 + 2 * LOST
    assert process.tick() is Step.DIAL
    assert process.dialed == [A, B]
    assert process.dialer.problems == [(A, "the router had been silent for 60.0 s"), (B, ""), (C, "")]


@pytest.mark.parametrize("reason", REASONS)
@pytest.mark.parametrize("greeted", [False, True], ids=["up", "greeting"])
def test_a_router_that_refuses_us_is_left_unless_our_identity_is_taken(process, reason, greeted):
    if greeted:
        process.ended()
        process.dial()
        process.dialer.greeted(process.now)
    process.refuse(reason)
    if not greeted and reason == "protocol":
        assert process.dialer.phase is Phase.UP, "it is about a message"
        return
    process.dial()
    assert process.dialed[-1] == (A if reason == "identity-taken" else B)


def test_nothing_leads_back_while_the_present_router_lives(process):
    process.refuse("draining")
    process.connect()
    for _ in range(100):
        assert process.tick(HEARTBEAT) is Step.NONE
        process.receive(control(Kind.HEARTBEAT, {}))
    process.ended()
    process.connect()
    assert process.dialed == [A, B, B]
    assert process.dialer.problems == [(A, ""), (B, ""), (C, "")]


def test_each_router_has_pauses_of_its_own(process):
    process.jitter = 1.0
    process.ended()
    began = process.now
    dialed_at: dict[str, list[float]] = {url: [] for url in URLS}
    for _ in range(9):
        process.dial()
        dialed_at[process.dialer.url].append(round(process.now - began, 3))
        process.ended("nothing listens there")
    assert dialed_at == {url: [0.0, 0.02, 0.06] for url in URLS}


def test_all_are_tried_in_the_time_of_one_attempt_though_none_answers():
    process = Process(urls=URLS)
    process.dialer.start(process.now)
    began = process.now
    for _ in URLS:
        process.dial()
        process.dialer.reached(process.now)  # a stopped router: its host takes the connection
    assert process.dialed == list(URLS)
    assert process.now - began < ATTEMPT
    for _ in URLS:
        process.dial()
        process.dialer.reached(process.now)
        due = process.dialer.next_deadline()
        assert due is not None and due - process.now > ATTEMPT / 2, "and each gets more next time"


# --- whatever the routers do ------------------------------------------------------------------------

#: Ways of a router to treat an attempt.
WAYS = ["nothing listens", "black hole", "stopped", "mute", "ends at once", "is killed", "drains", *REASONS]
#: Time of an attempt with a pause after it, and of a connection in these tests (seconds).
ROUND, LIVED = ATTEMPT + PAUSE, 1.0


def treat(process: Process, way: str) -> None:
    """Let an attempt that has begun end in this ``way``."""
    assert process.dialer.phase is Phase.CONNECTING
    match way:
        case "nothing listens":
            process.ended(way)
            return
        case "black hole":
            pass
        case "stopped":
            process.dialer.reached(process.now)
        case _:
            process.dialer.reached(process.now)
            process.dialer.greeted(process.now)
    if way in REASONS:
        process.refuse(way)
    elif way in ("ends at once", "is killed", "drains"):
        process.welcome()
        process.now += 0.0 if way == "ends at once" else LIVED
        if way == "drains":
            process.refuse("draining")
        else:
            process.ended()
        if way == "is killed":
            process.dial()
            process.ended("nothing listens there")


@given(
    ways=st.lists(st.lists(st.sampled_from(WAYS), min_size=1, max_size=5), min_size=1, max_size=5),
    first=st.integers(0, 2**32),
    jitters=st.lists(st.floats(0.0, 1.0), min_size=1, max_size=7),
)
def test_every_router_is_dialed_within_bounded_time_and_never_two_at_once(ways, first, jitters):
    urls = [f"tcp://r:{number}" for number in range(1, len(ways) + 1)]
    process = Process(urls=urls, first=first)
    process.dialer.start(process.now)
    last = dict.fromkeys(urls, process.now)
    attempts = dict.fromkeys(urls, 0)
    is_open = False
    for n in range(200):
        process.jitter = jitters[n % len(jitters)]
        step = process.tick()
        if process.dialer.identity_taken:
            assert "identity-taken" in (way for each in ways for way in each)
            return
        if step is Step.HANG_UP:
            assert is_open
            is_open = False
        elif step is Step.DIAL:
            assert not is_open, "two connections at once"
            url = process.dialer.url
            # Each of the others may end one connection, dial again, and insist on an identity for a while.
            assert process.now - last[url] <= 3 * len(urls) * (ROUND + LIVED) + len(urls) * ROUND, (url, process.dialed)
            treat(process, ways[urls.index(url)][attempts[url] % len(ways[urls.index(url)])])
            attempts[url] += 1
            last[url] = process.now
            is_open = process.dialer.busy
        due = process.dialer.next_deadline()
        if due is not None:
            process.now = max(process.now, due)
    assert is_open or all(process.now - at <= 4 * len(urls) * (ROUND + LIVED) for at in last.values())


@given(
    dead=st.lists(st.sampled_from(["nothing listens", "black hole", "stopped", "mute", "key", "draining"]), max_size=4),
    place=st.integers(0, 4),
    first=st.integers(0, 4),
    jitter=st.floats(0.0, 1.0),
)
def test_a_process_that_can_reach_one_of_its_routers_is_there_within_the_time_of_one_attempt(
    dead, place, first, jitter
):
    ways = [*dead[:place], "lives", *dead[place:]]
    urls = [f"tcp://r:{number}" for number in range(1, len(ways) + 1)]
    process = Process(jitter, urls, first)
    process.dialer.start(process.now)
    began = process.now
    while process.dialer.phase is not Phase.UP:
        if process.tick() is Step.DIAL:
            way = ways[urls.index(process.dialer.url)]
            if way == "lives":
                process.dialer.greeted(process.now)
                process.welcome()
                break
            treat(process, way)
        due = process.dialer.next_deadline()
        assert due is not None
        process.now = max(process.now, due)
    assert process.now - began <= ATTEMPT
    assert process.dialed.count(process.dialer.url) == 1
