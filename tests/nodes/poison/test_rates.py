"""The judge of calls that kill is seldom wrong where restarts by SIGKILL do, and finds what kills soon."""

from __future__ import annotations

import pytest

from tests.nodes.poison.rates import KILLERS, NOTHING_KILLS, Run, false_alarms, kills_until_quarantine


@pytest.mark.parametrize("mix", NOTHING_KILLS)
def test_restarts_by_sigkill_seldom_stop_an_innocent_call(mix: str) -> None:
    bad, _, left = false_alarms(NOTHING_KILLS[mix], runs=40)
    assert bad <= (12 if NOTHING_KILLS[mix].in_order else 7) and left <= 2


@pytest.mark.parametrize("mix", KILLERS)
def test_whatever_kills_is_found(mix: str) -> None:
    kills = kills_until_quarantine(KILLERS[mix], runs=15)
    assert kills[-1] <= (3 if mix.startswith("alone") else 6), kills


def test_the_same_seed_gives_the_same_run() -> None:
    mix = KILLERS["three at once, after 2 to 3 s"]
    assert Run(mix, 7).run().kills == Run(mix, 7).run().kills
