"""``rpcmq ping``."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any

import click
import gevent

from rpcmq.cli.options import State, connects, json_option, make_client, positive
from rpcmq.cli.output import print_json
from rpcmq.cli.text import microseconds, plain
from rpcmq.errors import ProtocolError
from rpcmq.wire import Address

if TYPE_CHECKING:
    from rpcmq.client import Client

__all__ = ["ping_command"]


@click.command("ping")
@click.argument("topic", required=False)
@click.option("--count", type=click.IntRange(1), default=4, show_default=True, help="Number of round trips to each.")
@click.option("--interval", type=click.FloatRange(0), default=0.2, show_default=True, help="Seconds between them.")
@click.option("--timeout", type=positive, default=5.0, show_default=True, help="Seconds for one round trip.")
@json_option
@connects
@click.pass_obj
def ping_command(state: State, topic: str | None, count: int, interval: float, timeout: float) -> None:
    """Measure round trips to the router, or to each server that consumes TOPIC."""
    with make_client(state, timeout) as client:
        client.connect(min(5.0, timeout))
        if topic is None:
            rows = [_measure("router", partial(_router, client, timeout), count, interval)]
        else:
            targets = _targets(client, topic, timeout)
            rows = [_measure(str(t), partial(_consumer, client, t, timeout), count, interval) for t in targets]
    if state.json:
        print_json(rows)
        return
    for row in rows:
        times = ", ".join(f"{name} {microseconds(row[name + '_us'])}" for name in ("min", "avg", "max"))
        answered = "" if row["answered_by"] is None else f" ({row['answered_by']})"
        click.echo(plain(f"{row['target']}{answered}: {row['count']} round trips, {times}"))


def _router(client: Client, timeout: float) -> str:
    return str(client.query("summary", timeout)["router"])


def _consumer(client: Client, target: Any, timeout: float) -> str:
    message = {"method": "rpcmq.ping", "args": {}}
    answer = client.call(None, target, message, timeout, mandatory=True)
    if not isinstance(answer, dict) or "identity" not in answer:
        text = f"the consumer of {str(target)!r} answered 'rpcmq.ping' with something that has no 'identity'"
        raise ProtocolError(text, "body")
    return str(answer["identity"])


def _targets(client: Client, topic: str, timeout: float) -> list[Any]:
    """The servers that consume ``topic``; ``topic`` itself where the router lists none for it."""
    exchange = client.config.exchange
    for row in client.query("topics", timeout)["topics"]:
        if (row["exchange"], row["topic"]) == (exchange, topic):
            servers = sorted({consumer["server"] for consumer in row["consumers"]})
            return [Address(topic, server, exchange) for server in servers] or [topic]
    return [topic]


def _measure(target: str, once: Callable[[], str], count: int, interval: float) -> dict[str, Any]:
    times: list[float] = []
    answered_by = None
    for number in range(count):
        if number:
            gevent.sleep(interval)
        started = perf_counter()
        answered_by = once()
        times.append((perf_counter() - started) * 1e6)
    return {
        "target": target,
        "answered_by": answered_by,
        "count": count,
        "min_us": round(min(times), 1),
        "avg_us": round(sum(times) / count, 1),
        "max_us": round(max(times), 1),
    }
