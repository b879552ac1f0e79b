"""Findings of ``rpcmq doctor`` about plugged-in nodes: whether they load, their files, and whether one is out."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

from rpcmq.cli.text import counted
from rpcmq.config import RouterConfig
from rpcmq.errors import CallError, ConfigError
from rpcmq.nodes.keeper import Keeper
from rpcmq.nodes.loading import plans_for
from rpcmq.nodes.plan import Plan
from rpcmq.server.node_file_format import DamagedNodeFile, RefusedNodeFile, load, lock_of, next_of

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
        if plan.file:
            yield from _file_findings(plan)


def _file_findings(plan: Plan) -> Iterator[Row]:
    """Check the file of a node without writing anything: a router may have it meanwhile."""
    name, path, keeper = plan.name, plan.file, Keeper(plan.max_bytes)
    try:
        load(path, name, plan.max_bytes, keeper)
    except RefusedNodeFile as error:
        todo = f"until this is mended node {name} keeps nothing over a restart; run this as the router's user"
        yield _FAIL, "node file", f"{name}: {error}", todo
        return
    except DamagedNodeFile as error:
        todo = f"bring back a copy, or start the router: it puts the file aside as {path}.damaged, and begins a new one"
        yield _FAIL, "node file", f"{name}: {path}: is damaged ({error})", todo
        return
    if problem := _write_problem(path):
        todo = f"let the router's user write there, and run this as that user: until then {name} keeps nothing"
        yield _FAIL, "node file", f"{name}: {problem}", todo
    elif os.path.exists(path):
        yield _OK, "node file", f"{name}: {path}: {counted(len(keeper.encoded), 'row')}", ""
    else:
        yield _OK, "node file", f"{name}: {path}: not there yet, and can be written", ""


def _write_problem(path: str) -> str:
    """Say why the file cannot be written here; empty: nothing is known against it."""
    why, folder = "", os.path.dirname(path) or "."
    if not os.path.isdir(folder):
        why = f"there is no folder {folder}"
    elif not os.access(folder, os.W_OK | os.X_OK):
        why = f"nothing may be written in {folder}"
    for beside in (lock_of(path), next_of(path)):
        if os.path.islink(beside) or (os.path.exists(beside) and not os.path.isfile(beside)):
            why = why or f"{beside} is no regular file"
        elif os.path.exists(beside) and not os.access(beside, os.W_OK):
            why = why or f"{beside} may not be written"
    return f"{path}: cannot be written: {why}" if why else ""


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
        if row.get("file_problem"):  # routers of earlier versions have none
            todo = "what it keeps is lost with the router until this is mended; see the router's log (node file)"
            yield _WARN, "node file", f"{row['name']}: {row['file_problem']}", todo
