"""Finds out whether the routers of a process are a mesh, before it is known to any of them as a consumer."""

from __future__ import annotations

from collections.abc import Sequence
from time import monotonic

from rpcmq.client.joining import no_router
from rpcmq.errors import IdentityTaken, RpcError
from rpcmq.transport.connection import Connection
from rpcmq.transport.shell import ClientShell, WaitableEvent

__all__ = ["are_mesh", "is_in_mesh"]

#: Time that the other routers have to welcome the process after one of a mesh has (seconds).
_OTHERS = 0.3


def are_mesh(connections: Sequence[Connection]) -> bool:
    """Return whether all routers that ``connections`` are linked to are in a mesh, and there is any.

    A router in no mesh, such as one of an older version, gets nothing of what the others have: the process needs a link
    to each then.
    """
    welcomed = [connection.uplink for connection in connections if connection.uplink.ready]
    return bool(welcomed) and all(uplink.moves.mesh is not None for uplink in welcomed)


def is_in_mesh(connections: Sequence[Connection], shell: ClientShell, timeout: float) -> bool:
    """Wait until a router welcomes one of ``connections``; return whether that is in a mesh, with all others.

    The others have a moment more: a process that was given routers of a mesh and others needs a link to each.

    Args:
        timeout: seconds.

    Raises:
        RouterUnreachable: none has within that.
        IdentityTaken: another live process has this identity.
        RpcError: none will.
    """
    deadline = monotonic() + timeout
    changed = shell.event()
    failed: list[RpcError] = []
    for connection in connections:
        shell.spawn(_wait, connection, timeout, failed, changed)
    while (left := deadline - monotonic()) > 0 and len(failed) < len(connections):
        welcomed = [connection for connection in connections if connection.uplink.ready]
        if welcomed and not are_mesh(welcomed):
            return False
        if welcomed:
            deadline = min(deadline, monotonic() + _OTHERS)
            if len(welcomed) + len(failed) >= len(connections):
                return True
            left = deadline - monotonic()
        changed.wait(left)
        changed.clear()
    if are_mesh(connections):
        return True
    for error in failed:
        if isinstance(error, IdentityTaken):
            raise error
    raise no_router(connections, timeout)


def _wait(connection: Connection, timeout: float, failed: list[RpcError], changed: WaitableEvent) -> None:
    try:
        connection.wait_ready(timeout)
    except RpcError as error:
        failed.append(error)
    finally:
        changed.set()
