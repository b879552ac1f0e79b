"""The mesh that a process is in, as its router says, and the count of its moves within it.

Keys of messages keep the origin that the first router gave, so that whoever had a message recognises it. The count
orders all routers that answer for the calls of this process: only the process itself counts, and a router that it left
had a lower count. It is one higher in each HELLO that may begin a new session, and goes back by one if the session is
resumed: so it is higher, too, after a HELLO that was never answered, and that its router may have taken.
"""

from __future__ import annotations

from dataclasses import replace

from rpcmq.wire.bodies import MAX_MOVES, HelloBody, WelcomeBody
from rpcmq.wire.mesh_bodies import RoutersBody

__all__ = ["MeshMoves", "mesh_of"]


class MeshMoves:
    """Place of a process in a mesh.

    Attributes:
        mesh: the routers, as the last WELCOME named them; None outside of a mesh.
        count: the number of new sessions after the first one in a mesh.
    """

    __slots__ = ("_said", "count", "mesh")

    def __init__(self) -> None:
        self.mesh: RoutersBody | None = None
        self.count = 0
        #: The count of the last HELLO.
        self._said = 0

    def hello(self, hello: HelloBody, had: WelcomeBody) -> HelloBody:
        """Return ``hello`` with the origin that this process has from ``had``, its last WELCOME, and its next move."""
        if self.mesh is None:
            return hello
        self._said = min(self._said + 1, MAX_MOVES)
        return replace(hello, origin_router=had.router_id, moves=self._said, mesh={"mesh": self.mesh.mesh})

    def welcomed(self, resumed: bool, mesh: RoutersBody | None) -> bool:
        """Take WELCOME; return whether it comes from the mesh of the one before."""
        before, self.mesh = self.mesh, mesh
        if resumed:
            # A HELLO that another router may have taken meanwhile still counts.
            self._said = max(self._said - 1, self.count)
        else:
            self.count = self._said
        return before is not None and mesh is not None and before.mesh == mesh.mesh


def mesh_of(said: WelcomeBody) -> RoutersBody | None:
    """Return the mesh of a router; None if it is in none.

    Raises:
        ProtocolError: it is malformed.
    """
    return RoutersBody.parse(said.mesh) if said.mesh else None
