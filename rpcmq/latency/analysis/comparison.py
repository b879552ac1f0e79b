"""The result of comparing two ranges of a log: the shifts of each method."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import log

from rpcmq.latency.analysis.series import Key, Series

__all__ = ["ERRORS", "Comparison", "MethodShift", "Shift"]

#: Name of a shift in the share of errors.
ERRORS = "errors"
#: A percentage point of errors weighs as much as a percentile that grows by a tenth of e.
_ERRORS_WEIGH = 10


@dataclass(frozen=True, slots=True)
class Shift:
    """The change of a percentile, or of the share of errors, of one method.

    Attributes:
        what: ``p99`` and the like, or ``errors``.
        before, after: microseconds, or a share; None: there is none.
        change: of a percentile: after over before, minus 1; of errors: after minus before. None: no records.
        interval: what ``change`` lies between, with 95 %; None: n is too small.
        p_value: how likely such a change is by chance, corrected for their number; None: n is too small.
        drawn: what was drawn for the interval: ``windows`` or ``records``; None: n is too small.
        drift: by how much the sides may differ because it changes within them, on the scale of ``change``; the
            interval is that much wider. 0: it does not, or records were drawn, which do not tell.
        detectable: a change of that size would have been confirmed in 4 of 5 cases; None: n is too small.
        confirmed: whether it is no chance.
        matters: whether it is confirmed and large enough.
    """

    what: str
    before: float | None
    after: float | None
    change: float | None = None
    interval: tuple[float, float] | None = None
    p_value: float | None = None
    drawn: str | None = None
    drift: float = 0.0
    detectable: float | None = None
    confirmed: bool = False
    matters: bool = False

    @property
    def size(self) -> float:
        """The change, up or down, on a scale on which percentiles and errors compare."""
        if self.change is None:
            return 0.0
        if self.what == ERRORS:
            return abs(self.change) * _ERRORS_WEIGH
        return abs(log(max(1 + self.change, 1e-9)))


@dataclass(frozen=True, slots=True)
class MethodShift:
    """The changes of one method.

    Attributes:
        key: exchange, topic, method.
        before, after: its records then and now.
        shifts: of each percentile, then of its errors.
    """

    key: Key
    before: Series
    after: Series
    shifts: tuple[Shift, ...]

    @property
    def matters(self) -> bool:
        """Whether any of its shifts does."""
        return any(shift.matters for shift in self.shifts)

    @property
    def weight(self) -> float:
        """The weight of the change: the largest shift, times the time that callers spent in the method (seconds)."""
        counts = [shift.size for shift in self.shifts if shift.matters] or [
            shift.size for shift in self.shifts if shift.interval is not None
        ]
        return max(counts, default=0.0) * max(self.before.total.sum, self.after.total.sum) / 1e6


@dataclass(frozen=True, slots=True)
class Comparison:
    """The changes of all methods.

    Attributes:
        measure: the duration that was compared: total, queue or service.
        smallest: the smallest change that matters, a share.
        methods: those that are in both; those that matter first, and of these the one with the greatest weight.
        gone, new: methods that are only in what was before, or only in what is after.
    """

    measure: str
    smallest: float
    methods: list[MethodShift]
    gone: list[Series] = field(default_factory=list)
    new: list[Series] = field(default_factory=list)
