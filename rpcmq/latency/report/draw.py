"""The plots, drawn once for the page and for pictures: each function makes a figure of one width.

Only matplotlib's objects are used, nothing that is global to a process. One pixel of the page is one point here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf, log2, nan
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import Colormap, LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties, findfont, get_font
from matplotlib.patheffects import withStroke
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from rpcmq.histogram import SCALE
from rpcmq.latency.analysis.names import method_name
from rpcmq.latency.analysis.quantities import percentile_name
from rpcmq.latency.analysis.series import Series
from rpcmq.latency.report import units
from rpcmq.latency.report.colours import LIGHT, OUTCOMES, QUANTILES, STAGES
from rpcmq.latency.report.numbers import STAGES as STAGE_TEXTS
from rpcmq.latency.report.numbers import known, quantile, stages
from rpcmq.latency.report.timeline import Timeline, round_step

__all__ = ["NARROW", "RC", "WIDE", "error_outcomes", "heat_map", "percentiles", "stage_bars"]

#: Widths, pixels of the page.
WIDE, NARROW = 1100, 400
#: Settings that all of this is drawn and saved with.
RC = {
    "axes.edgecolor": LIGHT["line"],
    "axes.labelcolor": LIGHT["muted"],
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlecolor": LIGHT["ink"],
    "axes.titlelocation": "left",
    "axes.titlesize": 11,
    "figure.facecolor": LIGHT["back"],
    "axes.facecolor": "none",
    "font.family": "DejaVu Sans",
    "font.size": 11,
    "grid.color": LIGHT["grid"],
    "grid.linewidth": 1,
    # Two pictures on one place stay two: the page shows the one for its background.
    "image.composite_image": False,
    "lines.linewidth": 1.6,
    "lines.solid_capstyle": "round",
    # Names are not mathematics.
    "text.parse_math": False,
    "text.color": LIGHT["ink"],
    "xtick.color": LIGHT["line"],
    "xtick.labelcolor": LIGHT["muted"],
    "ytick.color": LIGHT["line"],
    "ytick.labelcolor": LIGHT["muted"],
    "svg.fonttype": "none",
}

_POINTS = 72
_MINUTE, _DAY, _YEAR = 60, 86_400, 31_536_000
#: With at most so many columns each point gets a mark.
_FEW = 60
#: Rows of the heat map in an octave, and buckets of a histogram in one of them.
_ROWS = 4
_BUCKETS = (1 << SCALE) // _ROWS
_HEAT = {
    "heat-light": LinearSegmentedColormap.from_list(
        "heat-light", ["#e3eef5", "#b3d9dc", "#67bcc4", "#2f8fb8", "#2a5a9c", "#1c2c66"]
    ),
    "heat-dark": LinearSegmentedColormap.from_list(
        "heat-dark", ["#1b2b47", "#23508a", "#2f83ac", "#55b3b8", "#a5d8c4", "#f2f7d0"]
    ),
}
_STAGE_ROWS = 12


def percentiles(line: Timeline, width: int) -> Figure | None:
    """Quantiles of the duration over time with their intervals, on a logarithmic scale; None: there are none.

    A quantile is drawn where n is large enough for it.
    """
    if not any(each and each.total.count for each in line.columns):
        return None
    figure = _figure(width, 340 if width == WIDE else 300)
    axes = figure.subplots()
    _margins(figure, width, top=14)
    x = _middles(line)
    ends: dict[str, tuple[float, str]] = {}
    low, high = inf, 0.0
    few = len(line.columns) <= _FEW
    greatest = np.array([_or_nan(each.total.max if each else None) for each in line.columns])
    axes.plot(x, greatest, linestyle="none", marker="o", markersize=4 if few else 2.2, color=LIGHT["max"])
    ends["max"] = (_last(greatest), LIGHT["max"])
    high = max(high, float(np.nanmax(greatest)))
    for q, colour in QUANTILES.items():
        found = [quantile(each.total, q) if each else None for each in line.columns]
        values = np.array([each.value if each else nan for each in found])
        if np.isnan(values).all():
            continue
        lower = np.array([each.low if each else nan for each in found])
        upper = np.array([each.high if each else nan for each in found])
        axes.fill_between(x, np.maximum(lower, 1), upper, color=LIGHT[colour], alpha=0.13, linewidth=0)
        axes.plot(x, values, color=LIGHT[colour], marker="o" if few else _lonely(values), markersize=4 if few else 2)
        ends[percentile_name(q)] = (_last(values), LIGHT[colour])
        low = min(low, max(float(np.nanmin(lower)), float(np.nanmin(values)) / 4))
    low = max(1.0, min(low, high, _least(line) if low == inf else low))
    _duration_axis(axes, low / 1.6, max(high * 1.6, low * 4))
    _time_axis(axes, line, width)
    _label_ends(figure, axes, ends)
    return figure


def heat_map(line: Timeline, width: int) -> Figure | None:
    """Draw counts of records by duration over time, both colours and durations logarithmic; None if there are none."""
    found = _cells(line)
    if found is None:
        return None
    counts, lowest, zero = found
    # On a narrow page the legend stands below the scale, not beside it.
    is_narrow = width == NARROW
    figure = _figure(width, 310 if is_narrow else 320)
    axes = figure.subplots()
    _margins(figure, width, top=60 if is_narrow else 40)
    extent = (line.begin, line.end, lowest / _ROWS, (lowest + len(counts)) / _ROWS)
    for name, colours in _HEAT.items():
        cells = _coloured(counts, colours)
        axes.imshow(cells, origin="lower", aspect="auto", extent=extent, interpolation="none").set_gid(name)
    casing = withStroke(linewidth=3, foreground=LIGHT["back"], alpha=0.75)
    for q, dash in ((0.5, "--"), (0.99, "-")):
        values = [each.total.quantile(q) if each and known(each.total, q) else None for each in line.columns]
        heights = np.array([log2(max(value, 1)) if value is not None else nan for value in values])
        if not np.isnan(heights).all():
            axes.plot(_middles(line), heights, color=LIGHT["ink"], linewidth=1, linestyle=dash, marker=_lonely(heights),
                      markersize=2.5, label=percentile_name(q), path_effects=[casing])  # fmt: skip
    axes.set_ylim(extent[2], extent[3])
    axes.yaxis.set_major_locator(_Decades(zero))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: "0" if value == zero else _short(2**value)))
    _time_axis(axes, line, width, grid=False)
    if axes.get_legend_handles_labels()[0]:
        height = figure.get_figheight() * _POINTS
        place = ("center left", (58 / width, 1 - 42 / height)) if is_narrow else (
            "center right", (1 - 58 / width, 1 - 18 / height))  # fmt: skip
        figure.legend(loc=place[0], bbox_to_anchor=place[1], ncols=2, frameon=False,
                      borderaxespad=0, borderpad=0, handlelength=1.8, columnspacing=1.2)  # fmt: skip
    _colour_scale(figure, axes, counts.max(), width)
    return figure


def error_outcomes(line: Timeline, width: int) -> Figure | None:
    """Records a second, and below the share of those that did not end well, by outcome; None: there are no records."""
    if not any(line.columns):
        return None
    figure = _figure(width, 360 if width == WIDE else 400)
    volume, errors = figure.subplots(2, 1, sharex=True, height_ratios=[1, 2.2])
    names = _error_names(line)
    across = 9 if width == WIDE else 3
    _margins(figure, width, top=24, bottom=52 + 18 * -(-len(names) // across))
    figure.subplots_adjust(hspace=0.42)
    edges = np.array([*line.starts, line.end])
    records = np.array([each.records if each else 0 for each in line.columns])
    volume.stairs(records / line.seconds, edges, fill=True, color=LIGHT["volume"])
    volume.set_title("records/s", pad=4)
    volume.set_ylim(bottom=0)
    volume.yaxis.set_major_locator(MaxNLocator(3, steps=[1, 2, 5, 10]))
    volume.yaxis.set_major_formatter(FuncFormatter(lambda value, _: _number(value)))
    volume.grid(axis="y")
    volume.set_axisbelow(True)
    volume.tick_params(length=0)
    base = np.zeros(len(records))
    for outcome, colour in names.items():
        found = np.array([each.outcomes.get(outcome, 0) if each else 0 for each in line.columns])
        top = base + 100 * found / np.maximum(records, 1)
        errors.stairs(top, edges, baseline=base, fill=True, color=colour, label=_plain(outcome), linewidth=0)
        base = top
    errors.set_title("share that did not end well" + ("" if base.any() else ": none"), pad=4)
    errors.set_ylim(0, max(base.max() * 1.1, 0.01) if base.any() else 1)
    errors.yaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
    errors.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{_number(value)} %"))
    errors.grid(axis="y")
    errors.set_axisbelow(True)
    _time_axis(errors, line, width, grid=False)
    if names:
        figure.legend(loc="lower left", bbox_to_anchor=(58 / width, 0), ncols=across, frameon=False, handlelength=1,
                      borderaxespad=0, columnspacing=1.4, fontsize=10.5)  # fmt: skip
    return figure


def stage_bars(whole: Series, methods: Sequence[Series], width: int) -> Figure | None:
    """The share of each stage of the time, of all and of the methods with the most; None: there are no durations."""
    rows = [("all", whole)] + [(method_name(each.key), each) for each in methods[:_STAGE_ROWS]]
    shares = [(name, stages(each)) for name, each in rows if each.total.sum]
    if not shares:
        return None
    figure = _figure(width, 70 + 26 * len(shares))
    axes = figure.subplots()
    height = figure.get_figheight() * _POINTS
    figure.subplots_adjust(left=300 / width, right=1 - 30 / width, top=1 - 34 / height, bottom=30 / height)
    places = np.arange(len(shares))
    base = np.zeros(len(shares))
    for stage in STAGES:
        found = np.array([100 * each[stage] / max(sum(each.values()), 1) for _, each in shares])
        axes.barh(places, found, 0.66, left=base, color=LIGHT[stage], label=STAGE_TEXTS[stage][0])
        base += found
    axes.set_yticks(places, [_plain(name) for name, _ in shares], color=LIGHT["ink"])
    axes.invert_yaxis()
    axes.set_xlim(0, 100)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.0f} %"))
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=5, frameon=False, borderaxespad=0.3, handlelength=1)
    return figure


def _figure(width: int, height: int) -> Figure:
    return Figure(figsize=(width / _POINTS, height / _POINTS), dpi=_POINTS)


def _margins(figure: Figure, width: int, top: int, bottom: int = 44) -> None:
    """The same to the left and right in all plots over time, so that what is one below the other is of one time."""
    height = figure.get_figheight() * _POINTS
    figure.subplots_adjust(left=58 / width, right=1 - 58 / width, top=1 - top / height, bottom=bottom / height)


def _middles(line: Timeline) -> Any:
    return np.array(line.starts) + line.seconds / 2


def _time_axis(axes: Axes, line: Timeline, width: int, grid: bool = True) -> None:
    step = round_step((line.end - line.begin) / (12 if width == WIDE else 5))
    marks = range(-(-line.begin // step) * step, line.end + 1, step)
    axes.set_xticks(marks, [_moment(mark, step) for mark in marks])
    axes.set_xlim(line.begin, line.end)
    axes.set_xlabel(f"UTC, {units.time(line.begin)[:10]}", loc="left", fontsize=10)
    axes.tick_params(length=0)
    axes.tick_params(axis="x", pad=6)
    if grid:
        axes.grid(axis="both")
        axes.set_axisbelow(True)


def _moment(seconds: int, step: int) -> str:
    day, clock = units.time(seconds).split()
    if seconds % _DAY == 0:
        return day[5:] if step < _YEAR else day
    return clock if step < _MINUTE else clock[:5]


def _duration_axis(axes: Axes, low: float, high: float) -> None:
    axes.set_yscale("log")
    axes.set_ylim(low, high)
    axes.yaxis.set_major_locator(LogLocator(10, (1.0,) if high / low > 300 else (1.0, 2.0, 5.0)))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: _short(value)))


def _number(value: float) -> str:
    """``value`` with four digits, and never with an exponent."""
    return f"{value:,.0f}" if abs(value) >= 1000 else np.format_float_positional(value, 4, fractional=False, trim="-")


class _Decades(MaxNLocator):
    """Ticks at 1, 10, 100 µs and so on, on an axis of binary logarithms; and one where a row for zero is."""

    def __init__(self, zero: float | None) -> None:
        super().__init__()
        self._zero = zero

    def tick_values(self, low: float, high: float) -> list[float]:
        if self._zero is not None:
            # Neither in that row, nor so near that the texts would touch.
            return [self._zero, *_decades(self._zero + 2 / _ROWS, high)]
        return _decades(low, high)


def _decades(low: float, high: float) -> list[float]:
    steps = (1, 10) if high - low > 6 else (1, 2, 5)
    marks = [log2(step * 10**power) for power in range(13) for step in steps if step < 10]
    return [mark for mark in marks if low <= mark <= high]


def _short(value: float) -> str:
    number, unit = units.split(value)
    return f"{number.rstrip('0').rstrip('.') if '.' in number else number} {unit}"


def _label_ends(figure: Figure, axes: Axes, ends: Mapping[str, tuple[float, str]]) -> None:
    """Write each curve's name beside its end, one above the other."""
    low, high = np.log(axes.get_ylim())
    room = axes.get_position().height * figure.get_figheight() * _POINTS
    order = sorted((name for name in ends if ends[name][0] == ends[name][0]), key=lambda name: ends[name][0])
    places = [(float(np.log(max(ends[name][0], 1))) - low) / (high - low) * room for name in order]
    for number in range(1, len(places)):
        places[number] = max(places[number], places[number - 1] + 14)
    over = max(0.0, places[-1] - room) if places else 0.0
    for number in reversed(range(len(places))):
        places[number] = min(places[number], room - 14 * (len(places) - 1 - number)) if over else places[number]
    for name, place in zip(order, places, strict=True):
        axes.annotate(name, (1, place / room), xytext=(7, 0), xycoords="axes fraction", textcoords="offset points",
                      color=ends[name][1], va="center", fontweight="bold", annotation_clip=False)  # fmt: skip


