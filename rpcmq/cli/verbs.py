"""``rpcmq call``, ``cast`` and ``fanout``."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import wraps
from typing import Any, BinaryIO, NamedTuple

import click

from rpcmq.cli.options import State, connects, json_option, make_client, positive
from rpcmq.cli.text import counted
from rpcmq.cli.values import json_object, parse_value
from rpcmq.wire.hedge import MOST_CONSUMERS

__all__ = ["call_command", "cast_command", "fanout_command"]

#: Most bytes of the standard input that are sent as one item.
_CHUNK_BYTES = 256 << 10


def _arguments(pairs: Sequence[str], given: dict[str, Any] | None) -> dict[str, Any]:
    arguments = dict(given or {})
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals or not name:
            raise click.UsageError(f"{pair!r}: expected name=value")
        if name in arguments:
            raise click.UsageError(f"argument {name!r} is given twice")
        arguments[name] = parse_value(text)
    return arguments


def _delay(text: str) -> float | str:
    """The value of ``--hedge-after``: seconds, or the name of a percentile."""
    try:
        return float(text)
    except ValueError:
        return text


class _Request(NamedTuple):
    """A request as the three verbs send it, and its topic."""

    context: dict[str, Any] | None
    topic: str
    message: dict[str, Any]
    timeout: float


_confirm_option = click.option(
    "--confirm/--no-confirm", default=True, show_default=True, help="Wait until the router has it."
)


def _request(command: Callable[..., None]) -> Callable[..., None]:
    """Give ``command`` the arguments and options that all three have; it is called with the state and a request."""

    @wraps(command)
    def run(
        state: State,
        topic: str,
        method: str,
        pairs: tuple[str, ...],
        given: dict[str, Any] | None,
        context: dict[str, Any] | None,
        timeout: float,
        **options: Any,
    ) -> None:
        message = {"method": method, "args": _arguments(pairs, given)}
        command(state, _Request(context, topic, message, timeout), **options)

    decorated: Callable[..., None] = run
    for decorate in (
        click.argument("pairs", nargs=-1, metavar="[NAME=VALUE]..."),
        click.argument("method"),
        click.argument("topic"),
        click.option("--args", "given", metavar="JSON", callback=json_object, help="Arguments as one JSON object."),
        click.option("--ctx", "context", metavar="JSON", callback=json_object, help="Request context."),
        click.option("--timeout", type=positive, default=60.0, show_default=True, help="Seconds."),
        json_option,
        connects,
        click.pass_obj,
    ):
        decorated = decorate(decorated)
    return decorated


@click.command("call")
@click.option("--multi", is_flag=True, help="Print each item that the method yields, as it comes.")
@click.option(
    "--mandatory", is_flag=True, help="Fail at once if nobody consumes the topic; 2.5 s after a start at the latest."
)
@click.option("--idempotent", is_flag=True, help="It may be run twice: where its server is lost, another one runs it.")
@click.option(
    "--first-of",
    type=click.IntRange(1, MOST_CONSUMERS),
    metavar="N",
    help="Have N servers run it at once; the first answer counts. Needs --idempotent.",
)
@click.option(
    "--hedge-after",
    type=_delay,
    metavar="SECONDS|p95",
    help="Have a second server run it, too, if the first takes so long, or longer than usual. Needs --idempotent.",
)
@click.option(
    "--stream",
    multiple=True,
    metavar="NAME=@FILE",
    help="Send the bytes of a file as the argument NAME while the method reads them; of the standard input: NAME=@-.",
)
@_request
def call_command(
    state: State,
    request: _Request,
    multi: bool,
    mandatory: bool,
    idempotent: bool,
    first_of: int | None,
    hedge_after: float | str | None,
    stream: tuple[str, ...],
) -> None:
    """Call METHOD on one consumer of TOPIC and print what it returns, as JSON.

    A VALUE is JSON where it can be read as that, otherwise text: count=3, name=web, tags='["a"]'.
    What JSON has no form for is printed as {"$": "datetime", "v": "2026-01-31T12:00:00"} and the like.
    """
    from rpcmq.cli.output import print_result

    is_hedged = first_of is not None or hedge_after is not None
    if multi and (idempotent or is_hedged):
        raise click.UsageError("--multi takes the items of one server: leave out --idempotent and what needs that")
    if is_hedged and not idempotent:
        raise click.UsageError(
            "--first-of and --hedge-after have several servers run the method: add --idempotent if that does no harm"
        )
    with ExitStack() as stack:
        if stream:
            arguments = request.message["args"]
            name, path = _stream(stream, arguments)
            arguments[name] = _standard_input() if path == "-" else stack.enter_context(_opened(path))
        client = stack.enter_context(make_client(state, request.timeout))
        if not multi:
            result = client.call(
                *request, mandatory=mandatory, idempotent=idempotent, first_of=first_of, hedge_after=hedge_after
            )
            print_result(result, state.json)
            return
        for item in client.multicall(*request, mandatory=mandatory):
            print_result(item, compact=True)


def _stream(streams: Sequence[str], arguments: Mapping[str, Any]) -> tuple[str, str]:
    """The name of the argument that is a stream, and the path of the file that it comes from."""
    if len(streams) > 1:
        raise click.UsageError(f"a call takes one stream, and --stream is given {len(streams)} times")
    (given,) = streams
    name, _, path = given.partition("=@")
    if not name or not path:
        raise click.UsageError(f"--stream {given!r}: expected name=@file, or name=@- for the standard input")
    if name in arguments:
        raise click.UsageError(f"argument {name!r} is given twice")
    return name, path


def _opened(path: str) -> BinaryIO:
    try:
        return open(path, "rb")
    except OSError as error:
        raise click.UsageError(f"--stream: {path}: {error.strerror}") from None


def _standard_input() -> Iterator[bytes]:
    """The bytes of the standard input, as they come; the connection goes on while they are waited for."""
    from gevent import get_hub

    read, file = get_hub().threadpool.apply, sys.stdin.fileno()
    while chunk := read(os.read, (file, _CHUNK_BYTES)):
        yield chunk


@click.command("cast")
@_confirm_option
@click.option("--mandatory", is_flag=True, help="Fail if nobody consumes the topic.")
@click.option("--ttl", type=positive, help="Seconds after which it is not worth delivering any more.")
@_request
def cast_command(state: State, request: _Request, confirm: bool, mandatory: bool, ttl: float | None) -> None:
    """Have METHOD run by one consumer of TOPIC, now or when there is one; no answer.

    A VALUE is JSON where it can be read as that, otherwise text.
    """
    if mandatory and not confirm:
        raise click.UsageError("--mandatory needs --confirm: without it nobody waits for the refusal")
    context, topic, message, timeout = request
    with make_client(state, timeout) as client:
        client.cast(context, topic, message, confirm=confirm, mandatory=mandatory, ttl=ttl, timeout=timeout)
    if state.json:
        print(json.dumps({"confirmed": confirm}))


@click.command("fanout")
@_confirm_option
@_request
def fanout_command(state: State, request: _Request, confirm: bool) -> None:
    """Have METHOD run by all consumers of TOPIC; no answer. Prints how many there are.

    A VALUE is JSON where it can be read as that, otherwise text.
    """
    context, topic, message, timeout = request
    with make_client(state, timeout) as client:
        consumers = client.fanout_cast(context, topic, message, confirm=confirm, timeout=timeout)
    if state.json:
        print(json.dumps({"confirmed": confirm, "consumers": consumers}))
    elif consumers is not None:
        print(f"sent to {counted(consumers, 'consumer')}")
