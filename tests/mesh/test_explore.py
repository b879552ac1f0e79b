"""Adoption holds in random walks and in every order of one call and one kill, but not without its rules.

A walk that breaks is printed by ``python -m tests.mesh.explore --seed N``, with the same options.
"""

from __future__ import annotations

import os
import sys
from dataclasses import fields
from pathlib import Path

import pytest
from gevent import subprocess

from tests.mesh.explore import Walk, first_broken, search, walks
from tests.mesh.protocol import Rules
from tests.mesh.world import Setting, world_of

ROOT = Path(__file__).parents[2]
TIMERS = pytest.mark.parametrize("is_timer_any_time", [True, False], ids=["timers any time", "timers last"])
LOCAL, REMOTE = {"c0": "A", "s0": "A", "s1": "B"}, {"c0": "A", "s0": "B", "s1": "C"}


@TIMERS
def test_random_walks_hold(is_timer_any_time: bool) -> None:
    assert walks(Setting(is_timer_any_time=is_timer_any_time), 200) == {}


@pytest.mark.long
@TIMERS
def test_many_random_walks_hold(is_timer_any_time: bool) -> None:
    assert walks(Setting(is_timer_any_time=is_timer_any_time), 4_000, first_seed=1_000) == {}


def test_a_walk_is_the_same_in_any_process() -> None:
    walk = Walk(Setting(), 7)
    command = [sys.executable, "-m", "tests.mesh.explore", "--seed", "7"]
    printed = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": "5"},
    )
    assert printed.stdout.splitlines() == [*map(str, walk.actions), "held"]
    assert len({action.kind for action in walk.actions}) > 5


@pytest.mark.parametrize(
    ("without", "broken"),
    [
        ("keep", "started twice"),
        ("roll", "started twice"),
        ("promise drop_old", "started twice"),
        ("promise fence", "started twice"),
        ("fence", "never ends"),
        ("push", "never ends"),
        ("ask_again", "lost"),
        ("give_up", "never ends"),
    ],
)
def test_walks_find_the_rule_that_is_missing(without: str, broken: str) -> None:
    seed = first_broken(Setting(Rules().without(*without.split())), 300, broken)
    assert seed is not None


@pytest.mark.parametrize(("homes", "states"), [(LOCAL, 6_076), (REMOTE, 4_199)], ids=["local", "remote"])
def test_every_order_of_one_call_and_one_kill_holds(homes: dict[str, str], states: int) -> None:
    found = search(
        Setting(kinds=frozenset({"kill"}), is_timer_any_time=False), world_of(homes, faults=1, kills=1), 50_000
    )
    assert found.is_complete and found.broken == ""
    assert found.states == pytest.approx(states, rel=0.2)


@pytest.mark.long
@pytest.mark.parametrize("fault", ["stop", "reset"])
def test_every_order_of_one_call_and_another_fault_holds(fault: str) -> None:
    found = search(Setting(kinds=frozenset({fault}), is_timer_any_time=False), world_of(REMOTE, faults=1), 200_000)
    assert found.is_complete and found.broken == "" and found.states > 20_000


@pytest.mark.parametrize("homes", [LOCAL, REMOTE], ids=["local", "remote"])
def test_one_kill_starts_a_call_twice_without_the_rules(homes: dict[str, str]) -> None:
    none = Rules().without(*(each.name for each in fields(Rules) if each.name != "ask_again"))
    found = search(Setting(none, frozenset({"kill"}), False), world_of(homes, faults=1, kills=1), 50_000)
    assert found.broken == "started twice" and 5 < len(found.actions) < 15
    assert "kill" in {action.kind for action in found.actions}
