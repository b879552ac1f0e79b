"""``rpcmq sub`` and ``rpcmq publish``: events from and to the command line."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any

import click

from rpcmq.cli.options import State, connects, json_option, make_client, positive
from rpcmq.cli.text import counted, plain
from rpcmq.cli.values import json_object, parse_value

__all__ = ["publish_command", "sub_command"]

#: Most events waiting to be printed; further ones wait at the router, within its own bounds.
_WAITING = 100


@click.command("sub")
@click.argument("patterns", nargs=-1, required=True, metavar="PATTERN...")
@click.option("--count", type=click.IntRange(1), help="End after this many events.")
@click.option("--timeout", type=positive, default=5.0, show_default=True, help="Seconds to wait for the router.")
@json_option
@connects
@click.pass_obj
def sub_command(state: State, patterns: tuple[str, ...], count: int | None, timeout: float) -> None:
    """Print each event whose topic matches a PATTERN, one a line, until Ctrl-C.

    A PATTERN is words between dots: "*" is exactly one word, "#" any number of words, none included;
    quote it for the shell. A line is the topic and the payload as JSON; with --json an object with
    topic, context and payload. What rpc.notify("compute.x") sends has the topic
    notifications.info.compute.x: subscribe to 'notifications.#' or 'notifications.*.compute.#'.
    """
    from gevent.queue import Queue

    from rpcmq.cli.output import typed_json

    events: Queue[tuple[Any, str, Any]] = Queue(_WAITING)

    def printed(event: tuple[Any, str, Any]) -> str:
        context, topic, payload = event
        if state.json:
            return typed_json({"topic": topic, "context": context, "payload": payload})
        return f"{plain(topic)} {typed_json(payload)}"

    with make_client(state, timeout) as client:
        subscriptions = [client.subscribe(pattern, lambda *event: events.put(event)) for pattern in patterns]
        if sys.stderr.isatty():
            click.echo(f"subscribed to {', '.join(map(plain, patterns))}; Ctrl-C ends it", err=True)
        lost, seen = 0, 0
        while count is None or seen < count:
            print(printed(events.get()), flush=True)
            seen += 1
            if (now_lost := sum(each.lost for each in subscriptions)) > lost:
                click.echo(f"rpcmq: {counted(now_lost - lost, 'event')} lost: printing is too slow for them", err=True)
                lost = now_lost


@click.command("publish")
@click.argument("topic")
@click.argument("payload")
@click.option("--ctx", "context", metavar="JSON", callback=json_object, help="Context of the event.")
@click.option("--confirm/--no-confirm", default=True, show_default=True, help="Wait until the router has it.")
@click.option("--timeout", type=positive, default=10.0, show_default=True, help="Seconds.")
@json_option
@connects
@click.pass_obj
def publish_command(
    state: State, topic: str, payload: str, context: dict[str, Any] | None, confirm: bool, timeout: float
) -> None:
    """Send an event to all who subscribe to a pattern that TOPIC matches, and print how many there are.

    PAYLOAD is JSON where it can be read as that, otherwise text. "-" reads standard input: each line is
    the payload of an event. It is no error if nobody subscribes.
    """
    events = subscribers = 0
    with make_client(state, timeout) as client:
        client.connect(min(5.0, timeout))
        for text in _lines() if payload == "-" else (payload,):
            subscribers = client.publish(context, topic, parse_value(text), confirm=confirm) or 0
            events += 1
    if state.json:
        print(json.dumps({"events": events, "confirmed": confirm, "subscribers": subscribers if confirm else None}))
    elif not events:
        click.echo("sent nothing: standard input has no lines")
    elif confirm:
        reached = counted(subscribers, "subscriber") if subscribers else f"nobody: no pattern matches {topic!r}"
        click.echo(plain(f"sent {counted(events, 'event')} to {reached}"))


def _lines() -> Iterator[str]:
    from gevent import get_hub

    # Read in a thread, so that heartbeats go on while there is no input.
    read = get_hub().threadpool.apply
    while line := read(sys.stdin.readline):
        yield line.rstrip("\n")
