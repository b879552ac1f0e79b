"""The options of a call by which several consumers may have it, as terms for the router."""

from __future__ import annotations

from math import isfinite

from rpcmq.errors import UsageError
from rpcmq.payload.bounded_text import short_repr
from rpcmq.wire.hedge import LONGEST_DELAY, MOST_CONSUMERS, PERCENTILES, HedgeTerms

__all__ = ["HedgeAfter", "hedge_terms", "refuse_hedge"]

#: Seconds, or a percentile of how long the method usually takes: "p50", "p95" or "p99". False: not at all.
HedgeAfter = float | str

_NAMES = {f"p{percentile}": percentile for percentile in PERCENTILES}


def hedge_terms(first_of: int | None, hedge_after: HedgeAfter | None, exception_wins: bool | None) -> HedgeTerms | None:
    """The terms that these options of :meth:`Client.call` ask for; None: one consumer is to have the call.

    Raises:
        UsageError: one is of the wrong type or range.
    """
    if exception_wins is not None and not isinstance(exception_wins, bool):
        raise UsageError(f"exception_wins must be True, False or None, not {short_repr(exception_wins)}")
    consumers = 2 if first_of is None else first_of
    if not isinstance(consumers, int) or isinstance(consumers, bool) or not 1 <= consumers <= MOST_CONSUMERS:
        raise UsageError(f"first_of must be 1 to {MOST_CONSUMERS} consumers, not {short_repr(first_of)}")
    seconds, percentile = _delay(hedge_after)
    if (first_of is None and hedge_after is None) or hedge_after is False or consumers == 1:
        return None
    return HedgeTerms(consumers, seconds, percentile, exception_wins is not False)


def _delay(hedge_after: HedgeAfter | None) -> tuple[float, int]:
    """The delay in seconds, and as a percentile; one of them is 0."""
    if hedge_after is None or hedge_after is False:
        return 0.0, 0
    if isinstance(hedge_after, str) and hedge_after in _NAMES:
        return 0.0, _NAMES[hedge_after]
    is_number = isinstance(hedge_after, int | float) and not isinstance(hedge_after, bool)
    if not is_number or not isfinite(hedge_after) or not 0 <= hedge_after <= LONGEST_DELAY:  # type: ignore[arg-type, operator]
        names = ", ".join(map(repr, _NAMES))
        raise UsageError(
            f"hedge_after must be 0 to {LONGEST_DELAY:g} seconds, {names}, or False, not {short_repr(hedge_after)}"
        )
    return float(hedge_after), 0


def refuse_hedge(idempotent: object, direct: object) -> None:
    """Refuse ``first_of`` and ``hedge_after`` where a call cannot be given to several consumers.

    Raises:
        UsageError: it is not idempotent, or goes straight to its consumer.
    """
    if not idempotent:
        raise UsageError(
            "first_of and hedge_after have more than one consumer run the method, and the call is not idempotent; "
            "say idempotent=True if it does no harm that it is run twice, else leave them out"
        )
    if direct:
        raise UsageError("a direct call has one consumer; leave out direct, or first_of and hedge_after")
