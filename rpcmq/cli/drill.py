"""``rpcmq drill``: real processes under faults, and a verdict."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rpcmq.cli.exit_codes import ExitCode
from rpcmq.cli.options import ParamOf, State, json_option
from rpcmq.cli.output import Output, add_row, print_folded, print_json, table
from rpcmq.cli.stopping import ended_by_signals
from rpcmq.config.values import seconds

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rpcmq.drill.checks import Verdict
    from rpcmq.drill.result import Result

__all__ = ["drill_command"]

_SECONDS = ParamOf(seconds(0.001, 1e6))
#: From 0 to 1.
_SHARE = click.FloatRange(0.0, 1.0)


@click.command("drill")
@click.option("--topology", metavar="FILE", type=click.Path(exists=True, dir_okay=False), help="TOML file.")
@click.option("--routers", metavar="N", type=click.IntRange(1, 16), help="Number of routers, as one mesh.")
@click.option("--faults", metavar="FAULT,...", default="kill,stop,router", show_default=True, help="Which, as above.")
@click.option("--for", "seconds", type=_SECONDS, default="60s", show_default=True, help="Time to inject faults.")
@click.option("--every", type=_SECONDS, default="2s", show_default=True, help="Interval between faults.")
@click.option("--lasts", type=_SECONDS, default="3s", show_default=True, help="Longest duration of a fault.")
@click.option("--plain", metavar="N", type=click.IntRange(0), help="Number of threaded programs without gevent.")
@click.option("--patched", is_flag=True, default=None, help="Callers and services call gevent.monkey.patch_all().")
@click.option("--nested", metavar="SHARE", type=_SHARE, help="Share of calls whose handler makes a nested call.")
@click.option("--large", metavar="SHARE", type=_SHARE, help="Share of messages of 64 KiB to 3 MiB, both ways.")
@click.option("--misspelt", metavar="SHARE", type=_SHARE, help="Share of casts to topics without consumers.")
@click.option("--seed", type=click.IntRange(0), help="Random seed.  [default: a random one, which is printed]")
@click.option("--keep", metavar="FOLDER", type=click.Path(file_okay=False), help="Folder for the histories.")
@json_option
@click.pass_obj
def drill_command(
    state: State,
    topology: str | None,
    routers: int | None,
    faults: str,
    seconds: float,
    every: float,
    lasts: float,
    plain: int | None,
    patched: bool | None,
    nested: float | None,
    large: float | None,
    misspelt: float | None,
    seed: int | None,
    keep: str | None,
) -> int:
    """Start a router, services and callers of their own, inject faults, and check every message.

    Nothing that runs already is touched. TOPOLOGY says how many processes there are, what they send, and which
    configuration the router has: see docs/operations/drills.md; what --plain to --misspelt say counts before it.
    Faults:

    \b
    kill             a service is killed; another takes its place
    stop             a service or caller is stopped (SIGSTOP) and goes on
    kill-plain       a program without gevent is killed while it computes or
                     sleeps: what it has cast must run
    router           the router is killed and started again
    router-restart   the router is stopped in order (SIGTERM) and started
                     again: no call may fail
    router-stop      the router is stopped (SIGSTOP) and goes on
    router-silent    the same for longer than link.unresponsive_seconds:
                     processes must say so
    router-lost      the same for longer than link.lost_seconds: they must
                     connect anew
    reset            the connections of a process are reset
    partition        a process is cut off both ways; cut-to-router and
                     cut-to-process: one way
    stall, delay     nothing gets through again and again; everything is late
    half-open        the router sees a connection end, and the process does not
    hog              a handler holds the processor
    slow-subscriber  somebody takes one event a second
    disk-full        the router can write nothing
    files            the router can open no more files
    link-cut         nothing passes between two routers, silently
    link-reset       the connection between two routers is reset

    With --routers above 1 the processes are spread over the routers of one mesh. The faults may be kill, stop,
    router, router-restart, router-stop, link-cut, link-reset (each of any router or two, one at a time), hog and
    slow-subscriber; and the death of a router excuses nothing: no call may fail, none be lost or started twice. Nor
    does a link that is cut for less than mesh.lost_seconds.

    Exits with 1 if anything was lost, doubled, misrouted, or not as docs/guarantees.md promises. SIGTERM and SIGINT
    end its processes, remove its temporary folder, and exit with 143 and 130.
    """
    from dataclasses import replace

    from rpcmq.drill.faults import NEEDS_PLAIN, NEEDS_PROXY, check_faults, chosen, run_drill
    from rpcmq.drill.topology import Topology, load_topology

    names = chosen(faults)
    laid_out = load_topology(topology) if topology else Topology(rate=500.0, callers=routers or 1)
    load: dict[str, Any] = {
        "routers": routers, "plain": plain, "patched": patched, "nested": nested, "large": large, "misspelt": misspelt,
    }  # fmt: skip
    laid_out = replace(laid_out, **{name: value for name, value in load.items() if value is not None})
    if not laid_out.plain and set(names) & set(NEEDS_PLAIN):
        laid_out = replace(laid_out, plain=1)
    check_faults(names, laid_out)
    if laid_out.routers > 1:
        laid_out = replace(laid_out, direct=True)
    if laid_out.direct and set(names) & set(NEEDS_PROXY):
        laid_out = replace(laid_out, direct=False)
    seed = secrets.randbelow(1_000_000) if seed is None else seed
    if not state.json:
        click.echo(f"seed {seed}", err=True)
    with ended_by_signals():
        result = run_drill(seed, laid_out, names, seconds, every, (0.0, lasts), Path(keep) if keep else None)
    if state.json:
        violations = [str(violation) for violation in result.verdict.violations]
        print_json(result.row("drill") | {"violations": violations})
    else:
        _print(result)
    return ExitCode.OK if result.verdict.ok else ExitCode.FAILED


def _further(verdict: Verdict) -> Iterator[tuple[str, object]]:
    """Yield table rows that only some drills have."""
    if verdict.outlived:
        yield "calls that outlived a drain", verdict.outlived
    if verdict.accounted:
        yield "casts to topics that nobody has, as counted by the router", verdict.accounted
    if verdict.after_large:
        yield "half of the small calls after large payloads take less than", f"{verdict.after_large:.3f} s"


#: Most violations printed.
_SHOWN = 20


def _print(result: Result) -> None:
    verdict, output = result.verdict, Output()
    made = table("Verdict", "", ">")
    faults = ", ".join(f"{count} {kind}" for kind, count in result.faults.items()) or "none"
    for name, value in (
        ("faults", faults),
        ("sent", ", ".join(f"{count} {verb}" for verb, count in verdict.submitted.items())),
        ("calls ended", ", ".join(f"{count} {outcome}" for outcome, count in verdict.ended.items())),
        ("lost", verdict.lost),
        ("doubled", verdict.doubled),
        ("misrouted", verdict.misrouted),
        ("casts dropped, and counted as such", verdict.dropped),
        ("answers that came too late", verdict.late),
        *_further(verdict),
        ("longest until a failure was told", f"{verdict.told:.3f} s"),
        ("longest recovery after the router's return", f"{verdict.recovery:.3f} s"),
        ("verdict", "as promised" if verdict.ok else f"{len(verdict.violations)} violations"),
    ):
        add_row(made, (name, value), "red" if name == "verdict" and not verdict.ok else "")
    print_folded(output, made)
    for violation in verdict.violations[:_SHOWN]:
        click.echo(f"  {violation}")
    if len(verdict.violations) > _SHOWN:
        click.echo(f"  ... and {len(verdict.violations) - _SHOWN} more")
