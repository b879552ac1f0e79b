"""Failures of records, by the exception raised."""

from __future__ import annotations

import numpy as np

from rpcmq.latency.analysis.account import Account
from rpcmq.latency.analysis.errors import ErrorCount, attach, failures
from rpcmq.latency.analysis.series import merged
from rpcmq.latency.analysis.slow import findings
from tests.latency.analysis.samples import lognormal, series

BOOT, SHOW = ("", "compute", "boot"), ("", "compute", "show")


def test_errors_are_named_by_what_was_raised() -> None:
    chance = np.random.default_rng(1)
    boot = series(lognormal(chance, 5000), "boot", errors=1083, outcome="remote_error")
    show = series(lognormal(chance, 500), "show", errors=20)
    [whole] = merged([boot, show], ())
    counts = [
        ErrorCount(BOOT, "remote_error", "KeyError", 546),
        ErrorCount(BOOT, "remote_error", "ValueError", 530),
        ErrorCount(("", "gone", "gone"), "remote_error", "KeyError", 0),
    ]

    attach(counts, [boot, show], whole)

    # Of seven nobody said what was raised; a timeout raises nothing.
    of_boot = [("remote_error", "KeyError", 546), ("remote_error", "ValueError", 530), ("remote_error", None, 7)]
    assert failures(boot) == of_boot
    assert failures(show) == [("timeout", None, 20)]
    assert failures(whole) == [*of_boot[:2], ("timeout", None, 20), of_boot[2]]
    assert sum(number for *_, number in failures(whole)) == whole.errors
    account = Account(shipped=whole.records, counted=whole.records, in_range=whole.records)
    first = findings(whole, [], [boot, show], [], [], account)[0]
    assert first.what == "20 % of all records did not end well: 546 KeyError, 530 ValueError, 20 timeout"
    assert first.why == (
        "98 % of them are of compute.boot, where 22 % fail (546 KeyError, 530 ValueError, 7 remote_error)."
    )


def test_what_was_raised_adds_up() -> None:
    parts = [series([1, 2], window=n, errors=1, outcome="remote_error") for n in range(3)]
    for each in parts:
        each.errors_by_class = {("remote_error", "KeyError"): 1}
    [whole] = merged(parts, ())
    assert failures(whole) == [("remote_error", "KeyError", 3)]
