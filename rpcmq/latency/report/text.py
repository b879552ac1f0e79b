"""The report in short, for a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import wrap

from rpcmq.latency.analysis.account import Account, Verdict
from rpcmq.latency.analysis.errors import failures
from rpcmq.latency.analysis.hedging import total_of
from rpcmq.latency.analysis.names import method_name
from rpcmq.latency.analysis.wording import share, unsealed
from rpcmq.latency.report import units
from rpcmq.latency.report.model import Report
from rpcmq.latency.report.numbers import quantile, seconds_of

__all__ = ["COLUMNS", "text_of"]

#: The widest line.
COLUMNS = 100
_METHODS = 10
_FINDINGS = 3
_LIVES = 3
#: Kinds of errors.
_CLASSES = 5
_QUANTILES = (0.5, 0.95, 0.99)
_HEADS = ("method", "records", "rate", "errors", "p50", "p95", "p99", "max")


def text_of(report: Report) -> str:
    """See ``rpcmq.latency.report.summary``."""
    parts = [_range(report), _account(report.account)]
    if report.findings:
        parts.append(["", "Look at first:", *_findings(report)])
    if report.whole.errors:
        parts.append(["", *_failures(report)])
    if report.hedged or report.hedged_left_out:
        parts.append(["", *_hedged(report)])
    if report.methods:
        parts.append(["", *_methods(report)])
    return "".join(f"{line}\n" for part in parts for line in part)


def _range(report: Report) -> list[str]:
    log = units.name(report.log, 60)
    if report.since is None or report.until is None:
        return [f"{log}: no records"]
    return wrap(f"{log}: {units.span(report.since, report.until)} ({units.length(seconds_of(report))})", COLUMNS)


def _account(account: Account) -> list[str]:
    verdict = "OK" if account.verdict is Verdict.COMPLETE else account.verdict.upper()
    if account.verdict is Verdict.INCOMPLETE and account.shortfall:
        verdict += f" ({share(account.shortfall)} missing)"
    sign = "=" if account.balances else "is not"
    sides = f"{units.count(account.counted)} counted + {units.count(account.rows_aside)} set aside"
    text = f"Account {verdict}: {units.count(account.shipped)} rows shipped {sign} {sides}"
    lines = wrap(text, COLUMNS, subsequent_indent="  ")
    asides = len(account.set_aside)
    notes = [
        (asides, f"{asides} file{'' if asides == 1 else 's'} set aside"),
        (account.holes, f"{units.count(account.holes)} holes ({units.count(account.dropped)} dropped by routers)"),
        (account.missing_segments, f"{units.count(account.missing_segments)} missing segments"),
        (account.unknown, f"{units.count(account.unknown)} unknown outcomes"),
        (account.waiting, f"{units.count(account.waiting)} spool files wait: run rpcmq ship"),
    ]
    if said := ", ".join(note for number, note in notes if number):
        lines += wrap(f"  {said}", COLUMNS, subsequent_indent="  ")
    for life in account.unsealed[:_LIVES]:
        lines += wrap(f"  {unsealed(life)}", COLUMNS, subsequent_indent="    ")
    if more := account.unsealed[_LIVES:]:
        lines.append(f"  {units.count(len(more))} more lives ended without a seal")
    return lines


def _findings(report: Report) -> list[str]:
    lines = []
    for number, each in enumerate(report.findings[:_FINDINGS], 1):
        text = f"{units.name(each.what, 200)}. {units.name(each.why, 300)}"
        lines += wrap(text, COLUMNS, initial_indent=f"  {number}. ", subsequent_indent="     ")
    return lines


def _failures(report: Report) -> list[str]:
    found = failures(report.whole)
    named = [f"{units.count(number)} {units.name(error or outcome, 60)}" for outcome, error, number in found]
    more = [f"{units.count(sum(number for *_, number in found[_CLASSES:]))} more"] if len(found) > _CLASSES else []
    text = f"{units.count(report.whole.errors)} did not end well: {', '.join([*named[:_CLASSES], *more])}"
    return wrap(text, COLUMNS, subsequent_indent="  ")


def _hedged(report: Report) -> list[str]:
    lines = []
    if report.hedged:
        say = _hedged_in_all if report.server is None else _hedged_at_server
        lines = wrap(say(report), COLUMNS, subsequent_indent="  ")
    if report.hedged_left_out:
        text = f"Calls that several servers had are left out: {report.hedged_left_out}."
        lines += wrap(text, COLUMNS, subsequent_indent="  ")
    return lines


def _hedged_at_server(report: Report) -> str:
    whole = total_of(report.hedged)
    text = (
        f"Of calls that several servers had, {units.name(report.server or '', 60)} ended {units.count(whole.hedged)},"
        f" {units.count(whole.won)} of them though another one had them first."
    )
    if whole.extra:
        text += f" It had {units.count(whole.extra)} more that it did not answer, for {units.total(whole.extra_us)}."
    return text


def _hedged_in_all(report: Report) -> str:
    whole = total_of(report.hedged)
    text = (
        f"Several servers had {units.count(whole.hedged)} calls"
        + (f" ({units.percent(whole.hedged, whole.calls)} of their methods')" if whole.calls else "")
        + f", which took {units.count(whole.extra)} extra requests. "
    )
    if whole.won:
        text += f"Another server than the first answered {units.count(whole.won)} of them"
        gained = quantile(whole.gained, 0.5)
        text += f", half of these sooner by {units.duration(gained.value)} at least." if gained else "."
    else:
        text += "The first server answered all of them: nothing was gained."
    if whole.differing:
        text += f" Results of {units.count(whole.differing)} of {units.count(whole.finished)} differed."
    return text


def _methods(report: Report) -> list[str]:
    seconds = seconds_of(report)
    rows: list[Sequence[str]] = [_HEADS]
    for each in report.methods[:_METHODS]:
        found = [quantile(each.total, q) for q in _QUANTILES]
        rows.append(
            (
                units.name(method_name(each.key), COLUMNS),
                units.short_count(each.records),
                units.rate(each.records, seconds),
                units.percent(each.errors, each.records),
                *(units.duration(value.value) if value else "n too small" for value in found),
                units.duration(each.total.max),
            )
        )
    lines = _aligned(rows)
    left = len(report.methods) - _METHODS
    if left > 0:
        lines.append(f"{units.count(left)} more method{'' if left == 1 else 's'}; these have the most total time")
    return lines


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    # What names and numbers of any size leave is the name's.
    widths[0] = max(8, min(widths[0], COLUMNS - sum(widths[1:]) - 2 * (len(widths) - 1)))
    lines = []
    for row in rows:
        cells = [_cut(row[0], widths[0]).ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        lines.append("  ".join(cells).rstrip())
    return lines
