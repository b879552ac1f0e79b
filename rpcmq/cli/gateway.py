"""``rpcmq gateway``: browsers and other languages, over WebSockets."""

from __future__ import annotations

import os
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from time import time
from typing import Any

import click

from rpcmq.cli.moments import parse_moment
from rpcmq.cli.options import State, connects, json_option, log_options, make_client, positive
from rpcmq.cli.output import Output, add_row, print_folded, print_json, table
from rpcmq.cli.text import plain
from rpcmq.errors import NotInstalled, UsageError

__all__ = ["gateway_command"]

_TOKENS = "gateway-tokens.toml"
_tokens_option = click.option(
    "--tokens",
    "tokens",
    metavar="FILE",
    default=_TOKENS,
    show_default=True,
    help="The file of tokens.",
)


class _Statistics:
    """Counts of a gateway, as a service."""

    def __init__(self, gateway: Any) -> None:
        self._gateway = gateway

    def statistics(self, ctx: Any) -> dict[str, Any]:
        """Counts since the start, and what is open now."""
        found: dict[str, Any] = self._gateway.statistics()
        return found


def _check_installed() -> None:
    try:
        import wsproto  # noqa: F401
    except ImportError:
        raise NotInstalled("rpcmq gateway needs the package wsproto: pip install 'rpcmq[gateway]'") from None


@click.group("gateway", invoke_without_command=True)
@click.option("--config", "path", metavar="FILE", help="TOML file with settings.")
@click.option("--bind", metavar="HOST:PORT", help="Where browsers connect.  [listen.bind]")
@click.option("--tokens", metavar="FILE", help="File of tokens.  [access.tokens]")
@click.option(
    "--origin", "origins", metavar="ORIGIN", multiple=True,
    help="Pages of this origin may connect, too, as https://app.example.org; may be given again.  [access.origins]",
)  # fmt: skip
@click.option("--pages", metavar="DIR", help="Folder whose files are served.  [pages.folder]")
@click.option("--certificate", metavar="FILE", help="TLS certificate with its chain.  [listen.certificate]")
@click.option("--key", metavar="FILE", help="Its secret key.  [listen.key]")
@click.option("--metrics", metavar="HOST:PORT", help="Where /metrics and /healthz are served.  [listen.metrics]")
@click.option(
    "--serve", "service", default="", metavar="TOPIC", help="Serve the method 'statistics' there.  [default: nowhere]"
)
@click.option(
    "--timeout", type=positive, default=30.0, show_default=True, help="Seconds to wait for the router at start."
)
@log_options
@connects
@click.pass_context
def gateway_command(
    ctx: click.Context,
    path: str | None,
    bind: str | None,
    tokens: str | None,
    origins: tuple[str, ...],
    pages: str | None,
    certificate: str | None,
    key: str | None,
    metrics: str | None,
    service: str,
    timeout: float,
    log_format: str,
    log_level: str,
) -> None:
    """Let browsers and other languages call, cast, publish and subscribe: JSON over WebSocket.

    Each has a token, whose rights are verbs and topic patterns like those of a key:

    \b
    rpcmq gateway token add web --allow 'call,subscribe:compute.#'
    rpcmq gateway --pages ./site

    The client for browsers and Node is served as /rpcmq.js. SIGTERM and SIGINT stop the gateway when
    the calls that run have ended. Tokens and certificate are read again when their files change.
    """
    options = {
        "listen.bind": bind, "access.tokens": tokens, "access.origins": origins or None, "pages.folder": pages,
        "listen.certificate": certificate, "listen.key": key, "listen.metrics": metrics,
    }  # fmt: skip
    if ctx.invoked_subcommand is not None:
        _give_to_tokens(ctx, path, options)
        return
    _check_installed()
    _run(ctx.obj, path, options, service, timeout, (log_format, log_level))


def _give_to_tokens(ctx: click.Context, path: str | None, options: dict[str, Any]) -> None:
    """Have the commands after ``token`` take the file of tokens that was given before it.

    Raises:
        UsageError: an option that only a gateway has was given.
    """
    given = [setting for setting, value in options.items() if value is not None and setting != "access.tokens"]
    if given:
        raise UsageError(
            f"{given[0]} is a setting of a gateway that runs: `{ctx.invoked_subcommand}` has no use for it"
        )
    tokens = options["access.tokens"]
    if path is not None and tokens is None:
        from rpcmq.gateway import load_settings

        tokens = load_settings(path).access.tokens
    if tokens is not None:
        ctx.default_map = {"token": {name: {"tokens": tokens} for name in token_command.commands}}


def _run(
    state: State, path: str | None, options: dict[str, Any], service: str, timeout: float, logs: tuple[str, str]
) -> None:
    import logging

    from gevent.event import Event

    from rpcmq.cli.stopping import ended_by_signals
    from rpcmq.client import Service
    from rpcmq.gateway import Gateway, load_settings
    from rpcmq.payload import ExceptionRegistry
    from rpcmq.server.log import log_event, start_logging

    settings = load_settings(path, options)
    start_logging(*logs)
    log = logging.getLogger("rpcmq.gateway")
    # Services answer in JSON whom asks in JSON, and no exception becomes an object here.
    with make_client(state, timeout, payload_format="json", exceptions=ExceptionRegistry(defaults=False)) as client:
        gateway = Gateway(client, settings, client.config.exchange)
        client.connect(timeout)
        counts = Service(service, _Statistics(gateway), client=client) if service else None
        if counts:
            counts.start(timeout)
        gateway.start()
        text = f"takes browsers at {gateway.url}, WebSockets at {gateway.websocket_url}"
        fields = {"url": gateway.url, "websocket": gateway.websocket_url, "metrics": gateway.metrics_url}
        # A signal ends the wait, and nothing else.
        with suppress(KeyboardInterrupt, SystemExit), ended_by_signals():
            log_event(log, logging.INFO, "listening", f"{text}; router {', '.join(client.config.router)}", **fields)
            Event().wait()
        cut = gateway.stop()
        if counts:
            counts.stop(timeout)
        text = f"stopped; {cut} request(s) cut off" if cut else "stopped; nothing was cut off"
        log_event(log, logging.WARNING if cut else logging.INFO, "stopped", text, cut=cut)


