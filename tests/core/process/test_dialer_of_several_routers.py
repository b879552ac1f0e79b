"""The dialer with several routers: which one it dials, and that none is forgotten."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rpcmq.core.process.dialer import Phase, Step
from rpcmq.core.process.router_choice import RouterChoice
from rpcmq.wire import Kind, control, pack
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


# --- in a mesh -------------------------------------------------------------------------------

MESH = {"mesh": "east", "routers": [{"name": "a", "urls": [A]}, {"name": "d", "urls": ["tcp://d:1"]}]}


def urls_of(choice: RouterChoice) -> list[str]:
    return [url for url, _ in choice.problems]


def rows(*routers: tuple[str, ...]) -> list[tuple[str, tuple[str, ...]]]:
    return [(str(number), urls) for number, urls in enumerate(routers)]


def test_routers_of_a_mesh_come_behind_the_configured_ones():
    choice = RouterChoice([A, B])
    choice.learn(rows((C,), ("tcp://d:1",)))
    assert sorted(urls_of(choice)[:2]) == [A, B] and sorted(urls_of(choice)[2:]) == [C, "tcp://d:1"]


def test_one_url_of_each_router_comes_before_the_second_of_any():
    choice = RouterChoice([A])
    choice.learn(rows(("tcp://b:1", "tcp://b:2"), ("tcp://c:1", "tcp://c:2")))
    assert [url[-1] for url in urls_of(choice)[1:]] == ["1", "1", "2", "2"]


def test_a_configured_router_is_not_listed_again_by_its_other_names():
    choice = RouterChoice([A])
    choice.learn(rows((A, "tcp://10.0.0.1:1"), (B,)))
    assert urls_of(choice) == [A, B]


@pytest.mark.parametrize("url", ["tcp://*:7700", "tcp://0.0.0.0:1", "tcp://[::]:1", "ipc:///x", "nonsense", "tcp://["])
def test_an_url_that_nobody_can_dial_is_not_learned(url):
    choice = RouterChoice([A])
    choice.learn(rows((url,)))
    assert urls_of(choice) == [A]


def test_routers_that_left_the_mesh_are_forgotten_and_the_configured_ones_are_not():
    choice = RouterChoice([A, B])
    choice.learn(rows((C,)))
    choice.learn(rows(("tcp://d:1",)))
    assert sorted(urls_of(choice)) == [A, B, "tcp://d:1"]
    choice.learn([])
    assert urls_of(choice) == [A, B]


def test_the_present_router_is_used_until_it_is_gone_even_if_it_left_the_mesh():
    choice = RouterChoice([A])
    choice.learn(rows((B,)))
    choice.move_on()
    assert choice.url == B
    choice.learn(rows((C,)))
    assert choice.url == B
    assert urls_of(choice) == [A, C]
    choice.move_on()
    assert choice.url == A


def test_the_pauses_of_a_router_outlast_news_of_the_mesh():
    choice = RouterChoice([A])
    choice.note_failed(10.0, 1.0, 5.0, "nothing listens there")
    choice.learn(rows((B,)))
    assert choice.not_before > 10.0
    assert dict(choice.problems)[A] == "nothing listens there"


def test_processes_spread_over_the_other_routers():
    after_a = set()
    for first in range(40):
        choice = RouterChoice(URLS, first)
        choice.learn(rows((A,), (B,), (C,), ("tcp://d:1",)))
        while choice.url != A:
            choice.move_on()
        choice.move_on()
        after_a.add(choice.url)
    assert len(after_a) == 3


@given(
    changes=st.lists(st.one_of(st.just(None), st.lists(st.sampled_from("abcdefgh"), unique=True, max_size=8))),
    first=st.integers(0, 1 << 32),
)
def test_whatever_the_mesh_says_each_router_has_its_turn(changes, first):
    choice = RouterChoice([A, B], first)
    for change in changes:
        if change is None:
            choice.move_on()
        else:
            choice.learn(rows(*((f"tcp://{name}:1",) for name in change)))
    seen = []
    for _ in range(len(choice)):
        choice.move_on()
        seen.append(choice.url)
    assert sorted(seen) == sorted(set(urls_of(choice))) and {A, B} <= set(seen)


def test_the_dialer_learns_the_routers_of_welcome_and_of_later_news(process):
    process.ended("gone")
    process.connect(mesh=MESH)
    assert sorted(url for url, _ in process.dialer.problems) == sorted([*URLS, "tcp://d:1"])
    news = control(Kind.ROUTERS, {"mesh": "east", "routers": [{"name": "e", "urls": ["tcp://e:1"]}]})
    process.uplink.receive(process.now, news)
    assert sorted(url for url, _ in process.dialer.problems) == sorted([*URLS, "tcp://e:1"])
    process.uplink.receive(process.now, control(Kind.ROUTERS, {"mesh": "west", "routers": []}))
    assert len(process.dialer.problems) == 4, "of another mesh"


# --- a router of a mesh that drains ----------------------------------------------------------


def drained(process: Process, **mesh: object) -> None:
    process.ended("gone")
    process.connect(mesh=MESH | mesh)
    process.uplink.receive(process.now, control(Kind.DRAIN, {"text": "shutting down", "answer": True}))


def virtual_seconds_until_left(process: Process, most: float = 30.0) -> float | None:
    """Let time pass for ``process``, whose clock is set here, until it leaves its router; None: it has not."""
    began = process.now
    while process.now < began + most:
        due = process.dialer.next_deadline()
        assert due is not None
        process.now = max(process.now + 0.001, due)
        if process.tick() is Step.HANG_UP:
            return process.now - began
        process.uplink.receive(process.now, pack(Kind.HEARTBEAT, sequence=process.uplink.unacknowledged))
    return None


def test_a_process_without_work_leaves_a_router_that_drains_for_another(process):
    drained(process)
    virtual_seconds = virtual_seconds_until_left(process)
    assert virtual_seconds is not None and virtual_seconds < 1.0
    assert process.dialer.problem == "the router is shutting down"
    assert process.tick() is Step.DIAL or process.dialer.phase is Phase.PAUSED
    assert process.dialer.url != A


def test_without_a_mesh_it_waits_for_the_end_of_the_router(process):
    process.uplink.receive(process.now, control(Kind.DRAIN, {"text": "shutting down"}))
    assert virtual_seconds_until_left(process) is None


def test_with_work_under_way_it_stays_where_nobody_else_goes_on_with_it(process):
    process.uplink.moves.work.append(lambda: True)
    drained(process)
    assert virtual_seconds_until_left(process) is None


def test_work_that_ends_lets_it_leave(process):
    working = [True]
    process.uplink.moves.work.append(lambda: bool(working))
    drained(process)
    assert virtual_seconds_until_left(process, 5.0) is None
    working.clear()
    assert virtual_seconds_until_left(process) is not None


def test_with_work_that_others_go_on_with_it_leaves_after_a_while(process):
    process.uplink.moves.work.append(lambda: True)
    drained(process, adopts=True)
    virtual_seconds = virtual_seconds_until_left(process)
    assert virtual_seconds is not None and 1.0 <= virtual_seconds < 3.0


def test_a_stream_keeps_it(process):
    streams = [True]
    process.uplink.moves.streams.append(lambda: bool(streams))
    drained(process, adopts=True)
    assert virtual_seconds_until_left(process) is None
    streams.clear()
    assert virtual_seconds_until_left(process) is not None


def test_a_router_that_is_alone_in_its_mesh_is_not_left():
    process = Process(urls=[A])
    process.dialer.start(process.now)
    process.connect(mesh={"mesh": "east", "routers": [{"name": "a", "urls": [A]}]})
    process.uplink.receive(process.now, control(Kind.DRAIN, {"text": "shutting down"}))
    assert virtual_seconds_until_left(process) is None


# --- a router that does not take what the process serves -------------------------------------


def test_a_process_goes_to_the_router_that_its_topic_belongs_to_once_that_is_one_of_the_mesh(process):
    process.ended("gone")
    process.connect(mesh=MESH)
    process.dialer.go_to("c")
    assert virtual_seconds_until_left(process) is None, "the mesh has no such router"
    news = {
        "mesh": "east",
        "routers": [{"name": "a", "urls": [A]}, {"name": "b", "urls": [B]}, {"name": "c", "urls": [C]}],
    }
    process.uplink.receive(process.now, control(Kind.ROUTERS, news))
    virtual_seconds = virtual_seconds_until_left(process)
    assert virtual_seconds is not None and virtual_seconds < 1.0
    assert process.dialer.url == C and process.dialer.problem == "c takes what is served here"
    process.connect(mesh=news)
    assert virtual_seconds_until_left(process) is None


def test_a_process_that_has_always_something_to_do_goes_where_its_topic_belongs_if_others_go_on_with_that(process):
    process.uplink.moves.work.append(lambda: True)
    process.ended("gone")
    process.connect(mesh=MESH | {"routers": [{"name": "c", "urls": [C]}], "adopts": True})
    process.dialer.go_to("c")
    virtual_seconds = virtual_seconds_until_left(process)
    assert virtual_seconds is not None and 1.0 <= virtual_seconds < 3.0
    assert process.dialer.url == C


def test_a_process_that_is_where_its_topic_belongs_stays(process):
    process.ended("gone")
    process.connect(mesh=MESH | {"routers": [{"name": "a", "urls": [A]}]})
    process.dialer.go_to("a")
    assert virtual_seconds_until_left(process) is None
