"""``rpcmq bench``: how many calls and casts a second go through a router, and how long they take."""

from __future__ import annotations

import json
import os
import secrets
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from time import monotonic, perf_counter
from typing import TYPE_CHECKING, Any

import click
import gevent
from gevent.subprocess import DEVNULL, PIPE, Popen, TimeoutExpired
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from rpcmq.cli.options import State, connects, json_option, make_client, positive
from rpcmq.cli.output import Output, add_row, print_folded, print_json, table
from rpcmq.cli.stopping import ended_by_signals
from rpcmq.cli.text import microseconds
from rpcmq.errors import CallTimeout, RouterUnreachable, RpcError
from rpcmq.histogram import Histogram
from rpcmq.testing.orphans import ending_with_this_process

if TYPE_CHECKING:
    from rpcmq.client import Client

__all__ = ["BenchEndpoint", "bench_command"]

#: Longest start of a process of its own, on a machine that is busy (seconds): one that fails says so at once.
_START_SECONDS = 60.0
_STOP_SECONDS = 10.0
#: Longest wait for the last casts of a step to run (seconds).
_SETTLE_SECONDS = 30.0


class BenchEndpoint:
    """The endpoint of the measured service."""

    def __init__(self) -> None:
        self._casts = 0

    def echo(self, ctx: Any, data: Any) -> Any:
        """Return ``data``."""
        return data

    def count(self, ctx: Any, data: Any) -> None:
        """Count a cast."""
        self._casts += 1

    def counted(self, ctx: Any) -> int:
        """Return the number of casts counted."""
        return self._casts


def _widths(ctx: click.Context, parameter: click.Parameter, value: str) -> list[int]:
    try:
        widths = [int(part) for part in value.split(",")]
    except ValueError:
        widths = [0]
    if not all(1 <= width <= 10_000 for width in widths):
        raise click.BadParameter(f"{value!r}: expected numbers from 1 to 10000, separated by commas")
    return widths


@click.command("bench")
@click.option("--seconds", type=positive, default=2.0, show_default=True, help="Duration of each step.")
@click.option(
    "--concurrency",
    metavar="W,W,...",
    default="1,16,64,256",
    show_default=True,
    callback=_widths,
    help="Calls outstanding, one number a step.",
)
@click.option(
    "--payload", type=click.IntRange(0, 2**20), default=100, show_default=True, help="Bytes of text in each message."
)
@click.option("--timeout", type=positive, default=5.0, show_default=True, help="Seconds to wait for the router.")
@json_option
@connects
@click.pass_obj
def bench_command(state: State, seconds: float, concurrency: list[int], payload: int, timeout: float) -> None:
    """Measure calls and casts a second and the latency of calls, from this process to one service.

    Without --router and RPCMQ_ROUTER a router process of its own is started. The service is always a
    process of its own. A cast counts when its method has run.
    """
    topic = f"rpcmq-bench-{secrets.token_hex(4)}"
    with ExitStack() as stack:
        stack.enter_context(ended_by_signals())
        if state.router is None and "RPCMQ_ROUTER" not in os.environ:
            started = stack.enter_context(_running("router", "--listen", "tcp://127.0.0.1:0", "--log-format", "json"))
            state.router = started["url"]
        client = stack.enter_context(make_client(state, 10.0))
        router, *others = client.config.router
        if others:
            text = f"the bench measures one router, and {len(others) + 1} are given: name one of them with --router"
            raise click.UsageError(text)
        client.connect(timeout)
        # After the service has ended, however that came: nothing of this is to stay in the router.
        stack.callback(_clean_up, client, topic)
        serve = ("serve", "rpcmq.cli.bench:BenchEndpoint", "--topic", topic, "--log-format", "json")
        # The service must not limit concurrency: the sweep's width is measured.
        wide = ("--concurrency", str(max(256, *concurrency)))
        stack.enter_context(_running("--router", router, *serve, *wide, "--exchange", client.config.exchange))
        rows = _measure(client, topic, seconds, concurrency, "x" * payload)
    if state.json:
        print_json({"router": router, "payload_bytes": payload, "seconds": seconds, "steps": rows})
        return
    made = table(f"{payload} bytes a message", "", ">W", ">a second", ">p50", ">p90", ">p99", ">max")
    for row in rows:
        quantiles = [microseconds(row["latency_us"].get(name)) for name in ("p50", "p90", "p99", "max")]
        add_row(made, (row["verb"], row["concurrency"], f"{row['per_second']:,.0f}", *quantiles))
    print_folded(Output(), made)


def _measure(client: Client, topic: str, seconds: float, widths: list[int], data: str) -> list[dict[str, Any]]:
    console = Output(stderr=True)
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    ) as progress:
        task = progress.add_task("", total=seconds * (len(widths) + 1))

        def moved(description: str, by: float) -> None:
            progress.update(task, description=description, advance=by)

        rows = [_calls(client, topic, seconds, width, data, moved) for width in widths]
        rows.append(_casts(client, topic, seconds, data, moved))
    return rows


