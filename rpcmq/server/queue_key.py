"""The key of the router's own queue server, and what it may do.

It follows from the router's secret key: so it is on no disk, and the queue server that a router has left behind has the
key that the router's next life knows.
"""

from __future__ import annotations

from rpcmq.core.router.rights import Key, Right
from rpcmq.transport.curve import derived_pair
from rpcmq.transport.key_files import KeyFile

__all__ = ["NAME", "authorized_queue_server", "queue_server_key"]

#: The name of the key.
NAME = "rpcmq.queue"
_QUEUES, _OPERATORS, _WORKERS = "rpcmq.queue", "rpcmq.queue.admin", "rpcmq.work"
_RIGHTS = (
    Right(frozenset({"serve", "call"}), ("#",), (_QUEUES, _OPERATORS)),
    # To tell the other queue servers of settings.
    Right(frozenset({"cast", "fanout"}), ("settings", "settings.*"), (_OPERATORS,)),
    Right(frozenset({"call"}), ("#",), (_WORKERS,)),
)


def queue_server_key(router: KeyFile) -> KeyFile:
    """The key pair of the queue server of the router with the pair ``router``."""
    public, secret = derived_pair(router.secret, b"rpcmq queues")
    return KeyFile(public, secret, NAME, router.public)


def authorized_queue_server(pair: KeyFile) -> Key:
    """The key ``pair`` with its rights: to serve queues, and to call their workers."""
    return Key(NAME, pair.public, _RIGHTS, owner="this router")
