"""``rpcmq latency policy``."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rpcmq.cli.exit_codes import failing
from rpcmq.cli.latency_engine import Choice, Waiting, engine, engine_options
from rpcmq.cli.latency_input import installed, listed, selected, selects
from rpcmq.cli.options import State, json_option, positive
from rpcmq.cli.output import Output, add_row, print_fitting, print_json, table
from rpcmq.cli.text import microseconds, plain
from rpcmq.errors import RpcError
from rpcmq.latency.policy import as_json, write_policy
from rpcmq.latency.selection import Selection

if TYPE_CHECKING:
    from rpcmq.latency.policy import Policy

__all__ = ["policy_command"]


@click.command("policy")
@selects
@click.option(
    "--out", required=True, metavar="FILE", type=click.Path(dir_okay=False, path_type=Path), help="The file to write."
)
@click.option(
    "--min-samples",
    # Below it a p99 has no interval.
    type=click.IntRange(299),
    default=1000,
    show_default=True,
    help="Methods with fewer calls are left out.",
)
@click.option(
    "--valid-hours",
    type=positive,
    default=24.0,
    show_default=True,
    help="Hours after its newest call that a method is valid.",
)
@engine_options
@json_option
@click.pass_obj
def policy_command(
    state: State,
    log: Path | None,
    cells: Path | None,
    since: str | None,
    until: str | None,
    filters: Sequence[str],
    out: Path,
    min_samples: int,
    valid_hours: float,
    choice: Choice,
) -> None:
    """Write the latency policy: how long each method usually takes, for programs.

    A router reads the file of its setting hedge.policy_file, again when it changes, for calls with hedge_after="p95".
    `rpcmq.latency.policy.read_policy` reads it for programs of your own.

    It is made of calls that ended ok: p50, p95 and p99 of each method with their intervals, number of samples and
    age. The file is replaced as a whole. Nothing is written if no method has enough calls, or if the file would have
    more than 16 MiB (40,000 methods): a larger --min-samples leaves out those with few.
    """
    selection = selected(log, cells, since, until, filters)
    made, left_out = _made(selection, out, min_samples, valid_hours * 3600, choice)
    if not made.entries:
        why = "; ".join(f"{name}: {reason}" for name, reason in list(left_out.items())[:3]) or "no calls ended ok"
        raise RpcError(f"{out} was not written, no method is good enough: {why}")
    with failing():
        try:
            write_policy(out, made)
        except ValueError as error:
            raise RpcError(f"{out} was not written: {error}") from None
    if state.json:
        print_json(as_json(made) | {"left_out": left_out})
        return
    rows = table(f"{out}", "method", ">samples", ">p50", ">p95", ">p99", "p99 lies between")
    for (exchange, topic, method), entry in sorted(made.entries.items()):
        name = f"{exchange}/{topic}.{method}" if exchange else f"{topic}.{method}"
        low, high = entry.intervals_us[2]
        ends = f"{microseconds(low)} and {microseconds(high)}"
        add_row(rows, (name, entry.samples, *(microseconds(us) for us in entry.us), ends))
    print_fitting(Output(), rows, "p50", "samples", "p95")
    if left_out:
        click.echo(plain(f"left out: {listed(f'{name} ({reason})' for name, reason in left_out.items())}"))


def _made(
    selection: Selection, out: Path, min_samples: int, valid_seconds: float, choice: Choice
) -> tuple[Policy, dict[str, str]]:
    with installed():
        from rpcmq.latency.analysis.policy import make_policy
    with Waiting() as waiting, engine("policy", choice, waiting, selection, out=out.resolve().parent) as chosen:
        from rpcmq.latency.jobs.inputs import opened

        with opened(chosen, selection) as found:
            calls, newest = found.answered_calls()
    return make_policy(calls, newest, time.time(), min_samples, valid_seconds)
