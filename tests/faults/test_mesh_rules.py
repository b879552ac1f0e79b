"""Rules of docs/contributing/mesh-model.md, switched off one by one in the engines: then something goes wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

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
from tests.faults.mesh_simulation import MeshSimulation
from tests.faults.plan import Fault, Operation

pytestmark = [pytest.mark.fault, pytest.mark.fuzz]

_SETTINGS = replace(mesh_plan_of(0).settings, recovery_seconds=0.0, consumer_grace_seconds=30.0)

#: A router that is cut off from the others, and not from processes, still has a cast of one that has gone elsewhere.
#: There it is started by a consumer that was free to promise; another one, which was busy then, comes to the router.
CUT_OFF = MeshPlan(
    seed=0,
    settings=_SETTINGS,
    callers=1,
    services=2,
    credit=1,
    steps=(
        *((2.0 + 0.1 * n, Operation("cast", f"c0-{n}", 0, "compute", seconds=8.0)) for n in range(3)),
        (2.5, Fault("isolate router", "a", 25.0)),
        (3.0, Fault("move", "c0", 0.1)),
        (4.0, Fault("move", "s0", 0.1)),
        (12.0, Fault("move", "s1", 0.1)),
        (14.0, Fault("move", "s1", 0.1)),
    ),
    routers="abc",
    homes=(("c0", "a"), ("s0", "a"), ("s1", "b")),
    is_gentle=False,
)

#: C8: a consumer comes to a router, is given a call, and stops; the router is killed before others know the consumer.
UNKNOWN = MeshPlan(
    seed=0,
    settings=_SETTINGS,
    callers=1,
    services=2,
    credit=1,
    steps=(
        (1.5, Fault("delay routers", "ab", 30.0, 0.4)),
        (1.5, Fault("delay routers", "ac", 30.0, 0.4)),
        (2.05, Operation("call", "c0-0", 0, "mail", seconds=8.0, timeout=300.0)),
        (2.2, Fault("stop", "s0", 20.0)),
        (2.3, Fault("kill router", "a", 25.0, 60.0)),
    ),
    routers="abc",
    homes=(("c0", "a"), ("s0", "a"), ("s1", "b")),
    is_gentle=False,
    groups=(("s1", "mail", ""),),
    mail_at=2.0,
)

#: C7: the caller goes from router to router, and the question of the first one comes last; C6: the consumer, which was
#: stopped, comes to a router after that was asked.
LATE = MeshPlan(
    seed=0,
    settings=_SETTINGS,
    callers=1,
    services=1,
    credit=1,
    steps=(
        (1.5, Fault("delay routers", "bd", 30.0, 2.0)),
        (1.5, Fault("delay routers", "cd", 30.0, 0.3)),
        (1.99, Fault("stop", "s0", 4.22)),
        (2.0, Operation("call", "c0-0", 0, "compute", seconds=8.0, timeout=60.0)),
        (2.3, Fault("kill router", "a", 25.0, 60.0)),
        (2.53, Fault("cut routers", "bd", 2.9)),
        (2.55, Fault("move", "c0", 0.1)),
        (2.83, Fault("move", "c0", 0.1)),
    ),
    routers="abcd",
    homes=(("c0", "a"), ("s0", "a")),
    is_gentle=False,
)


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


#: Rule -> the method that keeps it, another one that does not, a plan, and what goes wrong.
RULES: dict[str, tuple[type, str, Callable[..., object], MeshPlan, str]] = {
    "keep": (ConsumersWitness, "answered", lambda *_: None, mesh_plan_of(35, is_plain=True), "started twice"),
    "promise": (ConsumersWitness, "_promise", lambda *_: None, CUT_OFF, "started twice"),
    "roll": (Adoption, "_decide", decide_at_once, mesh_plan_of(21, is_plain=True), "started twice"),
    "announce": (Interest, "consumer_changed", give_work_at_once, UNKNOWN, "started twice"),
    "fence": (Witness, "where", take_back_owners, LATE, "CallTimeout"),
    "push": (Adoption, "_registered", lambda *_: None, LATE, "link_lost"),
}


def went_wrong(plan: MeshPlan) -> set[str]:
    """The checks that the run of ``plan`` violates, and the ends of its calls other than results."""
    verdict = MeshSimulation(plan).run()
    ends = {end for end in verdict.ended if end not in ("ok", "remote_error")}
    return {violation.check for violation in verdict.violations} | ends


@pytest.mark.parametrize("rule", RULES)
def test_without_a_rule_something_goes_wrong(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, method, other, plan, wrong = RULES[rule]
    assert wrong not in went_wrong(plan)
    monkeypatch.setattr(owner, method, other)
    assert wrong in went_wrong(plan)
