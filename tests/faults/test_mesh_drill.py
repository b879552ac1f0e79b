"""The checks of a drill with several routers find what they are to find; nobody else's death excuses a message."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest

from rpcmq import Client
from rpcmq.drill.faults import check_faults
from rpcmq.drill.history import Event, What
from rpcmq.drill.mesh_checks import LINK, check_mesh
from rpcmq.drill.promises import Bounds
from rpcmq.drill.router_links import CuttableMesh
from rpcmq.drill.topology import Topology
from rpcmq.drill.verdict import Verdict
from rpcmq.errors import CallTimeout, NoConsumer, UsageError
from rpcmq.testing import eventually
from rpcmq.testing.processes import RouterProcess

CALL = Event(1.0, "c0", What.SUBMIT, "call", {"verb": "call", "topic": "drill", "timeout": 20.0})
CALL_STARTS = Event(1.1, "s0", What.START, "call", {"topic": "drill", "attempt": 0})
CALL_ENDS = Event(1.2, "c0", What.END, "call", {"outcome": "ok", "of": "call"})
CAST = Event(2.0, "c0", What.SUBMIT, "cast", {"verb": "cast", "topic": "drill"})
CAST_STARTS = Event(2.1, "s1", What.START, "cast", {"topic": "drill", "attempt": 0})
ROUTER_DIES = Event(1.05, "drill", What.FAULT, "kill", {"target": "router"})
LINK_LOST = CALL_ENDS._replace(fields={"outcome": "link_lost", "text": "s0 did not say"})
WHOLE = (CALL, ROUTER_DIES, CALL_STARTS, CALL_ENDS, CAST, CAST_STARTS)


def kill(at: float) -> Event:
    return Event(at, "drill", What.FAULT, "kill", {"target": "s0"})


def verdict_on(*events: Event) -> Verdict:
    return check_mesh(sorted(events), Bounds())


def without(event: Event, *others: Event) -> tuple[Event, ...]:
    return (*(each for each in WHOLE if each is not event), *others)


def test_a_whole_history_has_no_violation() -> None:
    verdict = verdict_on(*WHOLE)
    assert verdict.ok and verdict.ended == {"ok": 1} and verdict.submitted == {"call": 1, "cast": 1}


@pytest.mark.parametrize(
    ("expected", "events"),
    [
        ("started twice", (*WHOLE, CALL_STARTS._replace(at=1.15, process="s1"))),
        ("started twice", (*WHOLE, CALL_STARTS._replace(at=1.15))),
        ("started twice", (*WHOLE, CAST_STARTS._replace(at=9.0), kill(8.0))),
        ("answered by nobody", without(CALL_STARTS)),
        ("ended twice", (*WHOLE, CALL_ENDS._replace(at=3.0))),
        ("never ended", without(CALL_ENDS)),
        ("failed", without(CALL_ENDS, LINK_LOST)),
        ("lost", without(CAST_STARTS)),
        ("misrouted", without(CALL_ENDS, CALL_ENDS._replace(fields={"outcome": "ok", "of": "cast"}))),
        ("misrouted", (*WHOLE, CALL_STARTS._replace(at=3.0, id="another"))),
        ("misrouted", without(CAST_STARTS, CAST_STARTS._replace(fields={"topic": "other"}))),
        ("not taken", (*WHOLE, Event(5.0, "c0", What.DONE, "", {"left": 2}))),
    ],
)
def test_a_broken_history_has_one(expected: str, events: tuple[Event, ...]) -> None:
    assert [violation.check for violation in verdict_on(*events).violations] == [expected]


def test_the_death_of_a_process_excuses_what_it_may_have_had() -> None:
    assert verdict_on(*without(CALL_ENDS, LINK_LOST), kill(1.15)).ok
    verdict = verdict_on(*without(CAST_STARTS), kill(2.05))
    assert verdict.ok and verdict.forgotten == 1
    # It was dead before: others had to run it.
    assert verdict_on(*without(CAST_STARTS), kill(1.0)).lost == 1


def test_an_idempotent_call_and_a_fanout_may_start_at_several() -> None:
    idempotent = CALL._replace(fields=CALL.fields | {"idempotent": True})
    assert verdict_on(*without(CALL, idempotent, CALL_STARTS._replace(at=1.15))).ok
    fanout = CAST._replace(fields={"verb": "fanout", "topic": "drill"})
    assert verdict_on(*without(CAST, fanout, CAST_STARTS._replace(at=3.0, process="s2"))).ok
    assert verdict_on(*without(CAST, fanout, CAST_STARTS._replace(at=3.0))).doubled == 1


@pytest.mark.parametrize(
    ("refuse", "text"),
    [
        (lambda: check_faults(("router", "partition"), Topology(routers=3)), "not with several routers: partition"),
        (lambda: check_faults(("router",), Topology(routers=3, misspelt=0.1)), "misspelt"),
        (lambda: check_faults(("link-cut",), Topology()), "only with several routers"),
    ],
)
def test_what_only_one_router_can_have_is_refused(refuse: Callable[[], Any], text: str) -> None:
    with pytest.raises(UsageError, match=text):
        refuse()
    check_faults(("partition",), Topology())


def cut_of(seconds: float) -> tuple[Event, ...]:
    link = {"target": f"{LINK} a-b"}
    begin = Event(1.05, "drill", What.FAULT, "link-cut", link)
    return begin, Event(1.05 + seconds, "drill", What.HEALED, "link-cut", link)


def test_only_a_long_cut_of_a_link_between_routers_excuses_a_failed_call_and_nothing_a_second_start() -> None:
    late = LINK_LOST._replace(at=12.0)
    assert verdict_on(*without(CALL_ENDS, late), *cut_of(7.0)).ok
    assert [each.check for each in verdict_on(*without(CALL_ENDS, late), *cut_of(5.0)).violations] == ["failed"]
    # It was cut for long in the end, and not yet when the call failed.
    early = LINK_LOST._replace(at=3.0)
    assert [each.check for each in verdict_on(*without(CALL_ENDS, early), *cut_of(7.0)).violations] == ["failed"]
    twice = CALL_STARTS._replace(at=1.15, process="s1")
    assert [each.check for each in verdict_on(*WHOLE, twice, *cut_of(7.0)).violations] == ["started twice"]
    assert verdict_on(*without(CAST_STARTS), *cut_of(7.0)).lost == 1


@pytest.mark.long
@pytest.mark.timeout(120)
def test_a_link_between_two_routers_is_cut_and_no_other_one() -> None:
    with CuttableMesh(3) as mesh:
        a, b, c = mesh
        mesh.cut(a, b)
        eventually(lambda: "b" not in mesh.neighbours(a) and "a" not in mesh.neighbours(b), 20.0)
        assert mesh.neighbours(c) == ["a", "b"]
        assert "c" in mesh.neighbours(a) and "c" in mesh.neighbours(b)
        mesh.heal()
        mesh.wait_until_linked()
        mesh.cut(a, b, is_one_way=True)
        eventually(lambda: "b" not in mesh.neighbours(a), 20.0)
        mesh.heal()
        mesh.wait_until_linked()
        before = connects(a, "b")
        mesh.reset(a, b)
        eventually(lambda: connects(a, "b") > before, 20.0)
        mesh.wait_until_linked()


@pytest.mark.long
def test_a_process_is_cut_off_from_all_routers() -> None:
    with CuttableMesh(2) as mesh, Client(mesh.urls, shell="gevent") as client:
        ping = {"method": "rpcmq.ping", "args": {}}
        with pytest.raises(NoConsumer):
            client.call(None, "nobody", ping, timeout=10.0, mandatory=True)
        mesh.cut_off(os.getpid())
        with pytest.raises(CallTimeout):
            client.call(None, "nobody", ping, timeout=0.5, mandatory=True)
        mesh.wait_until_linked()
        mesh.heal()
        with pytest.raises(NoConsumer):
            client.call(None, "nobody", ping, timeout=10.0, mandatory=True)


def connects(router: RouterProcess, other: str) -> int:
    rows = router.view("mesh")["routers"]
    return int(next(row["counters"]["connects"] for row in rows if row["name"] == other and "counters" in row))
