"""The node poison under faults in virtual time: what kills is quarantined, and nothing that has killed one."""

from __future__ import annotations

import pytest

from rpcmq.nodes.poison import Poison
from tests.faults.poison_simulation import PoisonSimulation

pytestmark = [pytest.mark.fault, pytest.mark.fuzz]

#: Seeds that have found something once.
FOUND = {
    (
        12,
        False,
    ): "two calls that killed at the same time, at several hosts, were taken for one failing host without end",
    (179, True): "a router that had not heard of all deaths went on stopping what the others let through",
    (122, True): "routers did not agree, where one had lifted what others had not seen a reason to lift",
    (2005, True): "a router that was started again quarantined what the others, which knew of more deaths, let through",
    (551, True): "an innocent call that two different killers had met was quarantined, though one of them was already",
}


def run(seed: int, is_rough: bool, keeps: bool = False) -> PoisonSimulation:
    simulation = PoisonSimulation(seed, is_rough, keeps)
    try:
        simulation.run()
    except AssertionError as error:
        kind = "kept" if keeps else "rough" if is_rough else "quiet"
        raise AssertionError(f"{error}; python -m tests.faults.poison_simulation {seed} {kind}") from error
    return simulation


@pytest.mark.parametrize(("seed", "is_rough"), FOUND)
def test_seeds_that_have_found_something(seed: int, is_rough: bool) -> None:
    run(seed, is_rough)


@pytest.mark.parametrize("is_rough", [False, True])
def test_what_kills_is_stopped_and_released_and_nothing_else_is(is_rough: bool) -> None:
    runs = [run(seed, is_rough) for seed in range(2)]
    assert sum(each.stopped for each in runs) > 0


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("is_rough", [False, True])
@pytest.mark.parametrize("portion", range(2))
def test_more_seeds(portion: int, is_rough: bool) -> None:
    for seed in range(2000 + 10 * portion, 2010 + 10 * portion):
        run(seed, is_rough)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_nothing_is_forgotten_or_brought_back_where_all_routers_are_killed_at_once() -> None:
    for seed in range(300, 306):
        run(seed, is_rough=True, keeps=True)


def test_a_seed_gives_the_same_run_each_time() -> None:
    assert run(3, True).told == run(3, True).told


def test_a_quarantine_after_one_kill_is_found() -> None:
    with pytest.raises(AssertionError, match="has killed 1"):
        PoisonSimulation(0, False, kills=1, chance=1.0).run()


def test_a_release_that_other_routers_do_not_hear_of_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Poison, "_let_go", lambda *_: None)
    with pytest.raises(AssertionError, match=r"not released at|routers do not agree"):
        PoisonSimulation(0, False).run()
