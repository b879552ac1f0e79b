"""The token bucket."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rpcmq.core.common.token_bucket import TokenBucket


def test_a_second_s_worth_at_once_then_as_time_goes() -> None:
    bucket = TokenBucket(10.0, 100.0)
    assert [bucket.take(100.0) for _ in range(10)] == [0.0] * 10
    assert bucket.take(100.0) == pytest.approx(0.1)
    assert bucket.take(100.05) == pytest.approx(0.05)
    assert bucket.take(100.11) == 0.0
    assert [bucket.take(200.0) == 0.0 for _ in range(11)] == [True] * 10 + [False]


def test_less_than_one_a_second() -> None:
    bucket = TokenBucket(0.1, 0.0)
    assert bucket.take(0.0) == 0.0
    assert bucket.take(1.0) == pytest.approx(9.0)
    assert bucket.take(11.0) == 0.0


@given(st.floats(0.1, 1000), st.lists(st.floats(0, 0.5), max_size=100))
def test_no_more_than_the_rate_in_the_long_run(rate: float, pauses: list[float]) -> None:
    bucket, now, taken = TokenBucket(rate, 0.0), 0.0, 0
    for pause in pauses:
        now += pause
        taken += bucket.take(now) == 0.0
    assert taken <= max(1.0, rate) + now * rate + 1e-6
