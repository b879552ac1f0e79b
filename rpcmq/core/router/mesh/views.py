"""The view ``mesh``: the routers of the mesh, the links to them, and why one that is known is not linked."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rpcmq.core.router.mesh.handshake import MeshHandshake
from rpcmq.core.router.mesh.member_table import Member
from rpcmq.core.router.mesh.members import Members
from rpcmq.core.router.mesh.part import MeshContext
from rpcmq.core.router.mesh.peerings import Peering
from rpcmq.core.router.mesh.targets import Target, relay_name
from rpcmq.core.router.view_rows import View, made

__all__ = ["mesh_view"]


def mesh_view(context: MeshContext, handshake: MeshHandshake, members: Members, now: float) -> View:
    """The steps that make the view: this router, and a row for each other one; urls that lead to none have one, too."""
    own, problems = context.own, handshake.problems.rows(now)
    rows = list(_rows(context, handshake, members, {row["subject"]: row["text"] for row in problems}, now))
    yield
    routers = yield from made("routers", rows, len(rows))
    return {
        "mesh": own.mesh,
        "router": own.name,
        "router_id": own.id,
        "incarnation": own.incarnation,
        "urls": list(own.urls),
        "key": own.key,
        "state": context.targets.closed or "member",
        "process_count": context.processes,
        "peers": [url for url, each in context.targets.configured.items() if each.id in context.neighbours.by_id],
        **routers,
        "problems": problems,
    }


def _rows(
    context: MeshContext, handshake: MeshHandshake, members: Members, problems: dict[str, str], now: float
) -> Iterator[dict[str, Any]]:
    known = {member.said.id: member for member in members.table}
    linked = {peering.identity.id: peering for peering in handshake.peerings}
    targets = {target.id: target for target in context.targets if target.id and not target.is_relayed}
    for id in sorted(known.keys() | linked.keys()):
        peering, member, target = linked.get(id), known.get(id), targets.get(id)
        row = _linked(peering, now) if peering is not None else _not_linked(context, member, target, problems)
        is_relayed = peering is not None and peering.neighbour.is_relayed
        via = [members.name_of(each) for each in context.path_to(id)] if is_relayed else []
        heard = member.heard if member is not None else now
        said = member.said if member is not None else None
        yield row | {
            "neighbours": list(said.neighbours) if said is not None else [],
            "process_count": said.processes if said is not None else None,
            "relayed": is_relayed,
            "via": via,
            "told_seconds": round(now - heard, 3),
        }
    for target in context.targets:
        if not target.is_relayed and target.id not in known and target.id not in linked:
            yield {"name": "", "id": target.id, "urls": list(target.urls)} | _reason(context, target, problems)


def _linked(peering: Peering, now: float) -> dict[str, Any]:
    link, identity = peering.link, peering.identity
    return {
        "name": peering.neighbour.name,
        "id": identity.id,
        "incarnation": identity.incarnation,
        "urls": list(identity.urls),
        "key": identity.key,
        "state": "draining" if peering.neighbour.is_draining else link.state.value,
        "why": "",
        "dialed": peering.target.url if peering.target is not None and not peering.target.is_relayed else "",
        "round_trip_ms": round(peering.round_trip * 1e3, 3) if peering.answered_at else None,
        "connected_seconds": round(now - link.since, 3),
        "silent_seconds": round(now - link.heard, 3),
        "messages_in": link.received,
        "messages_out": link.sent_messages,
        "bytes_in": link.read_bytes,
        "bytes_out": link.written_bytes,
        "to_send": len(link.outbox),
        "to_acknowledge": link.unacknowledged,
        "counters": dict(link.counters),
    }


def _not_linked(
    context: MeshContext, member: Member | None, target: Target | None, problems: dict[str, str]
) -> dict[str, Any]:
    assert member is not None, "it is known or linked"
    said = member.said
    row = {"name": said.name, "id": said.id, "incarnation": said.incarnation, "urls": list(said.urls), "key": said.key}
    if said.left:
        return row | {"state": "left", "why": "it has left the mesh"}
    if not context.node.links.access.knows_router(said.key):
        return row | {"state": "not linked", "why": "its key is not authorised here"}
    if target is None and not context.targets.closed and context.route_to(said.id) is not None:
        why = problems.get(relay_name(said.id), "it is dialled over others, or is the next")
        return row | {"state": "not linked", "why": why}
    return row | _reason(context, target, problems, bool(said.urls))


def _reason(
    context: MeshContext, target: Target | None, problems: dict[str, str], has_urls: bool = True
) -> dict[str, Any]:
    closed = context.targets.closed
    if closed == "left":
        return {"state": closed, "why": "this router has left the mesh"}
    if closed:
        return {"state": "not linked", "why": f"this router is {closed}"}
    if target is None:
        no_url = "mesh.dial leaves it to other routers" if has_urls else "it has told no url"
        return {"state": "not linked", "why": f"{no_url}, and there is no way over others"}
    why = next((problems[url] for url in target.urls if url in problems), f"{target.url} is dialled, or is the next")
    return {"state": "not linked", "why": why}
