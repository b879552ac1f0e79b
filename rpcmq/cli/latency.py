"""``rpcmq latency``: what is asked of a dispatch log. A command's module is imported when that command is asked for."""

from __future__ import annotations

import importlib

import click

__all__ = ["COMMANDS", "latency_command"]

#: Command -> (what its module has after ``latency_``, what it does).
COMMANDS = {
    "report": ("report", "Write the latency report: page, pictures, and cells that can be merged."),
    "why": ("why", "Say what to look at first: what is slow, queued, failing, and where."),
    "compare": ("compare", "Compare two ranges of time, routers or versions, method by method."),
    "trace": ("trace", "Show all records of a trace or of a call as a waterfall."),
    "policy": ("policy", "Write how long each method usually takes, for routers."),
    "stream": ("stream", "Make cells of a log while it is written."),
    "package": ("package", "Write what spark-submit needs to run these commands on a cluster."),
}


class _Commands(click.Group):
    """Knows its commands without importing them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        module = importlib.import_module(f"rpcmq.cli.latency_{COMMANDS[name][0]}")
        command: click.Command = getattr(module, f"{name}_command", None) or getattr(module, name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, help) for name, (_, help) in COMMANDS.items()])


@click.group("latency", cls=_Commands)
def latency_command() -> None:
    """Ask a router's dispatch log how long messages took, and why.

    The log is made by `rpcmq router --dispatch-log` and `rpcmq ship`. These commands need
    `pip install 'rpcmq[latency]'`, and start Spark, which takes some seconds. docs/latency.md says what the figures
    mean.
    """