def _last(values: Any) -> float:
    there = values[~np.isnan(values)]
    return float(there[-1]) if len(there) else nan


def _or_nan(value: float | None) -> float:
    return nan if value is None else float(value)


def _lonely(values: Any) -> str | None:
    """A marker for isolated points, which a line would not show."""
    there = np.r_[False, ~np.isnan(values), False]
    return "o" if (there[1:-1] & ~there[:-2] & ~there[2:]).any() else None


def _least(line: Timeline) -> float:
    return min((each.total.min or 0.0 for each in line.columns if each and each.total.count), default=1.0)


def _cells(line: Timeline) -> tuple[Any, int, float | None] | None:
    """Counts by row and column, the number of the lowest row (row 0 begins at 1 µs), and where zero is on the axis.

    Records that took no time are in the lowest row. Zero has no place on a logarithmic axis: it gets one below all
    others, and nothing is drawn between.
    """
    columns: list[dict[int, int]] = []
    zeros: list[int] = []
    for each in line.columns:
        rows: dict[int, int] = {}
        source: dict[str, Any] = each.total.to_dict() if each else {"buckets": [], "zero_count": 0}
        for index, count in source["buckets"]:
            row = max(index, 0) // _BUCKETS
            rows[row] = rows.get(row, 0) + count
        columns.append(rows)
        zeros.append(source["zero_count"])
    used = [row for rows in columns for row in rows]
    if not used and not any(zeros):
        return None
    used = used or [0]
    # Some room, so that a single row does not fill the plot.
    lowest = max(0, min(used) - 2)
    highest = max(max(used) + 2, lowest + 4 * _ROWS)
    counts = np.zeros((highest - lowest + 1, len(columns)), np.int64)
    for number, rows in enumerate(columns):
        for row, count in rows.items():
            counts[row - lowest, number] = count
    counts[0] += np.array(zeros, np.int64)
    return counts, lowest, (lowest + 0.5) / _ROWS if any(zeros) else None


