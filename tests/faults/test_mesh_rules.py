"""Rules of docs/contributing/mesh-model.md, switched off one by one in the engines: then something goes wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import pytest

from rpcmq.core.process.witness import Witness as ConsumersWitness
from rpcmq.core.router.mesh.adoption import Adoption
from rpcmq.core.router.mesh.fences import name_of
from rpcmq.core.router.mesh.interest import Interest
from rpcmq.core.router.mesh.questions import Asked
from rpcmq.core.router.mesh.witness import Witness
from rpcmq.core.router.model import Consumer, Link
from rpcmq.wire.adoption import where_records
from tests.faults.mesh_plan import MeshPlan, mesh_plan_of
from tests.faults.mesh_rule_plans import (
    BETWEEN_ROUTERS,
    CUT_OFF,
    HOME_GONE,
    JOINS,
    KNOWN_TO_ONE,
    LATE,
    MOVED_BOTH,
    UNKNOWN,
)
from tests.faults.mesh_simulation import MeshSimulation
from tests.faults.roaming_process import RoamingProcess

pytestmark = [pytest.mark.fault, pytest.mark.fuzz]


def decide_at_once(adoption: Adoption, now: float, asked: Asked) -> None:
    """Start a message again although nobody of its roll has spoken."""
    adoption._forget(asked)
    request = asked.request
    if request.queue is not None:
        request.queue.remove(request)
        adoption._dispatch.deliveries.deliver_again(now, [request])


_where, _consumer_changed = Witness.where, Interest.consumer_changed


def take_back_owners(witness: Witness, now: float, link: Link, message: bytes) -> None:
    """Let whoever asks last be the owner."""
    for key, stamp in where_records(message):
        fence = witness.fences.get(key, "")
        if fence is not None and fence.stamp > stamp:
            witness.fences._remove(name_of(key, ""))
    _where(witness, now, link, message)


def give_work_at_once(interest: Interest, now: float, consumer: Consumer, is_new: bool = False) -> None:
    """Have a consumer take work that no other router knows."""
    _consumer_changed(interest, now, consumer)


_hang_up = RoamingProcess._hang_up


def read_on(process: RoamingProcess) -> None:
    """Read the earlier connection again, some time after the process has gone on elsewhere."""
    connection = process.connection
    batches = list(connection.to_dialer.in_transit) if connection is not None else []
    _hang_up(process)

    def read() -> None:
        now = process._network.now
        for _, batch, payloads in batches:
            process.uplink.receive(now, batch, payloads)
            process.after_receive(now)
        process._network.run()

    process.later(3.0, read)


def do_nothing(*_: object) -> None:
    """Leave out what the rule asks for."""


def refuse(*_: object) -> bool:
    """Say that it is not done."""
    return False


def name_nobody(*_: object) -> tuple[()]:
    """Know no consumer."""
    return ()


class Rule(NamedTuple):
    """A rule, and what becomes of a plan without it.

    Attributes:
        methods: those that keep it, each with one that does not.
        plan: in which something goes wrong without it.
        wrong: the check that is violated, or the end of a call.
        beside: another rule that must be off, too.
    """

    methods: tuple[tuple[type, str, Callable[..., object]], ...]
    plan: MeshPlan
    wrong: str
    beside: str = ""


TWICE = "started twice"
RULES = {
    "keep": Rule(((ConsumersWitness, "answered", do_nothing),), mesh_plan_of(35, is_plain=True), TWICE),
    "promise": Rule(((ConsumersWitness, "_promise", do_nothing),), CUT_OFF, TWICE),
    "roll": Rule(((Adoption, "_decide", decide_at_once),), mesh_plan_of(21, is_plain=True), TWICE),
    "announce": Rule(((Interest, "consumer_changed", give_work_at_once),), UNKNOWN, TWICE),
    "names": Rule(((Witness, "_names", name_nobody),), KNOWN_TO_ONE, TWICE),
    "carry": Rule(((Witness, "_carry", do_nothing), (Witness, "tell_all", do_nothing)), JOINS, TWICE),
    "give_up": Rule(((Witness, "_give_up_unasked", do_nothing), (Adoption, "give_up", do_nothing)), JOINS, TWICE),
    "fence": Rule(((Witness, "where", take_back_owners),), LATE, "CallTimeout"),
    "push": Rule(((Adoption, "_registered", do_nothing),), LATE, "link_lost"),
    "retag": Rule(((ConsumersWitness, "_retag", do_nothing),), MOVED_BOTH, "timeout"),
    "ask_again": Rule(((Adoption, "asks_again", refuse), (Adoption, "look_for", refuse)), HOME_GONE, "link_lost"),
    "drop_old": Rule(((RoamingProcess, "_hang_up", read_on),), BETWEEN_ROUTERS, TWICE, beside="promise"),
}


def switch_off(rule: Rule, monkeypatch: pytest.MonkeyPatch) -> None:
    for owner, method, other in rule.methods:
        monkeypatch.setattr(owner, method, other)


def went_wrong(plan: MeshPlan) -> set[str]:
    """The checks that the run of ``plan`` violates, and the ends of its calls other than results."""
    verdict = MeshSimulation(plan).run()
    ends = {end for end in verdict.ended if end not in ("ok", "remote_error")}
    return {violation.check for violation in verdict.violations} | ends


@pytest.mark.parametrize("name", RULES)
def test_without_a_rule_something_goes_wrong(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rule = RULES[name]
    assert rule.wrong not in went_wrong(rule.plan)
    if rule.beside:
        with monkeypatch.context() as patch:
            switch_off(rule, patch)
            assert rule.wrong not in went_wrong(rule.plan)
        switch_off(RULES[rule.beside], monkeypatch)
        assert rule.wrong not in went_wrong(rule.plan)
    switch_off(rule, monkeypatch)
    assert rule.wrong in went_wrong(rule.plan)


def test_a_consumer_that_comes_while_a_router_is_alone_gets_nothing_that_may_be_elsewhere() -> None:
    """Nobody can have asked it, and the router can't know who has taken over what waits there."""
    assert went_wrong(JOINS) == set()
