"""The page and its pictures, as files."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from time import time
from types import SimpleNamespace
from typing import Any

from jinja2 import Environment
from markupsafe import Markup
from matplotlib import rc_context
from matplotlib.figure import Figure

from rpcmq import __version__
from rpcmq.latency.analysis import wording
from rpcmq.latency.analysis.hedging import DURATIONS, HedgedCalls
from rpcmq.latency.analysis.intervals import smallest_count
from rpcmq.latency.analysis.names import method_name
from rpcmq.latency.analysis.quantities import percentile_name
from rpcmq.latency.analysis.series import METHOD, Series
from rpcmq.latency.report import METHODS_IN_DETAIL, draw, numbers, tables, traces, units
from rpcmq.latency.report.colours import DARK, LIGHT, OUTCOMES, QUANTILES
from rpcmq.latency.report.model import Report
from rpcmq.latency.report.numbers import STAGES
from rpcmq.latency.report.timeline import Timeline, timeline
from rpcmq.latency.report.vector import inline, png

__all__ = ["write"]

#: Columns of the plots over time; more windows are put together.
_COLUMNS = 288
_SECTIONS = (
    ("account", "Account"),
    ("findings", "Look at first"),
    ("figures", "Key figures"),
    ("curves", "Percentiles"),
    ("heat", "Heat map"),
    ("errors", "Errors"),
    ("stages", "Stages"),
    ("methods", "Methods"),
    ("servers", "Servers"),
    ("callers", "Callers"),
    ("routers", "Routers"),
    ("hedged", "Several servers"),
    ("slowest", "Slowest"),
    ("unknown", "Unknown"),
)
_QUANTILES_OF_HEDGED = (0.5, 0.99)
_LIMITS = SimpleNamespace(
    set_aside=50, findings=20, unknown=50, lives=10, servers=100, callers=50, routers=50, hedged=50, stages=15
)


@dataclass(frozen=True, slots=True)
class _Drawing:
    """A plot for both widths of the page."""

    wide: Markup
    narrow: Markup


@dataclass(frozen=True, slots=True)
class _Plot:
    """A plot over time.

    Attributes:
        name: of its picture's file, and what ids in the page begin with.
        text: what it shows.
    """

    name: str
    draw: Callable[[Timeline, int], Figure | None]
    text: str


_PLOTS = {
    "percentiles": _Plot("percentiles", draw.percentiles, "Curves of p50 to p99.9 and the maximum over time."),
    "heat": _Plot("heat-map", draw.heat_map, "Heat map: how many records took how long, over time."),
    "outcomes": _Plot("outcomes", draw.error_outcomes, "Records a second, and the share of each error, over time."),
}


def write(report: Report, out: Path) -> list[Path]:
    """See ``rpcmq.latency.report.write_report``."""
    line = timeline(report.windows, report.window_seconds, _COLUMNS)
    with rc_context(draw.RC):
        drawings, pictures = _drawn(line)
        bars = draw.stage_bars(report.whole, report.methods, draw.WIDE)
        if bars is not None:
            pictures["stages"] = png(bars)
        page = _page(report, line, drawings)
    out.mkdir(parents=True, exist_ok=True)
    written = [out / "report.html"]
    written[0].write_text(page, "utf-8")
    for name, content in pictures.items():
        written.append(out / f"{name}.png")
        written[-1].write_bytes(content)
    return written


def _drawn(line: Timeline) -> tuple[dict[str, _Drawing], dict[str, bytes]]:
    drawings: dict[str, _Drawing] = {}
    pictures: dict[str, bytes] = {}
    for key, plot in _PLOTS.items():
        wide, narrow = plot.draw(line, draw.WIDE), plot.draw(line, draw.NARROW)
        if wide is None or narrow is None:
            continue
        drawings[key] = _Drawing(
            Markup(inline(wide, f"{plot.name}-w", plot.text)), Markup(inline(narrow, f"{plot.name}-n", plot.text))
        )
        pictures[plot.name] = png(wide)
    return drawings, pictures


def _page(report: Report, line: Timeline, drawings: dict[str, _Drawing]) -> str:
    script = _file("page.js")
    environment = Environment(autoescape=True, finalize=_seen, trim_blocks=True, lstrip_blocks=True)
    environment.globals |= _WORDS
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return environment.from_string(_file("page.html")).render(
        report=report,
        account=report.account,
        whole=report.whole,
        findings=report.findings,
        line=line,
        plots=drawings,
        made=time(),
        version=__version__,
        script=Markup(script),
        script_hash=digest,
        style=Markup(_style()),
        **_content(report, line),
    )


def _file(name: str) -> str:
    return files("rpcmq.latency.report").joinpath(name).read_text("utf-8")


def _seen(value: object) -> object:
    """Return ``value`` for the template, with invisible characters written out in text not its own."""
    return value if isinstance(value, Markup) or not isinstance(value, str) else units.visible(value)


def _content(report: Report, line: Timeline) -> dict[str, Any]:
    account, whole = report.account, report.whole
    aside = account.rows_aside
    methods = report.methods[:METHODS_IN_DETAIL]
    # A server may have had calls that other servers have answered, and none of its own.
    sections = [each for each in _SECTIONS if whole.records or each[0] in ("account", "findings", "hedged")]
    top = [whole, *methods[: _LIMITS.stages]]
    return {
        "limits": _LIMITS,
        "sections": [each for each in sections if each[0] != "hedged" or report.hedged or report.hedged_left_out],
        "seconds": numbers.seconds_of(report),
        "aside_rows": aside,
        "missing_share": wording.share(account.shortfall),
        "difference": account.shipped - account.counted - aside,
        "usual": {
            "errors": whole.errors / max(whole.records, 1),
            "timeouts": whole.outcomes.get("timeout", 0) / max(whole.records, 1),
        },
        "timeouts": whole.outcomes.get("timeout", 0),
        "peak": max((each.records for each in report.windows), default=0) if len(report.windows) > 2 else 0,
        "total": whole.total.sum,
        "method_time": sum(each.total.sum for each in methods),
        "whole_quantiles": [(q, numbers.quantile(whole.total, q)) for q in numbers.QUANTILES],
        "windows": [
            (start, each, [numbers.quantile(each.total, q) for q in numbers.QUANTILES])
            for start, each in zip(line.starts, line.columns, strict=True)
            if each
        ],
        "outcomes": tables.outcomes(report),
        "outcome_colours": OUTCOMES,
        "stage_rows": tables.rows(top, "method", ("exchange", "topic")),
        "method_rows": tables.rows(methods, "method", ("exchange", "topic"), tables.sparks(report, methods)),
        "server_rows": tables.rows(_most(report.servers, _LIMITS.servers), "server", METHOD),
        "caller_rows": tables.rows(_most(report.callers, _LIMITS.callers), "client"),
        "router_rows": tables.rows(_most(report.routers, _LIMITS.routers), "router"),
        "hedged_rows": [_hedged_row(each) for each in report.hedged[: _LIMITS.hedged]],
        "traces": traces.traces(report.slowest),
        "shown_unknown": min(len(report.unknown), _LIMITS.unknown),
    }


def _hedged_row(each: HedgedCalls) -> tuple[str, HedgedCalls, list[list[numbers.Quantile | None]]]:
    """Name, figures, and the percentiles of each of the durations."""
    found = [[numbers.quantile(getattr(each, name), q) for q in _QUANTILES_OF_HEDGED] for name in DURATIONS]
    return units.name(method_name(each.key)), each, found


def _most(series: Sequence[Series], limit: int) -> list[Series]:
    """The series with the most total time."""
    return sorted(series, key=lambda each: -each.total.sum)[:limit]


def _style() -> str:
    """The style sheet with the colours of both schemes."""

    def variables(scheme: dict[str, str]) -> str:
        return "".join(f"--{name}:{colour};" for name, colour in scheme.items())

    marks = [f"i.{name}{{background:var(--{name})}}" for name in (*STAGES, *QUANTILES.values())]
    marks += [f".o-{name}{{background:var(--{name})}}" for name in (*OUTCOMES, "other", "volume")]
    dark = f":root{{{variables(DARK)}}}.plot .dark{{display:inline}}.plot .light{{display:none}}"
    return "".join(
        (
            f":root{{color-scheme:light dark;{variables(LIGHT)}}}",
            _file("page.css"),
            *marks,
            f"@media screen and (prefers-color-scheme:dark){{{dark}}}",
        )
    )


#: Functions and constants available to the template.
_WORDS: dict[str, Any] = {name: getattr(units, name) for name in units.__all__} | {
    "colours": QUANTILES,
    "mean": numbers.mean,
    "needed": smallest_count,
    "percentile_name": percentile_name,
    "quantiles": numbers.QUANTILES,
    "stage_texts": STAGES,
    "total_time": units.total,
    "unsealed": wording.unsealed,
}
