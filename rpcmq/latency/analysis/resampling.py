"""Bootstrap: what quantiles and shares of errors might have been, had chance drawn other records.

Two ways to draw, chosen by what there is:

windows
    Whole windows (minutes) are drawn, with what was in them, in blocks of some that follow each other (circular block
    bootstrap; of n windows the root of n). Records of a window belong together (a pause, a busy neighbour, a failing
    disk hits them all), and windows that follow each other do too (load comes and goes), so this is the honest way; it
    takes at least ``FEWEST_WINDOWS``. The draws are spread by what so few blocks make too narrow (Student's t, and
    n / (n - 1)). What changes more slowly than a block is long, blocks do not know either: ``drift`` does.
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

from rpcmq.histogram import Histogram
from rpcmq.latency.analysis.buckets import Buckets, Floats, Ints, on_one_grid

__all__ = ["DRAWS", "FEWEST_WINDOWS", "drift", "log_quantiles", "share_draws"]

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
    """Return bootstrap draws of the share of errors, resampling windows.

    Args:
        errors, records: of at least ``FEWEST_WINDOWS`` windows.
    """
    weights = _draw_windows(len(records), chance)
    share = errors.sum() / records.sum()
    draws = (weights @ errors) / np.maximum(weights @ records, 1)
    spread: Floats = share + (draws - share) * _spread(len(records))
    return spread


def drift(values: Floats, no_chance: float) -> float:
    """By how much something may differ between the sides because it changes all the time; 0: it does not.

    It is twice the largest difference between the halves, or two neighbouring quarters, of one side: halves are half
    as far apart as the sides are. A difference that chance may have made of what neighbours differ by counts as none.

    Args:
        values: of groups of windows, equally long, in the order of time.
        no_chance: so many times the deviation that chance makes of a difference is more than chance.
    """
    noise = sqrt(float(np.mean(np.diff(values) ** 2)) / 2 / len(values))
    found = 0.0
    for parts in (2, 4):
        means = np.array([float(np.mean(part)) for part in np.array_split(values, parts)])
        largest = float(np.max(np.abs(np.diff(means))))
        if largest > no_chance * noise * sqrt(2 * parts):
            found = max(found, 2 * largest)
    return found


def _draw_windows(windows: int, chance: np.random.Generator) -> Floats:
    """Return how often each window was drawn, one row a draw; floats, whose products are quick."""
    length = _block(windows)
    starts = chance.integers(0, windows, (DRAWS, windows // length, 1))
    drawn = (starts + np.arange(length)) % windows + np.arange(DRAWS)[:, np.newaxis, np.newaxis] * windows
    return np.bincount(drawn.ravel(), minlength=DRAWS * windows).reshape(DRAWS, windows).astype(np.float64)


def _block(windows: int) -> int:
    return max(1, round(sqrt(windows)))


def _spread(windows: int) -> float:
    blocks = windows // _block(windows)
    return sqrt(blocks / (blocks - 1)) * float(t.ppf(0.975, blocks - 1) / norm.ppf(0.975))


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
