"""The mesh that a process is in, as its router says, and the count of its moves.

Keys of messages keep the origin that the first router gave, so that whoever had a message recognises it. The count
orders all routers that answer for the calls of this process: only the process itself counts, and a router that it left
had a lower count. It is one higher in each HELLO that may begin a new session, and goes back by one if the session is
resumed: so it is higher, too, after a HELLO that was never answered, and that its router may have taken.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from rpcmq.core.process.welcome import Welcome
from rpcmq.wire import KIND_AT, STAMP, Flag, Kind, with_flag, with_next_hop
from rpcmq.wire.bodies import MAX_MOVES, HelloBody, WelcomeBody
from rpcmq.wire.mesh_bodies import RoutersBody

__all__ = ["MeshMoves", "for_next_owner", "mesh_of"]

_ASKED_FOR = (int(Kind.REQUEST), int(Kind.CAST))


class MeshMoves:
    """Place of a process in a mesh.

    Attributes:
        mesh: the routers, as the last WELCOME or ROUTERS named them; None outside of a mesh.
        count: the number of new sessions after the first one.
        streams: functions that tell whether a stream is under way by way of the router: nobody else goes on with those.
        work: functions that tell whether anything is under way by way of the router.
        on_change: called when the mesh has changed, or there is one, or none any more.
        on_asked: called with (now, url) when the router asks this process to go on at the router with that url.
        on_routers: called with name and urls of each router when they change; with none outside of a mesh.
    """

    __slots__ = ("_known_before", "_said", "count", "mesh", "on_asked", "on_change", "on_routers", "streams", "work")

    def __init__(self) -> None:
        self.mesh: RoutersBody | None = None
        self.count = 0
        self.streams: list[Callable[[], bool]] = []
        self.work: list[Callable[[], bool]] = []
        self.on_change: list[Callable[[], object]] = []
        self.on_routers: Callable[[Sequence[tuple[str, Sequence[str]]]], object] = lambda routers: None
        self.on_asked: Callable[[float, str], object] = lambda now, url: None
        #: The count of the last HELLO.
        self._said = 0
        #: The number of routers that were known before the present one, which has just started and reaches nobody yet.
        #: It asks those that it reaches later; started without asking, what others have would run twice.
        self._known_before = 0

    @property
    def is_adopted(self) -> bool:
        """Whether another router goes on with the calls of this process if it moves there."""
        return self.mesh is not None and (self.mesh.adopts or self._known_before > 1)

    def is_adopted_by(self, welcome: Welcome) -> bool:
        """Return whether the router of ``welcome`` goes on with what this process has sent to the last one."""
        return welcome.same_mesh and welcome.same_handle and self.is_adopted

    @property
    def has_streams(self) -> bool:
        """Whether a stream is under way by way of the router."""
        return any(is_under_way() for is_under_way in self.streams)

    @property
    def has_work(self) -> bool:
        """Whether anything is under way that needs this router, or another one that goes on with it."""
        return any(is_under_way() for is_under_way in self.work)

    def hello(self, hello: HelloBody, had: WelcomeBody | None) -> HelloBody:
        """Return ``hello`` with the origin that this process has from ``had``, its last WELCOME, and its next move."""
        if had is None:
            return hello
        self._said = min(self._said + 1, MAX_MOVES)
        hello = replace(hello, origin_router=had.router_id, moves=self._said)
        if self.mesh is None:
            # Perhaps another router has joined the last one just now, and this process was not told in time.
            return hello
        routers = max(len(self.mesh.routers), self._known_before)
        return replace(hello, mesh={"mesh": self.mesh.mesh}, routers=routers)

    def server_key(self, url: str) -> str:
        """Return the public key of the router at ``url``, as another router of the mesh has told; empty: none has."""
        key = self.mesh.keys.get(url) if self.mesh is not None else None
        return key if isinstance(key, str) else ""

    def welcomed(self, resumed: bool, mesh: RoutersBody | None) -> bool:
        """Take WELCOME; return whether it comes from the mesh of the one before."""
        before = self.mesh
        if resumed:
            # A HELLO that another router may have taken meanwhile still counts.
            self._said = max(self._said - 1, self.count)
        else:
            self.count = self._said
        is_same = before is not None and mesh is not None and before.mesh == mesh.mesh
        known = max(len(before.routers), self._known_before) if before is not None and self.is_adopted else 0
        if mesh is not None or before is not None:
            self._set(mesh)
        self._known_before = known if is_same and mesh is not None and not mesh.adopts else 0
        return is_same

    def _set(self, mesh: RoutersBody | None) -> None:
        self.mesh = mesh
        if mesh is None or mesh.adopts:
            self._known_before = 0
        self.on_routers(() if mesh is None else mesh.routers)
        for tell in self.on_change:
            tell()

    def routers_changed(self, now: float, message: bytes) -> None:
        """Handle ROUTERS.

        Raises:
            ProtocolError: it is malformed.
        """
        said = RoutersBody.of(message)
        if self.mesh is None or said.mesh == self.mesh.mesh:
            self._set(said)
            if said.go_to:
                self.on_asked(now, said.go_to)


def for_next_owner(message: bytes) -> bytes:
    """Return a request, which was sent before, as it is sent to a router that is to ask for it.

    After 255 routers it is as it was: these cannot be told apart any more.
    """
    message = with_flag(message, Flag.RESENT)
    if message[KIND_AT] not in _ASKED_FOR or message[STAMP][0] == 255:
        return message
    return with_next_hop(message)


def mesh_of(said: WelcomeBody) -> RoutersBody | None:
    """Return the mesh of a router; None if it is in none.

    Raises:
        ProtocolError: it is malformed.
    """
    return RoutersBody.parse(said.mesh) if said.mesh else None
