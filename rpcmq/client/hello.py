"""The HELLO of this process: its identity, and what it tells the router of itself."""

from __future__ import annotations

import os
import secrets
import socket
import sys

from rpcmq import __version__
from rpcmq.payload.format import accept_names
from rpcmq.wire import VERSION
from rpcmq.wire.bodies import HelloBody

__all__ = ["default_identity", "hello_of"]


def default_identity(key_name: str = "") -> str:
    """A name for this process that no other has: host, program, pid and a random part.

    Args:
        key_name: goes first where there is a key: a router lets the processes of a key have such names.
    """
    program = os.path.basename(sys.argv[0] or "python").removesuffix(".py") or "python"
    host = f"{key_name}:{socket.gethostname()}" if key_name else socket.gethostname()
    return f"{host}:{program}:{os.getpid()}:{secrets.token_hex(3)}"


def hello_of(identity: str, queue_type: str, accepted: int, role: str = "process") -> HelloBody:
    """The body of this process's HELLO.

    Args:
        accepted: mask of the payload formats that it decodes.
        role: ``CONSUMER_ROLE`` of a link that only consumes.
    """
    return HelloBody(
        versions=(VERSION,),
        identity=identity,
        queue_type=queue_type,
        role=role,
        accepts=tuple(accept_names(accepted)),
        host=socket.gethostname(),
        pid=os.getpid(),
        program=os.path.basename(sys.argv[0] or "python"),
        library=f"rpcmq {__version__}",
        follows_mesh=True,
    )
