"""The key of queue servers, and what it may do.

In a mesh it follows from the secret that its routers share: so the queue server of a router that was killed may go on
at any other one. Without that secret it follows from the router's own secret key, and no other router knows it. Either
way it is in no file, and is the same in the router's next life.
"""

from __future__ import annotations

from rpcmq.core.router.rights import Key, Right
from rpcmq.transport.curve import derived_pair
from rpcmq.transport.key_files import KeyFile

__all__ = ["NAME", "authorized_queue_server", "queue_server_keys"]

#: The name of the key.
NAME = "rpcmq.queue"
_QUEUES, _OPERATORS, _WORKERS = "rpcmq.queue", "rpcmq.queue.admin", "rpcmq.work"
_SETTINGS = ("settings", "settings.*", "periodic", "periodic.*", "claims", "claims.*")
_RIGHTS = (
    # To be asked: by those who put, by operators, and by the other queue servers.
    Right(frozenset({"serve"}), ("#",), (_QUEUES,)),
    Right(frozenset({"serve"}), ("look", "look.*", "change", "change.*", *_SETTINGS), (_OPERATORS,)),
    # To have another one open a queue, while it stands in for an owner that is gone.
    Right(frozenset({"call"}), ("rpcmq.queues.#",), (_QUEUES,)),
    # To ask whether another one claims the same name.
    Right(frozenset({"call"}), ("claims.*",), (_OPERATORS,)),
    # To tell the other queue servers of settings, periodic items and claims.
    Right(frozenset({"cast", "fanout"}), _SETTINGS, (_OPERATORS,)),
    Right(frozenset({"call"}), ("#",), (_WORKERS,)),
)


def queue_server_keys(router: KeyFile, mesh_secret: str = "") -> tuple[KeyFile, ...]:
    """The key pairs that queue servers of the mesh may have at the router with the pair ``router``.

    Its own queue server gets the first. The second, that of a router without the secret of the mesh, may be what one
    has whose router got that secret after it had died.

    Args:
        mesh_secret: empty: there is none.
    """
    secrets = [router.secret.encode()]
    if mesh_secret:
        secrets.insert(0, mesh_secret.encode())
    pairs = [derived_pair(secret, b"rpcmq queues") for secret in secrets]
    return tuple(KeyFile(public, secret, NAME, router.public) for public, secret in pairs)


def authorized_queue_server(pair: KeyFile) -> Key:
    """The key ``pair`` with its rights: to serve queues, and to call their workers."""
    return Key(NAME, pair.public, _RIGHTS, owner="queue servers of this mesh")
