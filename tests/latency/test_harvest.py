"""The contents of a spool file beside its records."""

from __future__ import annotations

import pytest

from rpcmq.latency.harvest import Harvest, harvest
from rpcmq.log_format import MARK, BlockKind, framed
from tests.latency.spools import head, seal


def harvested(*marks: tuple[float, int], segment: int = 1) -> Harvest:
    blocks = b"".join(b"".join(framed(BlockKind.MARK, 1, MARK.pack(1000 + at, seq, 0))) for at, seq in marks)
    # The seal of no records has as many names as those of others: nobody compares them.
    return harvest(head(segment) + blocks + seal(0), False)


@pytest.mark.parametrize(
    ("marks", "segment", "rate"),
    [
        # Idle at first, then busy: what counts is the end.
        ([(5, 10), (6, 20), (7, 4020), (8, 8020)], 1, 4000),
        ([(5, 10), (5.1, 1034), (5.6, 3000), (6.1, 4034)], 1, 3000),
        # The numbers of a life begin with its first file, and only with that.
        ([(2, 3000)], 1, 1500),
        ([(2, 3000)], 2, 0),
        ([(0.5, 3000)], 1, 0),
        ([], 1, 0),
    ],
)
def test_the_rate_is_that_of_the_end(marks: list[tuple[float, int]], segment: int, rate: float) -> None:
    assert harvested(*marks, segment=segment).rate == pytest.approx(rate)
