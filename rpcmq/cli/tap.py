"""``rpcmq tap``: copies of what passes on a topic."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from rpcmq.cli.exit_codes import ExitCode
from rpcmq.cli.options import State, connects, json_option, make_client, positive
from rpcmq.cli.text import plain
from rpcmq.config import load_client_config
from rpcmq.errors import CallError, RpcError

if TYPE_CHECKING:
    from rpcmq.client import Client

__all__ = ["tap_command"]

_TAP_KIND = 0x80
#: Seconds that one question waits for copies.
_WAIT = 2.0
_FIELDS = ("what", "method", "caller", "consumer", "attempt", "outcome", "seconds", "size_bytes", "format", "id")


@click.command("tap")
@click.argument("topic")
@click.option("--for", "duration", type=positive, help="Seconds after which it ends.  [default: 60, if it may]")
@click.option("--rate", type=positive, help="Copies a second; others are lost.  [default: 100, if it may]")
@click.option("--count", type=click.IntRange(1), help="End after so many copies.")
@click.option(
    "--what", metavar="SORT,...", help="Only these: call, cast, fanout, reply, fault, end, ended.  [default: all]"
)
@click.option("--fields", metavar="FIELD,...", help="Only these fields of the envelope.  [default: all]")
@click.option("--payload", is_flag=True, help="Payloads in JSON, too, redacted; the router must allow it.")
@click.option("--redact", metavar="PATTERN", multiple=True, help="More names whose values are not shown; may recur.")
@click.option("--timeout", type=positive, default=5.0, show_default=True, help="Seconds for each answer.")
@json_option
@connects
@click.pass_obj
def tap_command(
    state: State,
    topic: str,
    duration: float | None,
    rate: float | None,
    count: int | None,
    what: str | None,
    fields: str | None,
    payload: bool,
    redact: tuple[str, ...],
    timeout: float,
) -> int | None:
    """Print copies of the calls and casts of TOPIC that pass this router, and how they end.

    Copies have the envelope, and no payload unless --payload asks for it. The router must have a [[node]] of type
    "tap"; with keys this needs the right "node" on "tap.TOPIC", and with --payload on "tap.payload:TOPIC", too. The
    tap is noted in the router's log. It ends with Ctrl-C, with this process, after --for, or after --count. A reader
    that is too slow, or --rate, loses copies, which are counted; it never slows down what passes. In a mesh each
    router shows what passes there.

    With --json each copy is an object on a line of its own.
    """
    if {"*", "#"} & set(topic.split(".")):
        raise click.UsageError(f"{topic!r} is a pattern, and a tap is on one topic: give its name")
    asked: dict[str, Any] = {"do": "start", "topic": topic, "payload": payload}
    asked["exchange"] = state.exchange or load_client_config(os.environ).exchange
    asked |= {name: value for name, value in (("seconds", duration), ("rate", rate), ("count", count)) if value}
    asked |= {name: text.split(",") for name, text in (("what", what), ("fields", fields)) if text}
    if redact:
        asked["redact"] = list(redact)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    lost = copies = 0
    over = "it was interrupted"
    with make_client(state, timeout) as client:
        tap = _ask(client, asked, timeout)
        try:
            for answer in _read(client, str(tap["tap"]), timeout):
                lost += answer["lost"]
                copies += len(answer["copies"])
                over = answer["over"]
                _print(state, answer["copies"])
        except KeyboardInterrupt:
            _stop(client, str(tap["tap"]))
    text = f"{copies} {'copy' if copies == 1 else 'copies'} of {topic!r} at router {tap['router']}, {lost} lost: {over}"
    click.echo(plain(text), err=True)
    return ExitCode.INTERRUPTED if over == "it was interrupted" else None


def _ask(client: Client, asked: Mapping[str, Any], timeout: float) -> dict[str, Any]:
    try:
        answer: dict[str, Any] = json.loads(client.ask_node(_TAP_KIND, json.dumps(asked).encode(), timeout))
    except CallError as error:
        if "has no node" not in str(error):
            raise
        text = 'this router has no node of type "tap": add [[node]] with type = "tap" to its configuration'
        raise RpcError(text) from None
    return answer


def _read(client: Client, tap: str, timeout: float) -> Iterator[dict[str, Any]]:
    while True:
        answer = _ask(client, {"do": "read", "tap": tap, "wait": _WAIT}, timeout + _WAIT)
        yield answer
        if answer["over"]:
            return


def _stop(client: Client, tap: str) -> None:
    try:
        _ask(client, {"do": "stop", "tap": tap}, 1.0)
    except RpcError:
        pass  # it ends with the link of this process


def _print(state: State, copies: Sequence[Mapping[str, Any]]) -> None:
    for copy in copies:
        if state.json:
            click.echo(json.dumps(copy))
            continue
        time = datetime.fromtimestamp(copy["at_ms"] / 1000).strftime("%H:%M:%S.%f")[:-3]
        shown = [f"{name}={copy[name]}" for name in _FIELDS if copy.get(name) not in (None, "", 0) and name != "what"]
        if "payload" in copy:
            withheld = copy.get("withheld")
            shown.append(f"payload=({withheld})" if withheld else f"payload={json.dumps(copy['payload'])}")
        click.echo(plain(" ".join([time, f"{copy.get('what', ''):6}", *shown])))
