"""Routers that are stopped (SIGSTOP) with much under way, and go on when others have taken over: nothing runs twice."""

from __future__ import annotations

import pytest

from tests.faults.mesh_plan import mesh_plan_of
from tests.faults.mesh_simulation import MeshSimulation

pytestmark = [pytest.mark.fault, pytest.mark.fuzz]

#: Seeds in which an idempotent message stayed in flight, or was answered to the former owner only.
FOUND = (1051,)


def broken_by(seed: int) -> list[str]:
    """The violations of a run in which one router at a time is stopped, with four times the usual messages."""
    plan = mesh_plan_of(seed, ("stop router",), "gentle", operations=50)
    found = MeshSimulation(plan).run().violations
    # So many messages may wait for longer than a mailbox keeps them.
    return [str(each) for each in found if each.check != "lost"]


@pytest.mark.parametrize("seed", [*FOUND, 7])
def test_nothing_is_broken(seed: int) -> None:
    assert broken_by(seed) == []


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_nothing_is_broken_in_300_seeds() -> None:
    broken = {seed: found for seed in range(3_000, 3_300) if (found := broken_by(seed))}
    assert broken == {}