@gateway_command.command("client")
@click.argument("folder", metavar="DIR")
def client_command(folder: str) -> None:
    """Write the client for browsers and Node into DIR: rpcmq.js, rpcmq-node.js.

    Browsers can have it from a running gateway, too, as /rpcmq.js.
    """
    _check_installed()
    from rpcmq.gateway.pages import CLIENT_FILES, client_file

    try:
        os.makedirs(folder, exist_ok=True)
        for name in CLIENT_FILES:
            (Path(folder) / name).write_bytes(client_file(name))
    except OSError as error:
        raise UsageError(f"{folder}: cannot be written: {error.strerror}") from None
    print(*(Path(folder) / name for name in CLIENT_FILES), sep="\n")


@gateway_command.group("token")
def token_command() -> None:
    """Add, list and revoke the tokens by which browsers may come in."""


@token_command.command("add")
@click.argument("name")
@_tokens_option
@click.option("--allow", metavar="VERBS:TOPICS", multiple=True, required=True, help="A right; may be given again.")
@click.option("--expires", metavar="WHEN", help="Days as 90d, or a date as 2027-01-31.")
@click.option("--origin", "origins", metavar="ORIGIN", multiple=True, help="Only pages of this origin may use it.")
@click.option("--rate", type=click.FloatRange(min=0), default=0.0, help="Messages a second of all its connections.")
@json_option
@click.pass_obj
def add_command(
    state: State,
    name: str,
    tokens: str,
    allow: tuple[str, ...],
    expires: str | None,
    origins: tuple[str, ...],
    rate: float,
) -> None:
    """Make the token NAME, and print it: it cannot be shown again, for the file has only its hash.

    \b
    rpcmq gateway token add web --allow 'call,cast:compute.#' --expires 90d
    """
    _check_installed()
    from rpcmq.adapters.rights import parse_right
    from rpcmq.adapters.settings import is_name
    from rpcmq.gateway.tokens import VERBS, Token, edited_tokens, hash_of, new_secret

    if not is_name(name):
        raise UsageError(f"{name!r} is no name of a token: expected up to 64 letters, digits, '.', '_' and '-'")
    rights = []
    for text in allow:
        try:
            rights.append(parse_right(text, VERBS, VERBS))
        except ValueError as error:
            raise UsageError(f"--allow {text!r}: {error}") from None
    until = parse_moment(expires)
    secret = new_secret()
    token = Token(
        name, hash_of(secret), tuple(rights), until.timestamp() if until is not None else None, origins or None,
        messages_per_second=rate,
    )  # fmt: skip
    with edited_tokens(tokens) as known:
        if any(other.name == name for other in known):
            raise UsageError(f"token {name!r} exists already; revoke it first, or choose another name")
        known.append(token)
    if state.json:
        print_json({"name": name, "token": secret, "file": tokens})
    else:
        print(secret)


@token_command.command("ls")
@_tokens_option
@json_option
@click.pass_obj
def list_command(state: State, tokens: str) -> None:
    """List the tokens, their rights, and when they expire."""
    _check_installed()
    from rpcmq.adapters.rights import shown_right
    from rpcmq.gateway.tokens import VERBS, read_tokens

    rows: list[dict[str, Any]] = [
        {
            "name": token.name,
            "rights": [shown_right(right, VERBS, VERBS) for right in token.rights],
            "expires": _shown_time(token.expires),
            "is_valid": token.is_valid(time()),
            "origins": list(token.origins) if token.origins is not None else None,
            "hash": token.sha256[:8],
        }
        for token in read_tokens(tokens)
    ]
    if state.json:
        print_json(rows)
        return
    made = table("Tokens", "name", "rights", "expires", "origins", "hash")
    for row in rows:
        expires = row["expires"] + ("" if row["is_valid"] else " (expired)")
        origins = "all" if row["origins"] is None else ", ".join(row["origins"])
        cells = (row["name"], "; ".join(row["rights"]) or "none", expires, origins, f"{row['hash']}...")
        add_row(made, cells, "" if row["is_valid"] else "red")
    print_folded(Output(), made)


@token_command.command("revoke")
@click.argument("name")
@_tokens_option
def revoke_command(name: str, tokens: str) -> None:
    """Revoke the token NAME: a running gateway ends its connections within a second or two."""
    _check_installed()
    from rpcmq.gateway.tokens import edited_tokens, read_tokens

    read_tokens(tokens)
    with edited_tokens(tokens) as known:
        left = [token for token in known if token.name != name]
        if len(left) == len(known):
            raise UsageError(f"there is no token {plain(name)!r} in {tokens}")
        known[:] = left
    print(f"revoked {name}")


def _shown_time(moment: float | None) -> str:
    return "never" if moment is None else datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%d %H:%M UTC")
