"""``rpcmq latency why``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.table import Table

from rpcmq.cli.latency_engine import Choice, Waiting, engine, engine_options
from rpcmq.cli.latency_input import (
    account_line,
    installed,
    selected,
    selects,
)
from rpcmq.cli.options import State, json_option
from rpcmq.cli.output import Output, add_row, print_fitting, print_json, table
from rpcmq.cli.text import microseconds, plain
from rpcmq.latency.analysis.names import method_name
from rpcmq.latency.schema import UNKNOWN
from rpcmq.latency.schema import as_json as row_as_json
from rpcmq.latency.selection import Selection

if TYPE_CHECKING:
    from rpcmq.latency.analysis.account import Account
    from rpcmq.latency.analysis.finding import Finding
    from rpcmq.latency.analysis.outliers import Outlier
    from rpcmq.latency.analysis.rankings import Ranked
    from rpcmq.latency.analysis.series import Key, Series
    from rpcmq.latency.analysis.slo import Objective, Standing

__all__ = ["Answer", "why_command"]

_FIRST = 3
#: The length of one "minute" of an objective (seconds).
_MINUTE = 60

_BY_TAIL = "Methods by their tail (what the slowest 5 % take longer than the median)"
#: Columns omitted on a narrow terminal, in this order.
_SPARE = (
    "queue p99", "server p99", "of all", "max", "p95", "p95 elsewhere", "by chance", "expected", "seq", "trace",
    "router", "caller", "p50", "errors",
)  # fmt: skip


@dataclass(slots=True)
class Answer:
    """The answer to ``rpcmq latency why``.

    Attributes:
        account: of the log.
        records: how many there are.
        findings: what to look at first, all of them.
        by_time, by_tail, by_queue: methods.
        outliers: servers.
        standings: of objectives.
        failures: method, outcome, class of what it raised (None: not known) and records, the most frequent first.
        unknown: rows of records of which nobody knows the end, some of them.
        unknown_methods: those that have such records.
    """

    account: Account
    records: int
    findings: list[Finding]
    by_time: list[Ranked]
    by_tail: list[Ranked]
    by_queue: list[Ranked]
    outliers: list[Outlier]
    standings: list[Standing] = field(default_factory=list)
    failures: list[tuple[Key, str, str | None, int]] = field(default_factory=list)
    unknown: list[dict[str, Any]] = field(default_factory=list)
    unknown_methods: list[Series] = field(default_factory=list)


@click.command("why")
@selects
@click.option(
    "--slo",
    "objectives",
    multiple=True,
    metavar="OBJECTIVE",
    help="Check it, and how fast its budget burns: 'compute.*:p99<200ms:99.9%'.",
)
@click.option("--top", type=click.IntRange(1), default=10, show_default=True, help="Rows of each table.")
@engine_options
@json_option
@click.pass_obj
def why_command(
    state: State,
    log: Path | None,
    cells: Path | None,
    since: str | None,
    until: str | None,
    filters: Sequence[str],
    objectives: Sequence[str],
    top: int,
    choice: Choice,
) -> None:
    """Say why it is slow: what to look at first, and the tables behind it.

    Methods by the time they take, by their tail, by what waits in queues; servers that are slower than others with the
    same methods; objectives; calls of which nobody knows the end. docs/latency-analysis.md says how each is computed.
    """
    with installed():
        from rpcmq.latency.analysis.slo import parse_objective

        parsed = [parse_objective(text) for text in objectives]
    answer = _answer(selected(log, cells, since, until, filters), parsed, top, choice)
    if state.json:
        print_json(_as_json(answer, top))
    else:
        _show(answer, top)


def _answer(selection: Selection, objectives: Sequence[Objective], top: int, choice: Choice) -> Answer:
    with Waiting() as waiting, engine("why", choice, waiting, selection) as chosen:
        from rpcmq.latency.analysis.errors import attach, failures
        from rpcmq.latency.analysis.names import matches
        from rpcmq.latency.analysis.outliers import outliers
        from rpcmq.latency.analysis.rankings import by_queueing, by_tail, by_total_time
        from rpcmq.latency.analysis.series import METHOD, Series, merged
        from rpcmq.latency.analysis.slo import evaluate
        from rpcmq.latency.analysis.slow import findings
        from rpcmq.latency.jobs.engine import Level, of_methods
        from rpcmq.latency.jobs.inputs import opened

        with opened(chosen, selection) as found:
            waiting.say("adding up")
            promised = [key for key in found.methods if any(matches(each.pattern, key) for each in objectives)]
            minute = found.window_seconds * max(1, _MINUTE // found.window_seconds)
            asked = {"promised": Level((*METHOD, "outcome"), minute, of_methods(promised))}
            answered = found.cells.series(found.for_findings() | asked)
            raised = found.raised()
            methods, servers = answered["methods"], answered["servers"]
            lost = [each for each in methods if UNKNOWN in each.outcomes]
            unknown = found.unknown(top) if lost else []
    whole = next(iter(merged(methods, ())), Series({}))
    attach(raised, methods, whole)
    account = found.account(methods)
    return Answer(
        account,
        whole.records,
        findings(whole, answered["windows"], methods, answered["method windows"], servers, account),
        by_total_time(methods),
        by_tail(methods),
        by_queueing(methods),
        outliers(servers),
        evaluate(objectives, answered["promised"], minute),
        sorted(((each.key, *failure) for each in methods for failure in failures(each)), key=lambda row: -row[3]),
        unknown,
        sorted(lost, key=lambda each: -each.outcomes[UNKNOWN]),
    )


def _show(answer: Answer, top: int) -> None:
    click.echo(account_line(answer.account))
    click.echo("\nLook at first")
    for number, finding in enumerate(answer.findings[:_FIRST], 1):
        click.echo(plain(f"{number}. {finding.what}"))
        click.echo(plain(f"   {finding.why}"))
    if not answer.records:
        return
    output = Output()
    none_of: list[str] = []
    tables = [
        _ranking("Methods by total time", answer.by_time[:top]),
    ]
    for title, rows, nothing in (
        (_BY_TAIL, answer.by_tail, "No method has a tail: none takes longer than its median."),
        ("Methods by queueing", answer.by_queue, "Nothing waited in a queue."),
    ):
        # What there is nothing of has no order.
        if some := [each for each in rows if each.us][:top]:
            tables.append(_ranking(title, some))
        else:
            none_of.append(nothing)
    if answer.outliers:
        tables.append(_outliers(answer.outliers[:top]))
    if answer.standings:
        tables.append(_standings(answer.standings))
    if answer.failures:
        tables.append(_failures(answer, top))
    if answer.unknown_methods:
        tables.append(_unknown(answer))
    for each in tables:
        output.print()
        print_fitting(output, each, *_SPARE)
    if not answer.outliers:
        none_of.append("No server is slower than others with the same methods.")
    if none_of:
        click.echo("\n" + "\n".join(none_of))


def _ranking(title: str, rows: Sequence[Ranked]) -> Table:
    columns = ("method", ">time", ">of all", ">records", ">errors", ">p50", ">p95", ">p99", ">max", ">queue p99")
    made = table(title, *columns, ">server p99")
    for row in rows:
        series = row.series
        quantiles = [microseconds(series.total.quantile(q)) for q in (0.5, 0.95, 0.99)]
        stages = [microseconds(each.quantile(0.99)) for each in (series.queue, series.service)]
        cells = (method_name(series.key), microseconds(row.us), f"{row.share:.1%}", series.records, series.errors)
        add_row(made, (*cells, *quantiles, microseconds(series.total.max), *stages), "yellow" if series.errors else "")
    return made


def _outliers(rows: Sequence[Outlier]) -> Table:
    columns = ("server", ">records", ">slow", ">expected", ">times", ">by chance", "worst method", ">p95 there")
    made = table("Servers slower than others with the same methods", *columns, ">p95 elsewhere")
    for row in rows:
        counts = (row.records, row.above, f"{row.expected:.1f}", f"{row.excess:.2g}", f"{row.p_value:.1g}")
        worst = (method_name(row.worst.key), microseconds(row.worst.p95), microseconds(row.worst.others_p95))
        add_row(made, (row.server, *counts, *worst), "yellow")
    return made


def _standings(rows: Sequence[Standing]) -> Table:
    columns = ("objective", "method", ">good", ">of", ">share", ">burn rate")
    made = table("Objectives", *columns, *(f">{burn.pair.text}" for burn in rows[0].burns), "mark")
    for row in rows:
        burning = [burn for burn in row.burns if burn.is_burning]
        alerts = sum(len(burn.alerts) for burn in row.burns)
        marks = [f"BURNING ({burn.pair.text})" for burn in burning]
        marks += [] if row.is_met else ["NOT MET"]
        marks += [f"{alerts} alerts before"] if alerts and not burning else []
        rates = [" / ".join("-" if r is None else f"{r:.1f}" for r in (burn.long, burn.short)) for burn in row.burns]
        counts = (row.good, row.all, f"{row.share:.3%}", f"{row.burn:,.2f}")
        cells = (row.objective.text, method_name(row.key), *counts, *rates, ", ".join(marks))
        add_row(made, cells, "red" if burning or not row.is_met else "")
    return made


def _failures(answer: Answer, top: int) -> Table:
    made = table("What did not end well", "method", "outcome", "error", ">records", ">of all errors")
    every = sum(number for *_, number in answer.failures)
    for key, outcome, error, number in answer.failures[:top]:
        add_row(made, (method_name(key), outcome, error, number, f"{number / every:.1%}"), "yellow")
    return made


def _unknown(answer: Answer) -> Table:
    if not answer.unknown:
        made = table("Calls of which nobody knows the end", "method", ">records")
        for series in answer.unknown_methods:
            add_row(made, (method_name(series.key), series.outcomes[UNKNOWN]), "yellow")
        return made
    columns = ("received", "router", "method", "caller", "server", ">seq", "trace")
    made = table("Calls of which nobody knows the end, the newest", *columns)
    for row in answer.unknown:
        shown = row_as_json(row)
        cells = (shown["recv_at"], row["router"], method_name(row), row["client"], row["server"], row["seq"])
        add_row(made, (*cells, row["trace_id"]), "yellow")
    return made


def _as_json(answer: Answer, top: int) -> dict[str, Any]:
    return {
        "account": answer.account.as_json(),
        "records": answer.records,
        "findings": [
            {"what": each.what, "why": each.why, "weight": each.weight, "key": dict(each.key)}
            for each in answer.findings
        ],
        "by_total_time": [_ranked_as_json(each) for each in answer.by_time[:top]],
        "by_tail": [_ranked_as_json(each) for each in answer.by_tail[:top]],
        "by_queueing": [_ranked_as_json(each) for each in answer.by_queue[:top]],
        "outliers": [
            {
                "server": each.server,
                "records": each.records,
                "above": each.above,
                "expected": each.expected,
                "p_value": each.p_value,
                "worst": dict(each.worst.key) | {"p95_us": each.worst.p95, "others_p95_us": each.worst.others_p95},
            }
            for each in answer.outliers
        ],
        "objectives": [_standing_as_json(each) for each in answer.standings],
        "errors": [
            dict(key) | {"outcome": outcome, "error_class": error, "records": number}
            for key, outcome, error, number in answer.failures
        ],
        "unknown": {
            "methods": [dict(e.key) | {"records": e.outcomes[UNKNOWN]} for e in answer.unknown_methods],
            "newest": [row_as_json(row) for row in answer.unknown],
        },
    }


def _ranked_as_json(ranked: Ranked) -> dict[str, Any]:
    series = ranked.series
    return dict(series.key) | {
        "us": ranked.us,
        "share": ranked.share,
        "records": series.records,
        "outcomes": series.outcomes,
        "total_us": {f"p{q * 100:g}": series.total.quantile(q) for q in (0.5, 0.95, 0.99)},
        "max_us": series.total.max,
        "queue_p99_us": series.queue.quantile(0.99),
        "service_p99_us": series.service.quantile(0.99),
    }


def _standing_as_json(standing: Standing) -> dict[str, Any]:
    return dict(standing.key) | {
        "objective": standing.objective.text,
        "threshold_us": standing.objective.threshold_us,
        "surely_below_us": standing.objective.edge_us,
        "good": standing.good,
        "all": standing.all,
        "share": standing.share,
        "is_met": standing.is_met,
        "burn": standing.burn,
        "budget_left": standing.budget_left,
        "burns": [
            {
                "long_seconds": burn.pair.long,
                "short_seconds": burn.pair.short,
                "limit": burn.pair.limit,
                "long": burn.long,
                "short": burn.short,
                "is_burning": burn.is_burning,
                "alerts": [{"since": a.since, "until": a.until, "peak": a.peak} for a in burn.alerts],
            }
            for burn in standing.burns
        ],
    }
