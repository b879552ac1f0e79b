"""``rpcmq top``."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from time import monotonic
from typing import TYPE_CHECKING, Any

import click
import gevent
from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from rpcmq.cli.mesh_routers import RouterClients
from rpcmq.cli.options import State, connects, json_option, make_client, positive
from rpcmq.cli.output import Output, add_row, print_json, table
from rpcmq.cli.rates import rates
from rpcmq.cli.text import counted, microseconds, plain

if TYPE_CHECKING:
    from rpcmq.client import Client

__all__ = ["top_command"]

_ANY_HEIGHT = 1000


@click.command("top")
@click.option("--once", is_flag=True, help="Watch for one interval, print, and end.")
@click.option("--interval", type=positive, default=1.0, show_default=True, help="Seconds between samples.")
@click.option("--all", "show_all", is_flag=True, help="Show methods that nobody used in the interval, too.")
@click.option("--mesh", "all_routers", is_flag=True, help="Watch each router of the mesh.")
@click.option("--timeout", type=positive, default=5.0, show_default=True, help="Seconds to wait for the router.")
@json_option
@connects
@click.pass_obj
def top_command(state: State, once: bool, interval: float, show_all: bool, all_routers: bool, timeout: float) -> None:
    """Watch calls, casts and errors a second, and latencies, of each topic and method.

    Latencies are those of the interval, from receipt in the router to the reply (calls) or until the
    consumer was done (casts). With --json: one object a line for each interval.

    With --mesh it is that of each router of the mesh: a router counts the calls and casts that its own processes make.
    One that does not answer is named.
    """
    if all_routers:
        with RouterClients(state, timeout) as clients:
            _watch(state, once, _mesh_samples(clients, interval, show_all), _mesh_screen)
    else:
        with make_client(state, timeout) as client:
            _watch(state, once, _samples(client, interval, timeout, show_all), _screen)


def _watch(
    state: State, once: bool, samples: Iterator[dict[str, Any]], screen: Callable[[dict[str, Any], int], Group]
) -> None:
    if once:
        samples = iter([next(samples)])
    if state.json:
        for sample in samples:
            print_json(sample)
    elif once or not sys.stdout.isatty():
        for sample in samples:
            Output().print(screen(sample, _ANY_HEIGHT))
    else:
        output = Output()
        with Live(console=output, auto_refresh=False, screen=True) as live:
            for sample in samples:
                live.update(screen(sample, output.height), refresh=True)


def _mesh_samples(clients: RouterClients, interval: float, show_all: bool) -> Iterator[dict[str, Any]]:
    before, at = clients.ask("methods"), monotonic()
    while True:
        gevent.sleep(max(0.0, at + interval - monotonic()))
        after, now = clients.ask("methods"), monotonic()
        routers = []
        for name, answer in after.by_router.items():
            earlier = before.by_router.get(name)
            if earlier is None:
                continue  # has just come: from the next interval on
            rows = rates(earlier["methods"], answer["methods"], now - at)
            routers.append({"router": name, "methods": rows if show_all else [row for row in rows if _used(row)]})
        yield {"interval_seconds": round(now - at, 3), "routers": routers, "silent": after.silent_rows()}
        before, at = after, now


def _mesh_screen(sample: dict[str, Any], height: int) -> Group:
    rows = [{"router": each["router"], **row} for each in sample["routers"] for row in each["methods"]]
    calls, casts = (sum(row[f"{what}_per_second"] for row in rows) for what in ("calls", "casts"))
    head = [f"{counted(len(sample['routers']), 'router')}: {calls:,.0f} calls/s, {casts:,.0f} casts/s"]
    head += [f"router {each['router']} does not answer: {each['text']}" for each in sample["silent"]]
    return Group(*(Text(plain(line)) for line in head), _methods(rows, height, ("router",)))


def _samples(client: Client, interval: float, timeout: float, show_all: bool) -> Iterator[dict[str, Any]]:
    before, at = client.query("methods", timeout)["methods"], monotonic()
    while True:
        gevent.sleep(max(0.0, at + interval - monotonic()))
        methods, now = client.query("methods", timeout)["methods"], monotonic()
        summary = client.query("summary", timeout)
        rows = rates(before, methods, now - at)
        yield {
            **{name: summary[name] for name in ("router", "uptime_seconds", "links", "topics", "calls_in_flight")},
            "interval_seconds": round(now - at, 3),
            "methods": rows if show_all else [row for row in rows if _used(row)],
        }
        before, at = methods, now


def _used(row: dict[str, Any]) -> bool:
    busy = row["calls_per_second"] or row["casts_per_second"] or row["errors_per_second"]
    return bool(busy or row["latency_us"]["p50"] is not None)


def _screen(sample: dict[str, Any], height: int) -> Group:
    rows = sample["methods"]
    head = (
        f"router {sample['router']}, up {sample['uptime_seconds']:.0f} s: {counted(sample['links'], 'link')}, "
        f"{counted(sample['topics'], 'topic')}, {counted(sample['calls_in_flight'], 'call')} in flight, "
        f"{sum(row['calls_per_second'] for row in rows):,.0f} calls/s, "
        f"{sum(row['casts_per_second'] for row in rows):,.0f} casts/s"
    )
    return Group(Text(plain(head)), _methods(rows, height))


def _methods(rows: list[dict[str, Any]], height: int, more: tuple[str, ...] = ()) -> Table:
    """A table of ``rows``, as many as fit; ``more`` names members that are its first columns."""
    made = table("", *more, "topic", "method", ">calls/s", ">casts/s", ">errors/s", ">p50", ">p90", ">p99")
    made.title = None
    for row in rows[: max(1, height - 4)]:
        numbers = [f"{row[name + '_per_second']:,.1f}" for name in ("calls", "casts", "errors")]
        quantiles = map(microseconds, row["latency_us"].values())
        cells = (*(row[name] for name in more), row["topic"], row["method"], *numbers, *quantiles)
        add_row(made, cells, "yellow" if row["errors_per_second"] else "")
    return made
