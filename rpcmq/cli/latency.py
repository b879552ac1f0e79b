"""``rpcmq latency``: analyses of a dispatch log. A command's module is imported on use."""

from __future__ import annotations

import click

from rpcmq.cli.lazy import LazyGroup

__all__ = ["COMMANDS", "latency_command"]

#: Command -> (module that has it, what it does).
COMMANDS = {
    "report": ("latency_report", "Write the latency report: page, pictures, and cells that can be merged."),
    "why": ("latency_why", "Say what to look at first: what is slow, queued, failing, and where."),
    "compare": ("latency_compare", "Compare two ranges of time, routers or versions, method by method."),
    "trace": ("latency_trace", "Show all records of a trace or of a call as a waterfall."),
    "policy": ("latency_policy", "Write the usual latencies of each method, for programs of your own."),
    "stream": ("latency_stream", "Make cells of a log while it is written."),
    "package": ("latency_package", "Write what spark-submit needs to run these commands on a cluster."),
}


@click.group("latency", cls=LazyGroup, table=COMMANDS)
def latency_command() -> None:
    """Ask a router's dispatch log how long messages took, and why.

    The log is made by `rpcmq router --dispatch-log` and `rpcmq ship`. These commands need
    `pip install 'rpcmq[report]'`; `stream`, and logs too large for this machine, need Spark:
    `pip install 'rpcmq[latency]'`. docs/latency.md says what the figures mean.
    """
