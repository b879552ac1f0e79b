"""Several routers under faults in virtual time: thousands of runs, each from one seed, each repeatable."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from hashlib import blake2b

import pytest

from rpcmq.core.process.witness import Witness
from rpcmq.core.router.mesh.adoption import Adoption
from rpcmq.core.router.mesh.questions import Asked
from tests.faults.many_seeds import assert_none_breaks
from tests.faults.mesh_plan import MeshPlan, mesh_plan_of
from tests.faults.mesh_simulation import MeshSimulation, simulate_mesh
from tests.faults.plan import Fault, Operation

pytestmark = [pytest.mark.fault, pytest.mark.fuzz]


def replayed(seed: int, kind: str = "") -> str:
    return f"seed {seed}: python -m tests.faults.mesh_simulation {seed} {kind}"


def history_hash(seed: int) -> str:
    simulation = MeshSimulation(mesh_plan_of(seed), keeps_history=True)
    simulation.run()
    assert len(simulation.history) > 20
    return blake2b(b"".join(simulation.history)).hexdigest()


#: Seeds that have found a defect once, and what it was.
FOUND: dict[int, str] = {
    13: "a router that went on offered what a process had left there, and got it back, at once and for ever",
    105312: "a neighbour was never offered anything again once another router had come to own what it was offered",
    105566: "an idempotent call that ran was offered to the same consumer five times in an instant, and then given up",
    115068: "a consumer that had answered, and was asked again later, counted as busy until the call's longest time",
    38: "room was given to a neighbour while unused room was looked for: the look ended with an internal error",
}


@pytest.mark.parametrize("seed", FOUND)
def test_seeds_that_have_found_something(seed: int) -> None:
    assert simulate_mesh(seed, is_plain=True).violations == [], replayed(seed, "plain")


#: The same, of those with all that a plan can have.
FOUND_LATER: dict[tuple[int, str], str] = {
    (19, "gentle"): "two routers sent a request to and fro without end while one of them drained",
    (
        7,
        "quiet",
    ): "the copy of a call for a group came back from the router that had the call, as if it had been started",
    (
        33,
        "gentle",
    ): "a copy for a group was asked for in the place of the call, which ended with LinkLost though it had run",
}


@pytest.mark.parametrize(("seed", "mode"), FOUND_LATER)
def test_seeds_that_have_found_something_later(seed: int, mode: str) -> None:
    assert simulate_mesh(seed, mode=mode).violations == [], replayed(seed, mode)


@pytest.mark.parametrize("portion", range(2))
def test_nothing_breaks(portion: int) -> None:
    for seed in range(portion * 10, portion * 10 + 10):
        assert simulate_mesh(seed).violations == [], replayed(seed)


def test_a_seed_gives_the_same_history_each_time() -> None:
    assert [history_hash(seed) for seed in (3, 4)] == [history_hash(seed) for seed in (3, 4)]
    assert history_hash(3) != history_hash(4)


def test_a_plan_without_steps_is_quiet() -> None:
    plan = replace(mesh_plan_of(1), steps=())
    assert MeshSimulation(plan).run().violations == []


def decide_at_once(adoption: Adoption, now: float, asked: Asked) -> None:
    """Start a message again although nobody of its roll has spoken."""
    adoption._forget(asked)
    request = asked.request
    if request.queue is not None:
        request.queue.remove(request)
        adoption._dispatch.deliveries.deliver_again(now, [request])


#: A router that is cut off from the others, and not from processes, still has a cast of one that has gone elsewhere.
#: There it is started by a consumer that was free to promise; another one, which was busy then, comes to the router.
CUT_OFF = MeshPlan(
    seed=0,
    settings=replace(mesh_plan_of(0).settings, recovery_seconds=0.0, consumer_grace_seconds=30.0),
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

#: Rule of docs/contributing/mesh-model.md -> the method that keeps it, another one that does not, and a plan.
RULES: dict[str, tuple[type, str, Callable[..., object], MeshPlan]] = {
    "keep": (Witness, "answered", lambda witness, task, message: None, mesh_plan_of(35, is_plain=True)),
    "promise": (Witness, "_promise", lambda witness, name, stamp: None, CUT_OFF),
    "roll": (Adoption, "_decide", decide_at_once, mesh_plan_of(21, is_plain=True)),
}


@pytest.mark.parametrize("rule", RULES)
def test_without_a_rule_something_starts_twice(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, method, other, plan = RULES[rule]
    assert MeshSimulation(plan).run().violations == []
    monkeypatch.setattr(owner, method, other)
    assert "started twice" in [violation.check for violation in MeshSimulation(plan).run().violations]


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_10000_seeds(capsys: pytest.CaptureFixture[str]) -> None:
    assert_none_breaks("mesh simulation", simulate_mesh, range(100_000, 110_000), capsys)
