"""The texts of plots, and their legibility."""

from __future__ import annotations

import re

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from rpcmq.latency.analysis.series import Series
from rpcmq.latency.report import draw
from rpcmq.latency.report.timeline import Timeline, timeline

BEGIN = 1_700_000_040


def line(values: list[float], count: int = 1, windows: int = 30) -> Timeline:
    made = []
    for number in range(windows):
        each = Series({}, BEGIN + 60 * number, {"ok": len(values) * count})
        for value in values:
            each.total.record(value, count)
        made.append(each)
    return timeline(made, 60, 120)


def texts(of: object) -> list[str]:
    """The marks at the axis of ``of``."""
    return [label.get_text() for label in of.get_yticklabels() if label.get_text()]  # type: ignore[attr-defined]


def drawn(figure: object) -> FigureCanvasAgg:
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return canvas


@pytest.mark.parametrize("count", [1, 90_000, 600_000, 60_000_000])
def test_numbers_at_an_axis_have_no_exponents(count: int) -> None:
    figure = draw.error_outcomes(line([1000.0], count), draw.WIDE)
    assert figure is not None
    drawn(figure)
    found = [text for axes in figure.axes for text in texts(axes)]
    assert found and all(re.fullmatch(r"(\d{1,3}(,\d{3})*|0\.\d+|[1-9]\.\d+)( %)?", text) for text in found), found


@pytest.mark.parametrize("width", [draw.WIDE, draw.NARROW])
def test_the_texts_above_a_heat_map_do_not_overlap(width: int) -> None:
    figure = draw.heat_map(line([1000.0, 2000.0, 90_000.0] * 200, 1_000_000), width)
    assert figure is not None
    renderer = drawn(figure).get_renderer()
    [legend] = figure.legends
    boxes = [each.get_window_extent(renderer) for each in (legend, *figure.texts, figure.axes[0], figure.axes[1])]
    overlapping = [(a, b) for n, a in enumerate(boxes) for b in boxes[:n] if a.overlaps(b)]
    assert overlapping == []
    assert all(box.x0 >= 0 and box.x1 <= width for box in boxes)


def test_records_that_took_no_time_do_not_stretch_the_heat_map() -> None:
    values = [8000.0, 30_000.0] * 50
    plain, zeros = (draw.heat_map(line(each), draw.WIDE) for each in (values, [0.0, *values]))
    assert plain is not None and zeros is not None
    for figure in (plain, zeros):
        drawn(figure)
    heights = [figure.axes[0].get_ylim() for figure in (plain, zeros)]
    assert heights[0] == heights[1]
    assert texts(zeros.axes[0])[0] == "0" and "0" not in texts(plain.axes[0])
    only = draw.heat_map(line([0.0]), draw.WIDE)
    assert only is not None
    drawn(only)
    assert "0" in texts(only.axes[0])
