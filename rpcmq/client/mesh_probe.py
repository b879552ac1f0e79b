"""Finds out whether the routers of a process are a mesh, before it is known to any of them as a consumer."""

from __future__ import annotations

from collections.abc import Sequence
from time import monotonic

from rpcmq.client.joining import no_router
from rpcmq.errors import IdentityTaken, RpcError
from rpcmq.transport.connection import Connection
from rpcmq.transport.shell import ClientShell, WaitableEvent

__all__ = ["is_in_mesh"]


def is_in_mesh(connections: Sequence[Connection], shell: ClientShell, timeout: float) -> bool:
    """Wait until a router welcomes one of ``connections``; return whether that is in a mesh.

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
        for connection in connections:
            if connection.uplink.router is not None:
                return connection.uplink.moves.mesh is not None
        changed.wait(left)
        changed.clear()
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
