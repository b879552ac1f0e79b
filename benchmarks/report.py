"""Results of a benchmark: rows, shown as a table, stored as JSON, drawn as a plot."""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table

__all__ = ["Benchmark", "Options", "Row", "Target", "build", "draw", "in_turns", "keep", "show"]

Notice = Callable[[str], None]


@dataclass(frozen=True)
class Options:
    """The thoroughness of a measurement."""

    seconds: float = 2.0
    rounds: int = 5
    #: The cases, too, that take many minutes.
    is_long: bool = False
    #: Told what is left out, and why.
    notice: Notice = print
    #: Told what has been measured, where a benchmark takes minutes.
    progress: Notice = print


@dataclass(frozen=True)
class Row:
    """One system in one case: what each round measured."""

    system: str
    case: int | str
    samples: list[dict[str, float]]

    def value(self, metric: str) -> float:
        """The median over the rounds."""
        return median(sample[metric] for sample in self.samples)

    def spread(self, metric: str) -> tuple[float, float]:
        """The lowest and the highest of the rounds."""
        values = [sample[metric] for sample in self.samples]
        return min(values), max(values)

    @property
    def metrics(self) -> list[str]:
        """The names of the metrics that were measured in every round."""
        return [m for m in self.samples[0] if all(m in sample for sample in self.samples)]


def in_turns(
    systems: Iterable[str], cases: Iterable[int], rounds: int, measure: Callable[[str, int], dict[str, float]]
) -> list[Row]:
    """A row for each case and system. In a case the systems take turns: each is measured once in a round.

    Args:
        measure: makes a sample of a system, by its name, in a case.
    """
    names, rows = list(systems), list[Row]()
    for case in cases:
        group = [Row(name, case, []) for name in names]
        for _ in range(rounds):
            for row in group:
                row.samples.append(measure(row.system, case))
        rows += group
    return rows


@dataclass(frozen=True)
class Target:
    """In ``cases``, ``metric`` of ours is to be at least (or at most) so many times that of ``system``.

    Where ``system`` is empty it is to be at least (or at most) so many; ``ours`` is another one of our systems.
    """

    system: str
    metric: str
    cases: tuple[int | str, ...]
    at_least: float | None = None
    at_most: float | None = None
    ours: str = ""


@dataclass(frozen=True)
class Benchmark:
    """A question, and the function that answers it.

    Attributes:
        name: for the command line and file names.
        title: what is compared, as a heading.
        case: what varies from case to case (the x axis).
        metric: what the plot shows.
        ours: the system that the ratios are of.
        run: measures; rows of the same case are from interleaved rounds.
        targets: what we want to reach.
    """

    name: str
    title: str
    case: str
    metric: str
    ours: str
    run: Callable[[Options], list[Row]]
    targets: tuple[Target, ...] = field(default=())


_UNITS = {
    "calls_per_second": ("calls/s", 0),
    "p50_us": ("p50 µs", 0),
    "p99_us": ("p99 µs", 0),
    "max_us": ("worst µs", 0),
    "cpu_us": ("broker CPU µs/call", 1),
    "cpu_a_us": ("a", 1),
    "cpu_b_us": ("b", 1),
    "cpu_c_us": ("c", 1),
    "events_per_second": ("events/s", 0),
    "copies_per_link": ("copies/link", 2),
    "first_good_p50_ms": ("first good p50 ms", 1),
    "first_good_worst_ms": ("worst", 1),
    "longest_call_ms": ("longest call ms", 1),
    "engine_us": ("engine µs/call", 2),
    "items_per_second": ("items/s", 0),
    "commits_per_second": ("commits/s", 0),
    "puts_per_second": ("puts/s", 0),
    "cycles_per_second": ("cycles/s", 0),
    "broker_cpu_us": ("CPU µs/item: broker", 0),
    "router_cpu_us": ("router", 0),
    "queue_cpu_us": ("queue server", 0),
    "store_cpu_us": ("store", 0),
    "producer_cpu_us": ("producer", 0),
    "worker_cpu_us": ("worker", 0),
    "syncs_per_second": ("syncs/s", 0),
    "items_per_sync": ("items/sync", 1),
    "written_bytes": ("bytes/item", 0),
    "item_cpu_us": ("CPU µs/item", 2),
    "opening_ms": ("opening ms", 0),
    "peak_mib": ("peak MiB", 0),
    "start_ms": ("server: start ms", 0),
    "router_mib": ("router MiB", 0),
    "queue_mib": ("queue server MiB", 0),
    "store_mib": ("store MiB", 0),
    "disk_mib": ("disk MiB", 0),
    "casts_per_second": ("casts/s", 0),
    "handled_per_second": ("handled/s", 0),
    "all_cpu_us": ("CPU µs each: all", 0),
    "client_us": ("client", 0),
    "server_us": ("server", 0),
    "broker_us": ("broker", 0),
    "connections": ("connections", 0),
    "descriptors": ("descriptors: workers", 0),
    "broker_descriptors": ("broker", 0),
    "threads": ("threads: workers", 0),
    "workers_mib": ("MiB: workers", 0),
    "broker_mib": ("broker", 0),
    "away_s": ("away s", 1),
    "first_good_ms": ("first good ms", 0),
    "requests_per_second": ("requests/s", 0),
    "request_cpu_us": ("CPU µs/request", 1),
    "p99_ms": ("p99 ms", 1),
    "longest_cast_ms": ("longest cast ms", 0),
}