def _calls(
    client: Client, topic: str, seconds: float, width: int, data: str, moved: Callable[[str, float], None]
) -> dict[str, Any]:
    message = {"method": "echo", "args": {"data": data}}
    client.call(None, topic, message)
    latency = Histogram()
    started = perf_counter()
    end = started + seconds

    def caller() -> None:
        before = perf_counter()
        while before < end:
            client.call(None, topic, message)
            after = perf_counter()
            latency.record((after - before) * 1e6)
            before = after

    callers = [gevent.spawn(caller) for _ in range(width)]
    try:
        _watch(f"calls, W = {width}", seconds, moved)
        gevent.joinall(callers, raise_error=True)
    finally:
        gevent.killall(callers)
    return {
        "verb": "call",
        "concurrency": width,
        "count": latency.count,
        "per_second": round(latency.count / (perf_counter() - started), 1),
        "latency_us": {
            **{f"p{q * 100:g}": latency.quantile(q) for q in (0.5, 0.9, 0.99)},
            "max": latency.max,
        },
    }


def _casts(
    client: Client, topic: str, seconds: float, data: str, moved: Callable[[str, float], None]
) -> dict[str, Any]:
    message = {"method": "count", "args": {"data": data}}
    started = perf_counter()

    def caster() -> int:
        sent = 0
        while perf_counter() < started + seconds:
            for _ in range(100):
                client.cast(None, topic, message, ttl=_SETTLE_SECONDS)
            sent += 100
            gevent.sleep(0)
        return sent

    casting = gevent.spawn(caster)
    try:
        _watch("casts", seconds, moved)
        count = casting.get()
    finally:
        casting.kill()
    give_up = perf_counter() + _SETTLE_SECONDS
    while client.call(None, topic, {"method": "counted", "args": {}}) < count:
        if perf_counter() > give_up:
            raise CallTimeout(f"of {count} casts some were not run within {_SETTLE_SECONDS:g} s")
        gevent.sleep(0.005)
    rate = round(count / (perf_counter() - started), 1)
    return {"verb": "cast", "concurrency": 1, "count": count, "per_second": rate, "latency_us": {}}


def _clean_up(client: Client, topic: str) -> None:
    """Leave no cast behind, here or in the router, and no topic."""
    give_up = monotonic() + _STOP_SECONDS
    try:
        while monotonic() < give_up:
            # Casts in flight from here arrive after the purge.
            was_open = client.statistics()["casts_open"]
            answer = client.purge(topic, forget=True, timeout=_STOP_SECONDS)
            if not was_open and (answer["forgotten"] or not answer["known"]):
                return
            gevent.sleep(0.02)
        left = f"some casts to {topic!r} may remain"
    except RpcError as error:
        if not client.statistics()["casts_kept"]:
            return  # consumers have had them all; what is left is a topic that ages out
        left = f"casts to {topic!r} could not be purged: {error}"
    click.echo(f"rpcmq: {left}; they expire within {_SETTLE_SECONDS:g} s", err=True)


def _watch(description: str, seconds: float, moved: Callable[[str, float], None]) -> None:
    """Move the progress bar while a step runs."""
    end = monotonic() + seconds
    moved(description, 0)
    while (left := end - monotonic()) > 0:
        # Rarely, because drawing slows the measurement.
        step = min(left, 0.5)
        gevent.sleep(step)
        moved(description, step)


class _DeferredSignals:
    """Defers SIGINT and SIGTERM until :meth:`release`, so that a process just started is not orphaned."""

    def __init__(self) -> None:
        self._held: list[int] = []
        numbers = (signal.SIGINT, signal.SIGTERM)
        self._handlers = [(number, signal.signal(number, self._hold)) for number in numbers]

    def _hold(self, number: int, frame: object) -> None:
        self._held.append(number)

    def release(self) -> None:
        """Stop deferring, and deliver deferred signals."""
        for number, handler in self._handlers:
            signal.signal(number, handler)
        for held in self._held:
            signal.raise_signal(held)


@contextmanager
def _running(*arguments: str) -> Iterator[dict[str, Any]]:
    """A process of this command; gives the first record of its log. Ends it afterwards."""
    command = [sys.executable, "-m", "rpcmq", *arguments]
    signals = _DeferredSignals()
    reader: gevent.Greenlet[..., None] | None = None
    process: Any = Popen(command, stdin=DEVNULL, stdout=DEVNULL, stderr=PIPE, preexec_fn=ending_with_this_process())
    try:
        signals.release()
        line = gevent.with_timeout(_START_SECONDS, process.stderr.readline, timeout_value=b"")
        try:
            record: dict[str, Any] = json.loads(line)
        except ValueError:
            text = line.decode(errors="replace").strip() or f"it said nothing within {_START_SECONDS:g} s"
            raise RouterUnreachable(f"{' '.join(arguments[:2])} did not start: {text}") from None
        reader = gevent.spawn(_drain, process.stderr)
        yield record
    finally:
        process.terminate()
        try:
            process.wait(_STOP_SECONDS)
        except TimeoutExpired:
            process.kill()
            process.wait()
        if reader is not None:
            reader.kill()
        process.stderr.close()


def _drain(stream: Any) -> None:
    while stream.readline():
        pass
