"""Findings of ``rpcmq doctor`` about plugged-in nodes: whether they load, and whether one is out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rpcmq.config import RouterConfig
from rpcmq.errors import CallError, ConfigError
from rpcmq.nodes.loading import plans_for

if TYPE_CHECKING:
    from rpcmq.client import Client

__all__ = ["node_findings", "running_node_findings"]

_OK, _WARN, _FAIL = "ok", "warning", "fail"
Row = tuple[str, str, str, str]


def node_findings(config: RouterConfig) -> Iterator[Row]:
    """Level, subject, observation and advice about the tables ``[[node]]``, by the plug-ins installed here."""
    try:
        plans = plans_for(config.node)
    except ConfigError as error:
        for line in str(error).splitlines():
            yield _FAIL, "nodes", line, "correct it, or install the plug-in: the router does not start like this"
        return
    for plan in plans:
        bounds = f"max_bytes = {plan.max_bytes}, max_seconds = {plan.max_seconds:g}"
        yield _OK, "nodes", f"{plan.name}: type {plan.type_name} of {plan.origin}, {bounds}", ""


def running_node_findings(client: Client, timeout: float) -> Iterator[Row]:
    """The same about the nodes of the running router."""
    try:
        rows = client.query("nodes", timeout)["nodes"]
    except CallError:
        return  # it has none, or this key may not ask
    for row in rows:
        if row["state"] == "out":
            todo = f"see the router's log (node out); rpcmq node restart {row['name']} has it start over"
            yield _WARN, "nodes", f"{row['name']} is out: {row['why']}", todo
