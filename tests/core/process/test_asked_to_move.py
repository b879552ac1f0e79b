"""A process whose router asks it to go on at another one, as that has fewer processes."""

from __future__ import annotations

import pytest

from rpcmq.core.process.dialer import Step
from rpcmq.wire import Kind, control, pack
from tests.core.process.test_dialer import Process

A, B, C, D = "tcp://a:1", "tcp://b:1", "tcp://c:1", "tcp://d:1"
MESH = {"mesh": "east", "routers": [{"name": url[6], "urls": [url]} for url in (A, B, C, D)], "adopts": True}


def at(urls: tuple[str, ...]) -> Process:
    """A process that was given ``urls``, and is connected to the first of them."""
    process = Process(urls=urls)
    process.dialer.start(process.now)
    process.connect(mesh=MESH)
    process.now += 1.0
    return process


@pytest.fixture
def process() -> Process:
    return at((A, B))


def ask(process: Process, url: str) -> None:
    process.uplink.receive(process.now, control(Kind.ROUTERS, MESH | {"go_to": url}))


def leaves_within(process: Process, virtual_seconds: float = 10.0) -> bool:
    until = process.now + virtual_seconds
    while process.now < until:
        due = process.dialer.next_deadline()
        assert due is not None
        process.now = max(process.now + 0.001, min(due, until))
        if process.tick() is Step.HANG_UP:
            return True
        process.uplink.receive(process.now, pack(Kind.HEARTBEAT, sequence=process.uplink.unacknowledged))
    return False


def test_it_goes_to_a_router_that_it_was_given(process: Process) -> None:
    assert not leaves_within(process)
    ask(process, B)
    assert leaves_within(process) and process.dialer.url == B
    assert process.dialer.problem == "the router has more processes than its share"
    process.connect(mesh=MESH)
    assert not leaves_within(process)


def test_it_does_not_leave_a_router_that_it_was_given_for_one_that_it_has_only_learned_of(process: Process) -> None:
    ask(process, C)
    assert not leaves_within(process)


@pytest.mark.parametrize("url", [A, D])
def test_from_one_that_it_has_learned_of_it_goes_anywhere(url: str) -> None:
    process = at((A,))
    process.dialer._routers.move_to(C)
    ask(process, url)
    assert leaves_within(process) and process.dialer.url == url


@pytest.mark.parametrize("url", ["", A, "tcp://unknown:1"])
def test_it_stays_where_it_is_asked_to_go_nowhere_else(process: Process, url: str) -> None:
    ask(process, url)
    assert not leaves_within(process)


def test_a_router_of_another_mesh_does_not_move_it(process: Process) -> None:
    process.uplink.receive(process.now, control(Kind.ROUTERS, MESH | {"mesh": "west", "go_to": B}))
    assert not leaves_within(process)


@pytest.mark.parametrize("kind", ["work", "streams"])
def test_work_keeps_it_and_it_has_forgotten_the_question_when_that_ends_late(process: Process, kind: str) -> None:
    under_way = [True]
    getattr(process.uplink.moves, kind).append(lambda: bool(under_way))
    ask(process, B)
    assert not leaves_within(process)
    under_way.clear()
    assert not leaves_within(process)
    ask(process, B)
    assert leaves_within(process)


def test_it_goes_as_soon_as_nothing_is_under_way(process: Process) -> None:
    under_way = [True]
    process.uplink.moves.work.append(lambda: bool(under_way))
    ask(process, B)
    assert not leaves_within(process, 4.0)
    under_way.clear()
    assert leaves_within(process, 0.5)


def test_it_tries_a_router_that_it_cannot_reach_once(process: Process) -> None:
    ask(process, B)
    assert leaves_within(process)
    process.dial()
    assert process.dialed[-1] == B
    process.ended("nothing listens there")
    process.connect(mesh=MESH)
    assert process.dialer.url != B
    process.now += 1.0
    ask(process, B)
    assert not leaves_within(process)