def _coloured(counts: Any, colours: Colormap) -> Any:
    scaled = np.log(np.maximum(counts, 1)) / np.log(counts.max()) if counts.max() > 1 else np.full(counts.shape, 0.6)
    made = colours(scaled)
    made[counts == 0, 3] = 0
    return made


def _colour_scale(figure: Figure, axes: Axes, most: int, width: int) -> None:
    height = figure.get_figheight() * _POINTS
    left = axes.get_position().x0 * width
    if most > 1:
        scale = figure.add_axes((left / width, 1 - 22 / height, 110 / width, 9 / height))
        for name, colours in _HEAT.items():
            scale.imshow(colours(np.linspace(0, 1, 64))[None, :, :], aspect="auto", interpolation="none").set_gid(
                f"{name}-scale"
            )
        scale.set_axis_off()
        left += 118
    text = f"1 to {most:,} records (logarithmic)" if most > 1 else "each cell: 1 record"
    if width == NARROW:
        text = text.replace(" (logarithmic)", "")
    figure.text(left / width, 1 - 18 / height, text, color=LIGHT["muted"], va="center", fontsize=10.5)


def _error_names(line: Timeline) -> dict[str, str]:
    """The outcomes but ``ok`` that occur and their colours, the most frequent first."""
    sums: dict[str, int] = {}
    for each in line.columns:
        for outcome, count in each.outcomes.items() if each else ():
            if outcome != "ok" and count:
                sums[outcome] = sums.get(outcome, 0) + count
    order = sorted(sums, key=lambda name: -sums[name])
    return {name: LIGHT[name if name in OUTCOMES else "other"] for name in order}


def _plain(text: str) -> str:
    """``text`` in the characters that the font has."""
    there = get_font(findfont(FontProperties(family="DejaVu Sans"))).get_charmap()
    return "".join(c if ord(c) in there else "\N{WHITE SQUARE}" for c in units.name(text, 60))
