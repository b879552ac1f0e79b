"""Bootstrap: what quantiles and shares of errors might have been, had chance drawn other records.

Two ways to draw, chosen by what there is:

windows
    Whole windows (minutes) are drawn, with what was in them. Records of a window belong together (a pause, a busy
    neighbour, a failing disk hits them all), so this is the honest way; it takes at least ``FEWEST_WINDOWS``. The draws
    are spread by what so few windows make too narrow (Student's t, and n / (n - 1)).
records
    Each record is drawn by itself. The quantile at rank r of n records drawn from n with replacement is the quantile
    of those n at a share that has the Beta(r, n - r + 1) distribution, so it is drawn as that: the same distribution
    as that of multinomial draws of all counts, at a hundredth of the cost.

Within a bucket, values are taken to be spread evenly on a logarithmic scale: else every result would be a multiple of
the buckets' 2.2 %.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt

import numpy as np
from scipy.stats import norm, t

from rpcmq.core.histogram import Histogram
from rpcmq.latency.analysis.buckets import Buckets, Floats, Ints, on_one_grid

__all__ = ["DRAWS", "FEWEST_WINDOWS", "log_quantiles", "share_draws"]

DRAWS = 2000
FEWEST_WINDOWS = 20
#: Durations are whole microseconds; what is below one has no logarithm and is taken for this.
_SMALLEST = 0.5


def log_quantiles(
    histograms: Sequence[Histogram], quantiles: Sequence[float], chance: np.random.Generator
) -> tuple[Floats, Floats]:
    """Logarithms of quantiles, and of what they might have been.

    Args:
        histograms: one, whose records are drawn; or those of at least ``FEWEST_WINDOWS`` windows, which are drawn.

    Returns:
        The logarithm of each of ``quantiles``; and a row of them for each of ``DRAWS`` draws.
    """
    whole = Histogram()
    for each in histograms:
        whole.merge(each)
    buckets = Buckets.of(whole)
    up_to = buckets.up_to.astype(np.float64)[np.newaxis]
    estimate = np.hstack([_values(buckets, up_to, _ranks(q, up_to[:, -1])) for q in quantiles])
    if len(histograms) < FEWEST_WINDOWS:
        return estimate, np.column_stack([_of_records(buckets, q, chance) for q in quantiles])
    _, counts = on_one_grid(histograms)
    up_to = np.cumsum(_draw_windows(len(histograms), chance) @ counts.astype(np.float64), axis=1)
    draws = np.column_stack([_values(buckets, up_to, _ranks(q, up_to[:, -1])) for q in quantiles])
    return estimate, estimate + (draws - estimate) * _spread(len(histograms))


def share_draws(errors: Ints, records: Ints, chance: np.random.Generator) -> Floats:
    """What the share of errors might have been, by draws of windows.

    Args:
        errors, records: of at least ``FEWEST_WINDOWS`` windows.
    """
    weights = _draw_windows(len(records), chance)
    share = errors.sum() / records.sum()
    draws = (weights @ errors) / np.maximum(weights @ records, 1)
    spread: Floats = share + (draws - share) * _spread(len(records))
    return spread


def _draw_windows(windows: int, chance: np.random.Generator) -> Floats:
    """How often each window was drawn, a row a draw; floats, whose products are quick."""
    return chance.multinomial(windows, np.full(windows, 1 / windows), DRAWS).astype(np.float64)


def _spread(windows: int) -> float:
    return sqrt(windows / (windows - 1)) * float(t.ppf(0.975, windows - 1) / norm.ppf(0.975))


def _of_records(buckets: Buckets, q: float, chance: np.random.Generator) -> Floats:
    count = buckets.count
    rank = float(_ranks(q, np.array([count]))[0])
    ranks = chance.beta(rank, count - rank + 1, DRAWS) * count
    return _values(buckets, buckets.up_to.astype(np.float64)[np.newaxis], ranks)


def _ranks(q: float, counts: Floats | Ints) -> Floats:
    """Nearest ranks of the quantile; 0.07 * 100 is a hair more than 7 in doubles."""
    ranks: Floats = np.maximum(np.ceil(q * counts * (1 - 1e-12)), 1)
    return ranks


def _values(buckets: Buckets, up_to: Floats, ranks: Floats) -> Floats:
    """Logarithms of the values at ``ranks``.

    Args:
        up_to: counts up to each bucket, a row for each of ``ranks``; or one row for all.
    """
    if len(up_to) == 1:
        row = np.zeros(len(ranks), np.int64)
        place = np.searchsorted(up_to[0], ranks)
    else:
        row = np.arange(len(ranks))
        place = np.count_nonzero(up_to < ranks[:, np.newaxis], axis=1)
    place = np.minimum(place, up_to.shape[1] - 1)
    before = np.where(place > 0, up_to[row, place - 1], 0)
    inside = up_to[row, place] - before
    share = np.clip((ranks - before) / np.where(inside > 0, inside, 1), 0, 1)
    lower = np.log(np.maximum(buckets.lower, _SMALLEST))
    upper = np.log(np.maximum(buckets.upper, _SMALLEST))
    found: Floats = lower[place] + (upper - lower)[place] * share
    return found
