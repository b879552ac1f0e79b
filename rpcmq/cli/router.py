"""``rpcmq router``: the daemon. Imports nothing that decodes payloads."""

from __future__ import annotations

import os

import click

from rpcmq.config import FieldInfo, RouterConfig, describe_fields, load_router_config

__all__ = ["router_command"]


def _option(info: FieldInfo) -> click.Option:
    default = info.default if info.default != "" else "''"
    notes = f"[{'live; ' if info.live else ''}default: {default}]"
    return click.Option(
        [str(info.flag), info.key.replace(".", "__")],
        # Alone, without a value, it says yes.
        is_flag=False,
        flag_value="true" if info.kind.name == "flag" else None,
        metavar=info.kind.name.upper().replace(" ", "_"),
        help=f"{info.help[0].upper()}{info.help[1:]}.  {notes}",
    )


def _run(config: str | None, **flags: str | None) -> int:
    from rpcmq.server.daemon import Daemon

    keys = {name.replace("__", "."): value for name, value in flags.items()}

    def load() -> RouterConfig:
        return load_router_config(config, os.environ, keys)

    return Daemon(load).run()


def _command() -> click.Command:
    config = click.Option(["--config"], metavar="FILE", help="TOML file with settings.")
    help = """Run the router daemon.

    Flags go before the environment (RPCMQ_LINK_LOST_SECONDS, RPCMQ_ROUTER_LISTEN), the environment
    before the file. SIGTERM and SIGINT drain and exit 0; the second one exits at once. SIGHUP reads
    the configuration again and applies what is marked live."""
    options: list[click.Parameter] = [config, *map(_option, describe_fields())]
    return click.Command("router", params=options, callback=_run, help=help, short_help="Run the router daemon.")


router_command = _command()
