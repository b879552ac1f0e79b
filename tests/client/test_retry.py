from __future__ import annotations

from time import monotonic
from typing import Any

import gevent
import pytest

import rpcmq
from rpcmq.client import Client, Retry
from rpcmq.client.middleware import Pipeline
from rpcmq.client.options import Defaults
from rpcmq.client.retry import RetryBudget
from rpcmq.errors import CallTimeout, LinkLost, NoConsumer, Overloaded, UsageError
from rpcmq.testing import eventually
from tests.client.endpoints import Compute, message, topic

QUICK = Retry(attempts=4, base=0.001, most=0.002)
PLENTY = RetryBudget(1.0, most=100.0)


class Flaky:
    """Fails so many times, then answers."""

    def __init__(self, failures: int, error: type[Exception] = LinkLost) -> None:
        self.failures = failures
        self.error = error
        self.calls = 0

    def __call__(self) -> str:
        self.calls += 1
        if self.calls <= self.failures:
            raise self.error("down")
        return "up"


@pytest.mark.parametrize("error", [LinkLost, Overloaded])
def test_it_is_tried_until_it_works(error):
    flaky = Flaky(3, error)
    assert QUICK.run(flaky, monotonic() + 10, PLENTY, gevent.sleep) == "up"
    assert flaky.calls == 4


def test_the_last_error_is_raised_after_the_last_attempt():
    flaky = Flaky(100)
    with pytest.raises(LinkLost, match="down"):
        QUICK.run(flaky, monotonic() + 10, PLENTY, gevent.sleep)
    assert flaky.calls == 4


@pytest.mark.parametrize("error", [CallTimeout, NoConsumer, ValueError, UsageError])
def test_other_errors_are_not_tried_again(error):
    flaky = Flaky(1, error)
    with pytest.raises(error):
        QUICK.run(flaky, monotonic() + 10, PLENTY, gevent.sleep)
    assert flaky.calls == 1


def test_no_retry_begins_after_the_deadline():
    flaky = Flaky(100)
    with pytest.raises(LinkLost):
        Retry(attempts=100, base=0.05, most=0.05).run(flaky, monotonic(), PLENTY, gevent.sleep)
    assert flaky.calls == 1


def test_the_budget_bounds_the_retries_of_all_calls_together():
    budget = RetryBudget(0.1, most=10.0)
    attempts = 0
    for _ in range(100):
        flaky = Flaky(100)
        with pytest.raises(LinkLost):
            QUICK.run(flaky, monotonic() + 10, budget, gevent.sleep)
        attempts += flaky.calls
    # 100 calls, the 10 retries at hand, and one for each 10 calls.
    assert attempts <= 100 + 10 + 10


def test_a_budget_fills_up_again_and_not_beyond_its_bound():
    budget = RetryBudget(0.5, most=2.0)
    assert [budget.spend() for _ in range(3)] == [True, True, False]
    budget.earn()
    assert budget.spend() is False
    budget.earn()
    assert budget.spend() is True
    for _ in range(100):
        budget.earn()
    assert [budget.spend() for _ in range(3)] == [True, True, False]


def test_what_retry_may_be():
    assert Retry.of(True) == Retry()
    assert Retry.of(5) == Retry(attempts=5)
    assert Retry.of(QUICK) is QUICK
    for wrong in (0, -1, "3", 1.5, False):
        with pytest.raises(UsageError, match="retry must be"):
            Retry.of(wrong)


def test_a_call_is_tried_again_when_its_queue_was_full():
    compute = Compute()
    with (
        rpcmq.testing.router(queue_max_messages=1) as router,
        Client(router.url) as client,
        rpcmq.Service("compute", compute, router=router.url, concurrency=1),
    ):
        holding = [gevent.spawn(client.call, None, "compute", message("hold"), timeout=10) for _ in range(2)]
        assert compute.started.wait(20)
        eventually(lambda: topic(router)["queued"] == 1)
        retry = Retry(attempts=1000, base=0.01, most=0.02)
        client.pipeline = Pipeline([], Defaults(None, None, ""), RetryBudget(1.0, most=1000.0), gevent.sleep)
        trying = gevent.spawn(client.call, None, "compute", message("add", a=1), timeout=10, retry=retry)
        gevent.sleep(0.1)
        assert not trying.ready()
        compute.go_on.set()
        assert trying.get(timeout=20) == 1
        gevent.joinall(holding, 20)


def test_a_call_is_tried_again_when_its_consumer_was_lost(client, serve):
    first, second = Compute(), Compute()
    leaving = serve(first, host="a")
    trying = gevent.spawn(client.call, None, "compute", message("hold"), timeout=10, retry=3)
    assert first.started.wait(20)
    second.go_on.set()
    leaving.client.close()
    serve(second, host="b")
    assert trying.get(timeout=20) == "held"
    first.go_on.set()


def test_each_attempt_is_idempotent(router, client, serve):
    """So the router itself gives it to another consumer, within the first attempt."""
    first, second = Compute(), Compute()
    leaving = serve(first, host="a")
    trying = gevent.spawn(client.call, None, "compute", message("hold"), timeout=10, retry=Retry(attempts=1))
    assert first.started.wait(20)
    second.go_on.set()
    leaving.client.close()
    serve(second, host="b")
    assert trying.get(timeout=20) == "held"
    first.go_on.set()


def test_a_remote_error_is_not_tried_again(client, serve):
    calls: list[Any] = []

    class Endpoint:
        def fail(self, ctx: Any) -> None:
            calls.append(1)
            raise ValueError("no")

    serve(Endpoint())
    with pytest.raises(ValueError, match="no"):
        client.call(None, "compute", message("fail"), retry=5)
    assert calls == [1]


def test_retries_share_the_timeout(client):
    started = monotonic()
    with pytest.raises(CallTimeout):
        client.call(None, "nobody", message("add"), timeout=4.0, retry=5)
    assert monotonic() - started < 20


def test_a_retry_waits_at_least_as_long_as_the_error_says():
    slept: list[float] = []
    failures: list[Exception] = [
        Overloaded("too fast", {"retry_after": 5}),
        Overloaded("full"),
        Overloaded("odd", {"retry_after": "soon"}),
        Overloaded("odd", {"retry_after": float("inf")}),
        LinkLost("gone", {"retry_after": 7}),
    ]

    def attempt() -> str:
        if failures:
            raise failures.pop(0)
        return "up"

    assert Retry(attempts=9, base=0.001, most=0.002).run(attempt, monotonic() + 60, PLENTY, slept.append) == "up"
    assert [round(seconds) for seconds in slept] == [5, 0, 0, 0, 0]


def test_a_retry_that_would_come_too_late_is_not_waited_for():
    def attempt() -> str:
        raise Overloaded("too fast", {"retry_after": 3600})

    with pytest.raises(Overloaded):
        QUICK.run(attempt, monotonic() + 10, PLENTY, gevent.sleep)
