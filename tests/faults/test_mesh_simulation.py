"""Several routers under faults in virtual time: thousands of runs, each from one seed, each repeatable."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from hashlib import blake2b
from random import Random

import pytest

from rpcmq.nodes.poison import Poison
from rpcmq.testing.nodes import engine_with, plan_of
from tests.faults.many_seeds import assert_none_breaks
from tests.faults.mesh_plan import HEDGES, RINGS, TWO_DEATHS, MeshPlan, mesh_plan_of
from tests.faults.mesh_simulation import MeshSimulation, simulate_mesh
from tests.faults.plan import Fault, Operation, Step

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
    (1_000_060, ""): "a request that nobody had room for went around without end once each BUSY was answered",
    (2_000_069, ""): "a cast that a consumer had ended ran again, as that was killed, and its sender's router before",
    (2_000_208, ""): "a router that was started again did not wait for the one which knew that a call had been started",
    (
        2_000_454,
        "",
    ): "the group of a cast that had run got its copy again before its consumer, which had had it, was asked",
    (1_001_820, ""): "a fanout that came from another router before its sender's own one read it was called a fault",
    (2_001_519, ""): "casts that were sent to the next life of a router, which reached nobody yet, ran twice",
    (1_002_660, ""): "an idempotent call was offered again to a router that had it, sent back each time, and given up",
    (1_002_902, ""): "a service that had a fanout got it again at its next router, which had been cut off meanwhile",
    (1_002_945, ""): "lost events were kept to be told to a router that never subscribed again",
    (101_780, ""): "a service that came back said what it ran before it was asked for it, and lost it all the same",
}


@pytest.mark.parametrize(("seed", "mode"), FOUND_LATER)
def test_seeds_that_have_found_something_later(seed: int, mode: str) -> None:
    assert simulate_mesh(seed, mode=mode).violations == [], replayed(seed, mode)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("seeds", [slice(2), pytest.param(slice(2, 8), marks=pytest.mark.long)], ids=["few", "more"])
def test_nothing_breaks(seeds: slice) -> None:
    for first in (0, RINGS, TWO_DEATHS, HEDGES):
        for seed in range(first, first + 8)[seeds]:
            assert simulate_mesh(seed).violations == [], replayed(seed)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_nothing_breaks_with_the_node_poison() -> None:
    for seed in (*range(40, 48), TWO_DEATHS + 1, HEDGES + 1):
        verdict = MeshSimulation(mesh_plan_of(seed), engine=engine_with(plan_of(Poison))).run()
        assert verdict.violations == [], f"seed {seed}"


def test_a_seed_gives_the_same_history_each_time() -> None:
    once, again, other = (history_hash(seed) for seed in (3, 3, 4))
    assert once == again != other


def test_a_plan_without_steps_is_quiet() -> None:
    plan = replace(mesh_plan_of(1), steps=())
    assert MeshSimulation(plan).run().violations == []


def wide_area(seed: int, seconds: float, routers: str = "abc", links: tuple[str, ...] = ("ab", "ac", "bc")) -> MeshPlan:
    """Routers far from each other: half a second to two each way, never the same for long, and broken links."""
    rng = Random(f"wide area {seed}")
    steps: list[Step] = []
    for pair in links:
        at = 1.0
        while at < seconds:
            lasts = rng.uniform(2.0, 6.0)
            kind = "reset routers" if rng.random() < 0.07 else "delay routers"
            steps.append((at, Fault(kind, pair, lasts, rng.uniform(0.5, 2.0))))
            at += lasts
    for number in range(int(seconds)):
        verb, caller = rng.choice(("call", "cast")), rng.randrange(2)
        timeout = 300.0 if verb == "call" else None
        at, took = 1.5 + number + rng.random(), rng.choice((0.0, 0.2, 2.0))
        steps.append((at, Operation(verb, f"c{caller}-{number}", caller, "compute", seconds=took, timeout=timeout)))
    homes = ("c0", "a"), ("c1", "b"), ("s0", "c"), ("s1", "a")
    steps.sort(key=lambda step: step[0])
    return MeshPlan(seed, mesh_plan_of(0).settings, 2, 2, 2, tuple(steps), routers, homes)


def wide_ring(seed: int, seconds: float) -> MeshPlan:
    """The same in a ring of four."""
    plan = wide_area(seed, seconds, "abcd", ("ab", "bc", "cd", "da"))
    return replace(plan, is_ring=True, settings=replace(plan.settings, mesh_dial="peers"))


@pytest.mark.parametrize("far", [wide_area, wide_ring])
def test_a_mesh_over_a_wide_area_goes_on_by_itself(far: Callable[[int, float], MeshPlan]) -> None:
    verdict = MeshSimulation(far(1, 60.0)).run()
    assert verdict.violations == []
    assert verdict.ended["ok"] > 20


@pytest.mark.long
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("far", [wide_area, wide_ring])
def test_a_mesh_over_a_wide_area_goes_on_for_a_day(far: Callable[[int, float], MeshPlan]) -> None:
    hours = float(os.environ.get("WIDE_AREA_HOURS", "24"))
    assert MeshSimulation(far(5, hours * 3600.0)).run().violations == []


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_10000_seeds(capsys: pytest.CaptureFixture[str]) -> None:
    assert_none_breaks("mesh simulation", simulate_mesh, range(100_000, 110_000), capsys)
