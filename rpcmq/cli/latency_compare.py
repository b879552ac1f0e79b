"""``rpcmq latency compare``."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from rpcmq.cli.exit_codes import ExitCode
from rpcmq.cli.latency_engine import Choice, Waiting, engine, engine_options
from rpcmq.cli.latency_input import (
    account_line,
    installed,
    listed,
)
from rpcmq.cli.options import State, json_option
from rpcmq.cli.output import Output, add_row, print_fitting, print_json, table
from rpcmq.cli.text import microseconds, plain
from rpcmq.errors import RpcError
from rpcmq.latency.analysis.names import method_name
from rpcmq.latency.selection import Selection, parse_selection

if TYPE_CHECKING:
    from rpcmq.latency.analysis.account import Account
    from rpcmq.latency.analysis.comparison import Comparison, MethodShift, Shift
    from rpcmq.latency.analysis.limits import Excess, Limit, Verdict
    from rpcmq.latency.analysis.series import Key, Series

__all__ = ["compare_command"]

#: Most methods resampled by windows, those that take the most time: each takes a tenth of a second.
_IN_WINDOWS = 100
_DRAWN_SINGLY = (
    "Some methods have too few windows of time: their records were drawn one by one, and what hit many of them together"
    " looks surer than it is."
)
_DRIFT = (
    "Durations drift within A or B (marked drift): a change between them that this explains is not called one. Compare"
    " like with like, such as the same hours of two days."
)

#: Names of the sides in JSON.
_SIDES = {"before": "a", "after": "b"}


@click.command("compare")
@click.argument("before", metavar="A")
@click.argument("after", metavar="B")
@click.option(
    "--fail-if",
    "limits",
    multiple=True,
    metavar="LIMIT",
    help="End with exit code 11 if it is exceeded: 'p99 > +10%', 'compute.*:p99 > 250ms', 'errors > +1%'.",
)
@click.option(
    "--percentile",
    "percentiles",
    multiple=True,
    metavar="P",
    default=("p50", "p95", "p99"),
    show_default=True,
    help="What to compare besides errors; may be given several times.",
)
@click.option(
    "--measure",
    type=click.Choice(["total", "queue", "service"]),
    default="total",
    show_default=True,
    help="Which duration.",
)
@click.option(
    "--smallest",
    type=click.FloatRange(0),
    default=5.0,
    show_default=True,
    metavar="PERCENT",
    help="Smaller changes do not matter.",
)
@click.option("--top", type=click.IntRange(1), default=10, show_default=True, help="Methods to show if no more matter.")
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of the bootstrap's random draws.")
@engine_options
@json_option
@click.pass_obj
def compare_command(
    state: State,
    before: str,
    after: str,
    limits: Sequence[str],
    percentiles: Sequence[str],
    measure: str,
    smallest: float,
    top: int,
    seed: int,
    choice: Choice,
) -> int:
    """Compare the latencies of B with those of A, method by method.

    A and B are DIR[@SINCE..UNTIL][,NAME=VALUE]...: a dispatch log or stored cells, of a range of time, of one router
    (router=r1), server, client and so on.

    \b
      rpcmq latency compare log@-2h..-1h log@-1h..
      rpcmq latency compare log,router=old log,router=new
      rpcmq latency compare /var/log/v1 /var/log/v2 --fail-if 'p99 > +10%'

    A change counts only if it is no chance: see docs/latency-analysis.md.
    """
    with installed():
        from rpcmq.latency.analysis.limits import judge, parse_limit
        from rpcmq.latency.analysis.quantities import parse_percentile

    parsed = [parse_limit(text) for text in limits]
    named = [parse_percentile(text, "--percentile") for text in percentiles]
    now = time.time()
    sides = parse_selection(before, now), parse_selection(after, now)
    wanted = sorted({*named, *(limit.quantile for limit in parsed if limit.quantile is not None)})
    comparison, accounts = _compared(sides, (before, after), measure, wanted, smallest / 100, seed, choice)
    verdicts = judge(parsed, comparison)
    if state.json:
        print_json(_as_json((before, after), accounts, comparison, verdicts))
    else:
        _show((before, after), accounts, comparison, verdicts, top)
    return ExitCode.EXCEEDED if any(verdict.exceeded for verdict in verdicts) else ExitCode.OK


def _compared(
    sides: tuple[Selection, Selection],
    names: tuple[str, str],
    measure: str,
    percentiles: Sequence[float],
    smallest: float,
    seed: int,
    choice: Choice,
) -> tuple[Comparison, list[Account]]:
    whole: list[list[Series]] = []
    windows: list[list[Series]] = []
    accounts: list[Account] = []
    with Waiting() as waiting, engine("compare", choice, waiting, *sides) as chosen:
        from rpcmq.latency.analysis.compare import compare
        from rpcmq.latency.analysis.series import METHOD
        from rpcmq.latency.jobs.engine import Level, of_methods
        from rpcmq.latency.jobs.inputs import opened

        busiest: list[Key] = []
        for side, name in zip(sides, names, strict=True):
            with opened(chosen, side) as found:
                if not found.methods:
                    raise RpcError(f"{name}: no records in that range, with those filters")
                # Of both sides the same methods.
                busiest = busiest or found.methods[:_IN_WINDOWS]
                windows_of = Level(METHOD, found.coarse_window, of_methods(busiest))
                answered = found.cells.series({"all": Level(METHOD), "windows": windows_of})
                whole.append(answered["all"])
                windows.append(answered["windows"])
                accounts.append(found.account(answered["all"]))
        waiting.say("comparing")
        comparison = compare(*whole, *windows, measure=measure, percentiles=percentiles, smallest=smallest, seed=seed)
    return comparison, accounts


def _show(
    names: tuple[str, str],
    accounts: Sequence[Account],
    comparison: Comparison,
    verdicts: Sequence[Verdict],
    top: int,
) -> None:
    output = Output()
    for letter, name, account in zip("AB", names, accounts, strict=True):
        click.echo(plain(f"{letter}: {name}: {account_line(account)}"))
    matter = [each for each in comparison.methods if each.matters]
    shown = comparison.methods[: max(top, len(matter))]
    made = table("", "method", "what", ">A", ">B", ">change", "95 % interval", ">n A", ">n B", "mark")
    for each in shown:
        for number, shift in enumerate(each.shifts):
            head = (method_name(each.key) if not number else "", shift.what)
            counts = (each.before.records, each.after.records) if not number else ("", "")
            cells = (*head, *_values(shift), *counts, _mark(shift))
            add_row(made, cells, _style(shift))
    print_fitting(output, made, "n B", "n A", "95 % interval", "A")
    left = len(comparison.methods) - len(shown)
    percent = f"{comparison.smallest * 100:.3g} %"
    click.echo(
        f"{len(matter)} of {len(comparison.methods)} methods changed by {percent} or more, and not by chance"
        + (f"; {left} are not shown" if left else "")
    )
    if any(shift.drawn == "records" for each in shown for shift in each.shifts):
        click.echo(_DRAWN_SINGLY)
    if any(shift.drift for each in comparison.methods for shift in each.shifts):
        click.echo(_DRIFT)
    for what, series in (("only in A", comparison.gone), ("only in B", comparison.new)):
        if series:
            click.echo(plain(f"{what}: {listed(method_name(each.key) for each in series)}"))
    for verdict in verdicts:
        click.echo(plain(_sentence(verdict)))


def _values(shift: Shift) -> tuple[str, str, str, str]:
    if shift.what == "errors":
        unit = " points"
        ends = tuple("-" if value is None else f"{value:.2%}" for value in (shift.before, shift.after))
    else:
        unit = " %"
        ends = tuple(microseconds(value) for value in (shift.before, shift.after))
    change = "-" if shift.change is None else f"{shift.change * 100:+.2f}{unit}"
    if shift.interval is None:
        return ends[0], ends[1], change, "n too small"
    low, high = shift.interval
    return ends[0], ends[1], change, f"{low * 100:+.2f} to {high * 100:+.2f}{unit}"


def _mark(shift: Shift) -> str:
    if not shift.confirmed:
        return "drift" if shift.drift else ""
    if not shift.matters:
        return "small"
    is_up = (shift.change or 0) > 0
    if shift.what == "errors":
        return "MORE ERRORS" if is_up else "fewer errors"
    return "SLOWER" if is_up else "quicker"


def _style(shift: Shift) -> str:
    if not shift.matters:
        return ""
    return "red" if (shift.change or 0) > 0 else "green"


def _sentence(verdict: Verdict) -> str:
    from rpcmq.latency.analysis.wording import count

    text = f"{verdict.limit.text}: "
    if verdict.exceeded:
        worst = (f"{method_name(each.key)} {_excess(verdict.limit, each)}" for each in verdict.exceeded)
        text += f"EXCEEDED in {len(verdict.exceeded)} of {count(verdict.checked, 'method')}: {listed(worst)}"
    else:
        text += f"not exceeded in {count(verdict.checked, 'method')}"
    if verdict.detectable and not verdict.exceeded:
        text += f"; {_seen(verdict)}"
    if verdict.drifting:
        text += f"; drift makes it less sure: {listed(method_name(key) for key in verdict.drifting)}"
    if verdict.unchecked:
        text += f"; not checked, n too small: {listed(method_name(key) for key in verdict.unchecked)}"
    return text


def _seen(verdict: Verdict) -> str:
    """Say how large a rise would have been detected."""
    from rpcmq.latency.analysis.wording import share

    def size(value: float) -> str:
        return f"+{share(value)}" if verdict.limit.is_share else f"+{microseconds(value)}"

    (first, least), (last, most) = verdict.detectable[0], verdict.detectable[-1]
    text = f"rises would have been seen from {size(least)} ({method_name(first)})"
    return text if len(verdict.detectable) == 1 else f"{text} to {size(most)} ({method_name(last)})"


def _excess(limit: Limit, excess: Excess) -> str:
    numbers = (excess.value, excess.low, excess.high)
    if not limit.is_share:
        value, low, high = (microseconds(number) if number >= 0 else f"-{microseconds(-number)}" for number in numbers)
    else:
        value, low, high = (f"{number:.2%}" for number in numbers)
    return f"{'+' if limit.is_rise else ''}{value} ({low} to {high})"


def _as_json(
    names: tuple[str, str],
    accounts: Sequence[Account],
    comparison: Comparison,
    verdicts: Sequence[Verdict],
) -> dict[str, Any]:
    sides = {
        letter: {"selection": name, "account": account.as_json()}
        for letter, name, account in zip("ab", names, accounts, strict=True)
    }
    return sides | {
        "measure": comparison.measure,
        "smallest": comparison.smallest,
        "methods": [_method_as_json(each) for each in comparison.methods],
        "only_in_a": [dict(each.key) for each in comparison.gone],
        "only_in_b": [dict(each.key) for each in comparison.new],
        "limits": [
            {
                "limit": verdict.limit.text,
                "checked": verdict.checked,
                "n_too_small": [dict(key) for key in verdict.unchecked],
                "exceeded": [
                    dict(each.key) | {"value": each.value, "interval": [each.low, each.high]}
                    for each in verdict.exceeded
                ],
                "detectable": [dict(key) | {"value": value} for key, value in verdict.detectable],
                "drifting": [dict(key) for key in verdict.drifting],
            }
            for verdict in verdicts
        ],
        "exceeded": any(verdict.exceeded for verdict in verdicts),
    }


def _method_as_json(method: MethodShift) -> dict[str, Any]:
    return dict(method.key) | {
        "records": [method.before.records, method.after.records],
        "matters": method.matters,
        "shifts": [{_SIDES.get(name, name): value for name, value in asdict(shift).items()} for shift in method.shifts],
    }
