"""Windows as the columns of a plot: all as wide as the next one, with gaps where there are no records."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from rpcmq.latency.analysis.series import Series

__all__ = ["Timeline", "round_step", "timeline"]

#: Lengths of time (seconds) that people count in.
_ROUND = (
    1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400, 172_800, 604_800,
)  # fmt: skip
_YEAR = 31_536_000


@dataclass(frozen=True, slots=True)
class Timeline:
    """Columns of equal width.

    Attributes:
        begin: when the first begins, seconds since 1970.
        seconds: the width of each.
        columns: what was in them; None: nothing.
    """

    begin: int
    seconds: int
    columns: list[Series | None]

    @property
    def starts(self) -> list[int]:
        """Start times of the columns (seconds since 1970)."""
        return [self.begin + number * self.seconds for number in range(len(self.columns))]

    @property
    def end(self) -> int:
        """End of the last column (seconds since 1970)."""
        return self.begin + len(self.columns) * self.seconds


def timeline(windows: Iterable[Series], seconds: int, limit: int, like: Timeline | None = None) -> Timeline:
    """The columns of ``windows``, which are ``seconds`` long; merged until there are at most ``limit``.

    Args:
        like: take the columns of that one; what is outside of it is left out.
    """
    found = [(each.window, each) for each in windows if each.window is not None]
    if like is not None:
        begin, width, count = like.begin, like.seconds, len(like.columns)
    elif not found:
        return Timeline(0, seconds, [])
    else:
        first, last = min(start for start, _ in found), max(start for start, _ in found)
        width = _width(first, last, seconds, limit)
        begin = first // width * width if width > seconds else first
        count = (last - begin) // width + 1
    columns: list[Series | None] = [None] * count
    for start, each in found:
        place = (start - begin) // width
        if not 0 <= place < count:
            continue
        into = columns[place]
        if into is None:
            into = columns[place] = Series(each.key, begin + place * width)
        into.add(each)
    return Timeline(begin, width, columns)


def _width(first: int, last: int, seconds: int, limit: int) -> int:
    """The smallest width of which at most ``limit`` columns hold windows that begin from ``first`` to ``last``.

    It is a multiple of ``seconds``, and round if that is possible.
    """
    if (last - first) // seconds < limit:
        return seconds
    for width in _ROUND:
        # Columns that are wider than a window begin at round times.
        if width > seconds and width % seconds == 0 and last // width - first // width < limit:
            return width
    return seconds * -(-(last + seconds - first) // (seconds * (limit - 1)))


def round_step(least: float) -> int:
    """The smallest round length of time (seconds) that is not below ``least``."""
    for step in _ROUND:
        if step >= least:
            return step
    weeks = -(-least // _ROUND[-1]) * _ROUND[-1]
    return int(weeks if weeks < _YEAR else -(-least // _YEAR) * _YEAR)
