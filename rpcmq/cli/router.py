"""``rpcmq router``: the daemon. Imports nothing that decodes payloads."""

from __future__ import annotations

import os

import click

from rpcmq.config import FieldInfo, RouterConfig, describe_fields, load_router_config
from rpcmq.config.values import URLS

__all__ = ["router_command"]


def _option(info: FieldInfo) -> click.Option:
    default = info.default if info.default not in ("", ()) else "''" if info.default == "" else "none"
    notes = f"[{'live; ' if info.live else ''}default: {default}]"
    again = info.kind is URLS
    return click.Option(
        [str(info.flag), info.key.replace(".", "__")],
        # Alone, without a value, it says yes.
        is_flag=False,
        flag_value="true" if info.kind.name == "flag" else None,
        multiple=again,
        metavar="URL" if again else info.kind.name.upper().replace(" ", "_"),
        help=f"{info.help[0].upper()}{info.help[1:]}{'; may be given again' if again else ''}.  {notes}",
    )


def _value(given: str | tuple[str, ...] | None) -> str | None:
    """Return the text of a flag, or of one that may be given again; None: it was not given."""
    return given if isinstance(given, str) else ",".join(given or ()) or None


def _run(config: str | None, **flags: str | tuple[str, ...] | None) -> int:
    from rpcmq.server.daemon import Daemon

    keys = {name.replace("__", "."): _value(value) for name, value in flags.items()}

    def load() -> RouterConfig:
        return load_router_config(config, os.environ, keys)

    return Daemon(load).run()


def _command() -> click.Command:
    config = click.Option(["--config"], metavar="FILE", help="TOML file with settings.")
    help = """Run the router daemon.

    Flags go before the environment (RPCMQ_LINK_LOST_SECONDS, RPCMQ_ROUTER_LISTEN), the environment
    before the file. SIGTERM and SIGINT drain and exit 0; the second one exits at once. SIGHUP reads
    the configuration again and applies what is marked live."""
    options: list[click.Parameter] = [config, *(_option(info) for info in describe_fields() if info.flag)]
    return click.Command("router", params=options, callback=_run, help=help, short_help="Run the router daemon.")


router_command = _command()
