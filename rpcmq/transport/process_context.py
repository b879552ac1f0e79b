"""The ZeroMQ context of this process: shared by its connections, and closed after them when the program ends."""

from __future__ import annotations

import os
import weakref
from collections.abc import Sequence
from functools import partial
from typing import Any, Protocol

import zmq

from rpcmq.transport.batches import new_context
from rpcmq.transport.process_exit import call_at_exit
from rpcmq.transport.shell import Shell
from rpcmq.transport.zap import ZapHandler

__all__ = ["close_at_exit", "forget_at_exit", "process_context", "process_zap", "release_zap"]

_EXIT_LINGER_MS = 500

_context: zmq.Context[Any] | None = None
_zap: ZapHandler | None = None


class _Closeable(Protocol):
    shell: Shell

    def close_and_wait(self) -> None:
        """Close; also if somebody else closes it just now."""


_connections: weakref.WeakSet[_Closeable] = weakref.WeakSet()


def close_at_exit(connection: _Closeable) -> None:
    """Have ``connection`` closed when the program ends: messages sent just before that still leave."""
    _connections.add(connection)


def forget_at_exit(connection: _Closeable) -> None:
    """Undo :func:`close_at_exit`: ``connection`` is closed, and its loop may have ended."""
    _connections.discard(connection)


def process_context() -> zmq.Context[Any]:
    """Return the ZeroMQ context of this process; after a fork, the child has its own."""
    global _context
    if _context is None:
        _context = new_context()
        call_at_exit(_close_all)
    return _context


def process_zap(shell: Shell) -> ZapHandler:
    """Return the handshake handler for :func:`process_context`, in the loop that asks first."""
    global _zap
    if _zap is None:
        _zap = ZapHandler(process_context(), shell)
    return _zap


def release_zap(domain: str) -> None:
    """Unregister the socket of ``domain``, which is closed."""
    global _zap
    if _zap is not None and _zap.unregister(domain):
        _zap.close()
        _zap = None


def _after_fork_in_child() -> None:
    global _context, _zap
    _connections.clear()
    _context = _zap = None


os.register_at_fork(after_in_child=_after_fork_in_child)


def _close_all() -> None:
    """Close all connections, so that messages sent just before the end of the program still leave."""
    loops: dict[Shell, list[_Closeable]] = {}
    for connection in list(_connections):
        loops.setdefault(connection.shell, []).append(connection)
    closed = [shell.run_at_exit(partial(_close_together, connections)) for shell, connections in loops.items()]
    if not all(closed):
        return  # another thread may be using its sockets, and so the context
    if _context is not None:
        _context.destroy(linger=_EXIT_LINGER_MS)


def _close_together(connections: Sequence[_Closeable]) -> None:
    connections[0].shell.run_together([connection.close_and_wait for connection in connections])