def show(console: Console, benchmark: Benchmark, rows: list[Row]) -> None:
    """Print the table and what became of the targets."""
    metrics = list(dict.fromkeys(m for row in rows for m in row.metrics))
    table = Table(title=benchmark.title, title_justify="left")
    table.add_column(benchmark.case, justify="right")
    table.add_column("system")
    for metric in metrics:
        table.add_column(_UNITS.get(metric, (metric, 1))[0], justify="right")
    table.add_column(f"{_UNITS.get(benchmark.metric, (benchmark.metric,))[0]}, lowest to highest", justify="right")
    table.add_column(f"{benchmark.ours} does", justify="right")
    previous: int | str | None = None
    for row in rows:
        if previous is not None and row.case != previous:
            table.add_section()
        previous = row.case
        ours = _find(rows, benchmark.ours, row.case)
        ratio = ours.value(benchmark.metric) / row.value(benchmark.metric) if ours else 0.0
        cells = [_number(metric, row.value(metric)) if metric in row.metrics else "" for metric in metrics]
        low, high = row.spread(benchmark.metric)
        spread = f"{_number(benchmark.metric, low)} to {_number(benchmark.metric, high)}"
        table.add_row(str(row.case), row.system, *cells, spread, "" if row is ours or not ours else f"{ratio:.2f} x")
    console.print(table)
    for line in _judged(benchmark, rows):
        console.print(line)


def _judged(benchmark: Benchmark, rows: list[Row]) -> Iterable[str]:
    for target in benchmark.targets:
        for case in target.cases:
            name = target.ours or benchmark.ours
            ours, theirs = _find(rows, name, case), _find(rows, target.system, case)
            if ours is None or (theirs is None and target.system):
                continue
            value = ours.value(target.metric) / (theirs.value(target.metric) if theirs else 1)
            limit, bound = ("at least", target.at_least) if target.at_least is not None else ("at most", target.at_most)
            met = target.at_least is None or value >= target.at_least
            met = met and (target.at_most is None or value <= target.at_most)
            what = _UNITS.get(target.metric, (target.metric,))[0]
            found = f"{value:.2f} x that of {target.system}" if theirs else _number(target.metric, value)
            yield (
                f"{benchmark.case} = {case}: {what} of {name} is {found}, "
                f"wanted {limit} {bound:,g}: {'[green]reached[/]' if met else '[red]missed[/]'}"
            )


def _find(rows: list[Row], system: str, case: int | str) -> Row | None:
    return next((row for row in rows if row.system == system and row.case == case), None)


def _number(metric: str, value: float) -> str:
    return f"{value:,.{_UNITS.get(metric, (metric, 1))[1]}f}"


def keep(folder: Path, benchmark: Benchmark, rows: list[Row], options: Options, load: float) -> Path:
    """Write everything that was measured as JSON; returns the file. ``load``: of the machine before."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{benchmark.name}.json"
    content = {
        "benchmark": benchmark.name,
        "title": benchmark.title,
        "case": benchmark.case,
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "machine": _machine() | {"load_before": load},
        "seconds": options.seconds,
        "rounds": options.rounds,
        "rows": [asdict(row) | {"medians": {m: row.value(m) for m in row.metrics}} for row in rows],
    }
    path.write_text(json.dumps(content, indent=1) + "\n")
    return path


def _machine() -> dict[str, Any]:
    return {
        "cores": len(os.sched_getaffinity(0)),
        "processor": _processor(),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "build": build(),
    }


def build() -> str:
    """The build of rpcmq that is measured: ``pure`` or ``compiled``."""
    from rpcmq.core.common import session

    return "pure" if (session.__file__ or "").endswith(".py") else "compiled"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def draw(folder: Path, benchmark: Benchmark, rows: list[Row]) -> Path | None:
    """Draw ``metric`` over the cases as PNG; returns the file, or None where matplotlib is missing."""
    try:
        import matplotlib
    except ImportError:
        return None
    matplotlib.use("Agg")
    from matplotlib import pyplot

    cases = list(dict.fromkeys(row.case for row in rows))
    systems = list(dict.fromkeys(row.system for row in rows))
    figure, axes = pyplot.subplots(figsize=(8, 4.5), layout="constrained")
    width = 0.8 / len(systems)
    for number, system in enumerate(systems):
        found = [(place, row) for place, case in enumerate(cases) if (row := _find(rows, system, case))]
        heights = [row.value(benchmark.metric) for _, row in found]
        spreads = [row.spread(benchmark.metric) for _, row in found]
        errors = [[h - low for h, (low, _) in zip(heights, spreads, strict=True)],
                  [high - h for h, (_, high) in zip(heights, spreads, strict=True)]]  # fmt: skip
        places = [place + (number - (len(systems) - 1) / 2) * width for place, _ in found]
        axes.bar(places, heights, width, yerr=errors, capsize=2, label=system)
    axes.set_xticks(range(len(cases)), [str(case) for case in cases])
    axes.set_xlabel(benchmark.case)
    axes.set_ylabel(_UNITS.get(benchmark.metric, (benchmark.metric,))[0])
    axes.set_title(benchmark.title)
    axes.legend()
    path = folder / f"{benchmark.name}.png"
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
    return path
