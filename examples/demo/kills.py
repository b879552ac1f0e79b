"""How long the users felt the death of a router."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from statistics import median

from examples.demo.users import Boot

#: A pause that begins later than this after a death is not its doing (seconds).
_SECONDS = 10.0


def felt(boots: Sequence[Boot], killed: float) -> str:
    """Return a sentence on how long the users felt that a router was killed.

    Args:
        boots: those that went well.
        killed: when (seconds, by ``monotonic``).
    """
    pauses = [(before, after) for before, after in pairwise(sorted(boot.answered for boot in boots))]
    around = [after - before for before, after in pauses if after > killed and before < killed + _SECONDS]
    other = [after - before for before, after in pauses if after <= killed]
    hit = [boot.answered - boot.asked for boot in boots if boot.asked <= killed < boot.answered]
    usual = [boot.answered - boot.asked for boot in boots if boot.answered <= killed]
    if not (around and other and hit and usual):
        return "too few boots to tell how long the death of the router was felt"
    return (
        f"{len(hit)} boots were under way when the router was killed: they took {max(hit):.2f} s at most "
        f"(in the median before: {median(usual):.2f} s). The longest time without any answer was {max(around):.2f} s "
        f"(before: {max(other):.2f} s)"
    )
