"""The figures of an account."""

from __future__ import annotations

import pytest

from rpcmq.latency.analysis.account import Account, Life, SetAside, Verdict
from rpcmq.latency.analysis.wording import unsealed

LIFE = Life("r1", 1_700_000_000_000, 1_700_000_060.0, 3, 2100)


def test_nothing_missing_is_complete() -> None:
    account = Account(shipped=100, counted=100)
    # What is under way in a router that lives has no record yet.
    account.holes = account.open = 7
    # A copy of what is counted is no loss.
    account.set_aside = [SetAside("quarantine/copy.parquet", "duplicate", "has 100 records that are elsewhere", 0)]
    assert (account.verdict, account.shortfall) == (Verdict.COMPLETE, 0)


@pytest.mark.parametrize(
    ("what", "shortfall"),
    [
        ({"shipped": 1381, "set_aside": [SetAside("ready/a.parquet", "corrupt", "checksum", 381)]}, 381 / 1381),
        ({"set_aside": [SetAside("ready/a.parquet", "unlisted", "not in the manifest", None)]}, 0),
        ({"dropped": 20, "holes": 20}, 20 / 1020),
        ({"holes": 30, "open": 10}, 20 / 1020),
        ({"missing_segments": 1}, 0),
        ({"waiting": 4}, 0),
        ({"unsealed": [LIFE]}, 0),
    ],
)
def test_what_is_known_to_be_missing_makes_it_incomplete(what: dict[str, object], shortfall: float) -> None:
    account = Account(**({"shipped": 1000, "counted": 1000} | what))  # type: ignore[arg-type]
    assert account.verdict is Verdict.INCOMPLETE
    assert account.shortfall == pytest.approx(shortfall)


def test_what_nothing_explains_does_not_balance() -> None:
    assert Account(shipped=1000, counted=999).verdict is Verdict.UNBALANCED


def test_a_life_without_a_seal_is_told_with_what_that_can_have_cost() -> None:
    assert Account(unsealed=[LIFE, LIFE]).lost == 4200
    assert unsealed(LIFE) == (
        "r1, started 2023-11-14 22:13:20, ended without a seal, wrote last at 2023-11-14 22:14:20 UTC: "
        "lost are 3 messages without a record and up to 2,100 records since then"
    )
    assert unsealed(Life("r1", 1_700_000_000_000, 0, 0, 0)).endswith("seal: lost are what it had not written yet")
