"""``rpcmq mesh``: the routers of a mesh and the links between them; joining and leaving it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from itertools import pairwise
from time import monotonic
from typing import TYPE_CHECKING, Any

import click
import gevent

from rpcmq.cli.exit_codes import ExitCode
from rpcmq.cli.mesh_links import LINKED, LINKS_SPARE, links_table
from rpcmq.cli.mesh_routers import Answers, ask_all, client_of, mesh_view, router_of, routers_in
from rpcmq.cli.options import State, connects, json_option, make_client, positive
from rpcmq.cli.output import Output, add_row, print_folded, print_json, table
from rpcmq.cli.text import counted, plain
from rpcmq.errors import RpcError, UsageError

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["mesh_command"]

#: Seconds between two looks at a link that is being made.
_LOOK = 0.1
_timeout_option = click.option("--timeout", type=positive, default=5.0, show_default=True, help="Seconds.")


@click.group("mesh", invoke_without_command=True)
@_timeout_option
@json_option
@connects
@click.pass_context
def mesh_command(context: click.Context, timeout: float) -> int | None:
    """Show the routers of a mesh, and the links between them.

    Each router that the first one knows is asked. The exit code is 1 if one does not answer, or if two of them
    are not linked.
    """
    if context.invoked_subcommand is not None:
        return None
    state: State = context.obj
    answers = ask_all(state, "mesh", timeout)
    missing = list(_missing(answers))
    if state.json:
        print_json(
            {
                "mesh": answers.view["mesh"],
                "routers": list(answers.by_router.values()),
                "silent": answers.silent_rows(),
                "not_linked": missing,
            }
        )
    else:
        _show(answers, missing)
    return ExitCode.FAILED if answers.silent or missing else None


def _show(answers: Answers, missing: list[dict[str, str]]) -> None:
    output = Output()
    print_folded(output, _routers(answers))
    print_folded(output, links_table(answers.by_router), *LINKS_SPARE)
    for row in missing:
        output.print(plain(f"not linked: {row['router']} and {row['other']}: {row['text']}"), style="red", markup=False)
    for name, text in answers.silent.items():
        output.print(plain(f"router {name} does not answer: {text}"), style="red", markup=False)


def _routers(answers: Answers) -> Table:
    made = table(f"Mesh {answers.view['mesh']}", "router", ">id", "state", ">links", "urls")
    own = answers.view
    rows = [(own["router"], own["router_id"], own["urls"]), *((r["name"], r["id"], r["urls"]) for r in routers_in(own))]
    left = {row["name"] for row in routers_in(own) if row["state"] == "left"}
    for name, id, urls in sorted(rows):
        view = answers.by_router.get(name)
        linked = "" if view is None else sum(row["state"] == LINKED for row in view["routers"])
        state = "left" if name in left else "no answer" if view is None else view["state"]
        add_row(made, (name, id, state, linked, ", ".join(urls)), "" if state == "member" else "yellow")
    return made


def _missing(answers: Answers) -> Iterator[dict[str, str]]:
    """The pairs of routers without a link, each once, with the reason that one of them knows."""
    found: dict[frozenset[str], dict[str, str]] = {}
    for name, view in answers.by_router.items():
        for row in view["routers"]:
            if row["state"] in (LINKED, "left"):
                continue
            # A peer that was never linked to is known by its url only.
            other = row["name"] or ", ".join(row["urls"])
            pair = frozenset((name, other))
            if pair not in found or not found[pair]["text"]:
                text = row["why"] or row["state"]
                found[pair] = {"router": name, "other": other, "text": text.removeprefix(f"{other}: ")}
    yield from found.values()


# --- one path -----------------------------------------------------------------------------------


@mesh_command.command("path")
@click.argument("one")
@click.argument("other")
@_timeout_option
@json_option
@connects
@click.pass_obj
def path_command(state: State, one: str, other: str, timeout: float) -> int | None:
    """Tell how messages go from router ONE to router OTHER: over which routers, or why not at all.

    Routers are named, or given by their ids. Each hop has the round trip that its first router has measured. The exit
    code is 1 if there is no way.
    """
    with make_client(state, timeout) as client:
        view = mesh_view(client, timeout)
    ends = [router_of(view, name) for name in (one, other)]
    for name, row in zip((one, other), ends, strict=True):
        if row is None:
            asked = view["router"]
            raise UsageError(f"router {name!r} is not known to router {asked!r}; `rpcmq mesh` lists all")
    begin, end = ends
    assert begin is not None and end is not None
    if begin["id"] == end["id"]:
        raise UsageError(f"{one!r} and {other!r} are the same router")
    if begin["id"] != view["router_id"]:
        view = _view_of(state, begin, timeout)
    link = router_of(view, str(end["id"]))
    if link is None or link["state"] != LINKED:
        problem = "it does not know that router" if link is None else link["why"] or link["state"]
        if state.json:
            print_json({"path": [], "hops": [], "round_trip_ms": None, "problem": problem})
        else:
            click.echo(plain(f"rpcmq: {begin['name']} -> {end['name']}: no link: {problem}"), err=True)
        return ExitCode.FAILED
    _show_path(state, link, list(_hops(state, view, link, timeout)))
    return None


def _view_of(state: State, row: dict[str, Any], timeout: float) -> dict[str, Any]:
    with client_of(state, row, timeout) as client:
        return mesh_view(client, timeout)


def _hops(state: State, view: dict[str, Any], link: dict[str, Any], timeout: float) -> Iterator[dict[str, Any]]:
    """The connections that messages of the router of ``view`` take to that of ``link``; of a silent one no round trip.

    A router of a version without relays tells of no others on the way: there are none.
    """
    for one, other in pairwise([view["router"], *link.get("via", ()), link["name"]]):
        trip = None
        with suppress(RpcError):  # its round trip is left out, not the hop
            begin = router_of(view, one)
            if begin is not None:
                seen = view if one == view["router"] else _view_of(state, begin, timeout)
                row = router_of(seen, other)
                trip = row.get("round_trip_ms") if row is not None else None
        yield {"router": one, "other": other, "round_trip_ms": trip}


def _show_path(state: State, link: dict[str, Any], hops: list[dict[str, Any]]) -> None:
    names = [hops[0]["router"], *(hop["other"] for hop in hops)]
    trip = link["round_trip_ms"]
    if state.json:
        print_json({"path": names, "hops": hops, "round_trip_ms": trip, "problem": None})
        return
    how = "direct" if len(hops) == 1 else counted(len(hops), "hop")
    click.echo(plain(f"{' -> '.join(names)}: {how}{_trip_text(trip)}"))
    for hop in hops if len(hops) > 1 else ():
        click.echo(plain(f"  {hop['router']} -> {hop['other']}{_trip_text(hop['round_trip_ms'])}"))


def _trip_text(milliseconds: float | None) -> str:
    return "" if milliseconds is None else f", round trip {milliseconds:.2f} ms"


# --- join, forget and leave ---------------------------------------------------------------------


@mesh_command.command("join")
@click.argument("url")
@click.option("--server-key", metavar="KEY", default="", help="That router's public key, if routers have keys.")
@_timeout_option
@json_option
@connects
@click.pass_obj
def join_command(state: State, url: str, server_key: str, timeout: float) -> int | None:
    """Link the router (--router) to the one at URL, and so to all of its mesh.

    It lasts until the router ends: write the URL into mesh.peers, too. The exit code is 1 if there is no link
    within the timeout; the router goes on trying, until `rpcmq mesh forget URL`. With keys this needs the right
    "admin" on "control.mesh.join".
    """
    deadline = monotonic() + timeout
    with make_client(state, timeout) as client:
        client.join_mesh(url, server_key, timeout)
        while True:
            view = mesh_view(client, max(0.1, deadline - monotonic()))
            linked = sorted(row["name"] for row in view["routers"] if row["state"] == LINKED)
            problem = next((row["text"] for row in view["problems"] if row["subject"] == url), "")
            if url in view["peers"] or monotonic() >= deadline:
                break
            gevent.sleep(_LOOK)
    is_linked = url in view["peers"]
    if state.json:
        print_json({"linked": is_linked, "routers": linked, "problem": None if is_linked else problem})
    elif is_linked:
        click.echo(plain(f"linked to {', '.join(linked)}"))
    else:
        click.echo(plain(f"rpcmq: no link within {timeout:g} s: {problem or url}"), err=True)
        click.echo(plain(f"The router goes on trying; `rpcmq mesh forget {url}` ends that."), err=True)
    return None if is_linked else ExitCode.FAILED


@mesh_command.command("forget")
@click.argument("url")
@_timeout_option
@json_option
@connects
@click.pass_obj
def forget_command(state: State, url: str, timeout: float) -> None:
    """Have the router (--router) dial URL no more: it was mistyped, or the router there is gone for good.

    URL is written as it was given to `rpcmq mesh join`, or in mesh.peers: then the router dials it again when it is
    started again. Or it is that of a router of which nothing was heard for 90 s. A link that has come of it stays,
    and routers that others tell of are dialled as ever. With keys this needs the right "admin" on
    "control.mesh.forget".
    """
    with make_client(state, timeout) as client:
        client.forget_peer(url, timeout)
    if state.json:
        print_json({"forgotten": url})
    else:
        click.echo(plain(f"{url} is dialled no more"))


@mesh_command.command("leave")
@_timeout_option
@json_option
@connects
@click.pass_obj
def leave_command(state: State, timeout: float) -> None:
    """Have the router (--router) leave its mesh: its links to other routers end, and nobody dials it any more.

    Its processes stay with it. `rpcmq mesh join` brings it back. With keys this needs the right "admin" on
    "control.mesh.leave".
    """
    with make_client(state, timeout) as client:
        told = client.leave_mesh(timeout)
    if state.json:
        print_json({"routers": told})
    else:
        click.echo(f"left the mesh: {counted(told, 'router')} told")
