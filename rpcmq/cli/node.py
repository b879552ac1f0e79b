"""``rpcmq node``: the nodes that are plugged into a router, how they are, and starting one over."""

from __future__ import annotations

from typing import Any

import click

from rpcmq.cli.exit_codes import ExitCode
from rpcmq.cli.options import State, connects, json_option, make_client, positive
from rpcmq.cli.output import Output, add_row, print_folded, print_json, table
from rpcmq.cli.text import plain
from rpcmq.errors import CallError

__all__ = ["node_command"]

_timeout_option = click.option("--timeout", type=positive, default=5.0, show_default=True, help="Seconds.")
#: Columns without which the table is shown where it does not fit, in that order.
_SPARE = ("from", "restarts", "steps", "asks")


@click.group("node")
def node_command() -> None:
    """Show the node types that are plugged into a router ([[node]] in its configuration), and start one over.

    docs/guides/node-plug-ins.md says what a node may do, and how to write one.
    """


@node_command.command("ls")
@click.option("--installed", is_flag=True, help="List the node types that are installed here, and ask no router.")
@_timeout_option
@json_option
@connects
@click.pass_obj
def ls_command(state: State, installed: bool, timeout: float) -> int | None:
    """List the nodes of the router, and why one is out or keeps nothing in its file.

    The exit code is 1 if one is out. With keys this needs the right "admin" on "nodes".
    """
    if installed:
        _print_installed(state)
        return None
    with make_client(state, timeout) as client:
        try:
            rows: list[dict[str, Any]] = client.query("nodes", timeout)["nodes"]
        except CallError as error:
            if "is unknown" not in str(error):
                raise
            rows = []
    if state.json:
        print_json({"nodes": rows})
    elif rows:
        print_folded(Output(), _table(rows), *_SPARE)
    else:
        click.echo("no node is plugged into this router: its configuration has no [[node]]")
    return ExitCode.FAILED if any(row["state"] == "out" for row in rows) else None


def _table(rows: list[dict[str, Any]]) -> Any:
    columns = ("node", "type", "from", "state", ">bytes", ">of", ">seconds", ">steps", ">asks", ">restarts", "why")
    made = table("Nodes", *columns)
    for row in rows:
        cells = [row[name] for name in ("name", "type", "from", "state", "size_bytes", "max_bytes")]
        counts = [f"{row['seconds']:.3f}", row["steps"], row["open_asks"], row["restarts"]]
        why = row["why"] or row.get("file_problem", "")
        add_row(made, [*cells, *counts, why], "red" if row["state"] == "out" else "yellow" if why else "")
    return made


def _print_installed(state: State) -> None:
    from rpcmq.nodes.loading import installed_types, origin_of

    found = [
        {"type": point.name, "from": origin_of(point), "class": point.value}
        for points in installed_types().values()
        for point in points
    ]
    if state.json:
        print_json({"types": found})
        return
    made = table("Node types", "type", "from", "class")
    for row in found:
        add_row(made, list(row.values()))
    print_folded(Output(), made)


@node_command.command("restart")
@click.argument("name")
@_timeout_option
@json_option
@connects
@click.pass_obj
def restart_command(state: State, name: str, timeout: float) -> int | None:
    """Have the node NAME start over, whether it is out or not. What it holds is lost; messages of others are not.

    The exit code is 1 if it is out again. With keys this needs the right "admin" on "control.node.restart".
    """
    with make_client(state, timeout) as client:
        out = client.restart_node(name, timeout)
    if state.json:
        print_json({"node": name, "out": out})
    else:
        click.echo(plain(f"node {name!r} is out again: {out}" if out else f"node {name!r} has started over"))
    return ExitCode.FAILED if out else None
