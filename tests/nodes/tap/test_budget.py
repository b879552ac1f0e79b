"""A second's worth at once, and no more than the rate after that."""

from __future__ import annotations

from rpcmq.nodes.tap.budget import Budget


def spent(budget: Budget, now: float, amount: float) -> bool:
    if not budget.has(now, amount):
        return False
    budget.spend(amount)
    return True


def test_a_budget_has_a_seconds_worth_and_fills_again() -> None:
    budget = Budget(10.0, 100.0)
    assert [spent(budget, 100.0, 4) for _ in range(3)] == [True, True, False]
    assert not spent(budget, 99.0, 4), "a clock that goes back gives nothing"
    assert spent(budget, 100.2, 4) and not spent(budget, 100.2, 1)
    assert spent(budget, 200.0, 10) and not spent(budget, 200.0, 1)


def test_a_low_rate_lets_one_pass_after_a_while() -> None:
    budget = Budget(0.5, 0.0)
    assert spent(budget, 0.0, 1) and not spent(budget, 1.0, 1) and spent(budget, 2.0, 1)
    assert spent(Budget(1.0, 0.0, least=16.0), 0.0, 16)
