"""The engines under faults in virtual time: thousands of runs, each from one seed, each repeatable."""

from __future__ import annotations

import sys
from dataclasses import replace
from functools import cache
from hashlib import blake2b
from pathlib import Path

import pytest

from rpcmq.core.process.casts import Casts
from rpcmq.drill.checks import Verdict
from rpcmq.testing.processes import Program
from tests.faults.many_seeds import assert_none_breaks
from tests.faults.plan import FAULTS, Fault, Plan, minimised, plan_of
from tests.faults.simulation import Simulation, simulate

ROOT = Path(__file__).parents[2]
pytestmark = [pytest.mark.fault, pytest.mark.fuzz]

#: Seeds that have found a defect once, and what it was.
FOUND = {
    31: "a cast that a full queue had given back was sent again after a restart of the router, and offered again",
    120: "the same, and the window counted it twice for ever",
    288: "the same, and two consumers ran it",
    6259: "casts waited for ever behind a refused one that a restarted router had recognised as a duplicate",
    17: "a new process got the handle of one that was still to come back to a restarted router",
    144: "an answer that died with its session was counted by nobody",
    267: "an answer to a caller that never came back was counted by nobody",
    105159: "the check took one whose connection had been reset, and that was stopped then, for one that was silent",
    108914: "a cast was sent again by a sender that had been told that a consumer had it, and had only lost the ACK",
    100660: "the check knew no sender that loses its session with the router that a killed one was followed by",
    109343: "both of the last two",
    107449: "the check took a delay for over while messages that it held up were still on their way",
    500088: "an idempotent cast came back from a consumer that had left, to a topic that was forgotten meanwhile",
}


def history_hash(seed: int) -> str:
    simulation = Simulation(plan_of(seed), keeps_history=True)
    simulation.run()
    assert len(simulation.history) > 20
    return blake2b(b"".join(simulation.history)).hexdigest()


@pytest.mark.parametrize("seed", FOUND)
def test_seeds_that_have_found_something(seed: int):
    assert simulate(seed).violations == []


@cache
def verdict_on(seed: int) -> Verdict:
    """Two tests look at the same seeds."""
    return simulate(seed)


@pytest.mark.parametrize("portion", [0, *(pytest.param(n, marks=pytest.mark.long) for n in (1, 2, 3))])
def test_nothing_breaks(portion: int):
    for seed in range(portion * 60, portion * 60 + 60):
        assert verdict_on(seed).violations == [], f"seed {seed}"


@pytest.mark.parametrize("portion", [0, *(pytest.param(n, marks=pytest.mark.long) for n in (1, 2, 3))])
def test_nothing_breaks_where_several_consumers_have_calls(portion: int):
    for seed in range(portion * 20, portion * 20 + 20):
        assert simulate(seed, hedges=True).violations == [], f"seed {seed}"


@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_alone(fault: str):
    for seed in range(4):
        assert simulate(seed, faults=(fault,)).violations == [], f"seed {seed}"


def test_there_is_something_to_see():
    """The load is real: all verbs, all ends, answers that came too late, casts that died with a router."""
    submitted: set[str] = set()
    ended: set[str] = set()
    forgotten = dropped = late = 0
    for seed in range(60):
        verdict = verdict_on(seed)
        submitted |= verdict.submitted.keys()
        ended |= verdict.ended.keys()
        forgotten += verdict.forgotten
        dropped += verdict.dropped
        late += verdict.late
    assert submitted == {"call", "cast", "fanout"}
    assert ended >= {"ok", "remote_error", "timeout", "link_lost", "LinkLost", "overloaded", "no_consumer", "cancelled"}
    assert forgotten and dropped and late


def test_a_seed_gives_the_same_history_each_time():
    assert [history_hash(seed) for seed in (3, 4)] == [history_hash(seed) for seed in (3, 4)]
    assert history_hash(3) != history_hash(4)


def test_a_seed_gives_the_same_history_in_another_process():
    code = (
        "from hashlib import blake2b\n"
        "from tests.faults.plan import plan_of\n"
        "from tests.faults.simulation import Simulation\n"
        "run = Simulation(plan_of(5), keeps_history=True); run.run()\n"
        "print(blake2b(b''.join(run.history)).hexdigest())"
    )
    # Not even the order of hashes may matter.
    for hash_seed in ("1", "2"):
        with Program(
            [sys.executable, "-c", code], {"PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT)}, name="simulation"
        ) as program:
            assert program.wait(30) == 0, program.said()
            assert program.lines == [history_hash(5)]


def test_a_defect_is_found_and_made_small(monkeypatch: pytest.MonkeyPatch):
    """With the dedupe of casts after a restart taken out, the simulation finds a seed, and the steps that matter."""
    monkeypatch.setattr(
        Casts,
        "take_resendable",
        lambda self, welcome, unsent, awaited: {p[16:36] + bytes([n]): p for n, p in enumerate(welcome.sent * 2)},
    )

    def fails(plan: Plan) -> bool:
        return not Simulation(plan).run().ok

    seed = next(seed for seed in range(500) if fails(plan_of(seed, faults=("restart router",))))
    plan = plan_of(seed, faults=("restart router",))
    small = minimised(plan, fails)
    assert fails(small) and len(small.steps) < len(plan.steps) / 2
    assert any(isinstance(step, Fault) for _, step in small.steps), "without a restart it must hold"


def test_a_plan_without_steps_is_quiet():
    plan = replace(plan_of(1), steps=())
    assert Simulation(plan).run().violations == []


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_10000_seeds(capsys: pytest.CaptureFixture[str]):
    assert_none_breaks("simulation", simulate, range(100_000, 110_000), capsys)
