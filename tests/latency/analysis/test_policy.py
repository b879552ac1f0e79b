"""The contents of the policy, and records that must stay out of it."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pytest

from rpcmq.latency.analysis.policy import FEWEST, make_policy
from rpcmq.latency.policy import Policy
from tests.latency.analysis.samples import lognormal, series

DAY = 86_400
NOW = 1_700_000_400.0


def calls(count: int) -> Iterable[float]:
    values: Iterable[float] = lognormal(np.random.default_rng(1), count)
    return values


def made(
    values: dict[str, Iterable[float]], ages: dict[str, float] | None = None, min_samples: int = 1000
) -> tuple[Policy, dict[str, str]]:
    ages = ages or {}
    newest = {("", "compute", method): NOW - ages.get(method, 0) for method in values}
    return make_policy([series(v, method) for method, v in values.items()], newest, NOW, min_samples, DAY)


def test_each_method_with_enough_samples_gets_an_entry() -> None:
    policy, left_out = made({"boot": calls(2000), "list": calls(999)})

    assert left_out == {"compute.list": "999 samples, 1000 are needed"}
    [entry] = policy.entries.values()
    assert (entry.exchange, entry.topic, entry.method, entry.samples) == ("", "compute", "boot", 2000)
    assert (entry.newest, entry.valid_until, policy.valid_until) == (NOW, NOW + DAY, NOW + DAY)
    assert entry.us[0] == pytest.approx(5000, rel=0.1)
    for us, (low, high) in zip(entry.us, entry.intervals_us, strict=True):
        assert low < us < high


def test_a_window_that_is_not_over_is_not_in_the_future() -> None:
    policy, _ = made({"boot": calls(2000)}, {"boot": -55})
    assert policy.entries["", "compute", "boot"].newest == NOW


def test_a_method_whose_newest_sample_is_too_old_is_left_out() -> None:
    policy, left_out = made({"boot": calls(2000), "list": calls(2000)}, {"boot": DAY + 1, "list": DAY})
    assert [entry.method for entry in policy.entries.values()] == ["list"]
    assert left_out == {"compute.boot": "the newest sample is 86401 s old"}


def test_an_older_method_is_valid_for_a_shorter_time() -> None:
    policy, _ = made({"boot": calls(2000), "list": calls(2000)}, {"list": 600})
    assert policy.entries["", "compute", "list"].valid_until == NOW - 600 + DAY
    assert policy.valid_until == NOW + DAY


def test_what_cannot_be_is_left_out() -> None:
    policy, left_out = made({"boot": [90_000_000_000] * 2000, "list": [0] * 2000})
    assert policy.entries == {}
    assert left_out["compute.boot"] == "durations of 90000000000 to 90000000000 us cannot be"
    assert "compute.list" in left_out


def test_a_p99_takes_its_number_of_samples() -> None:
    assert FEWEST == 299
    with pytest.raises(ValueError, match="a p99 needs 299"):
        made({}, min_samples=298)
    assert len(made({"boot": calls(299)}, min_samples=299)[0].entries) == 1
