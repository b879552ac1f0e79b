"""The accepting side of the handshake: HELLOs of other routers, which make links, resume them, wait, or are refused.

A HELLO waits, for a second at most,

* while there is a connected link to a router of that id: until the other end of it has answered a probe (the HELLO is
  refused) or has not (the old link ends and this one is made). A connection may be dead unnoticed.
* while this router, whose id is the lower one, waits for the answer to a HELLO of its own, which may have gone to the
  same router: when both dial at once, the connection that the lower id has dialled stays.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from rpcmq.core.common.session import MAX_FAILED_RESUMPTIONS
from rpcmq.core.common.text import shorten
from rpcmq.core.router.access_control import Admission, Refusal
from rpcmq.core.router.actions import Answer
from rpcmq.core.router.link_states import LinkState
from rpcmq.core.router.mesh.alarm import Alarm
from rpcmq.core.router.mesh.dialing import Dialing
from rpcmq.core.router.mesh.heartbeats import Heartbeats
from rpcmq.core.router.mesh.neighbours import told_apart
from rpcmq.core.router.mesh.part import MeshContext
from rpcmq.core.router.mesh.peerings import Peering, Peerings, as_body
from rpcmq.core.router.mesh.problems import Problems
from rpcmq.errors import ProtocolError
from rpcmq.wire.bodies import HelloBody, RefusedBody
from rpcmq.wire.mesh_bodies import MAX_INCARNATION, MAX_NEIGHBOURS, MeshIdentity

__all__ = ["Accepting"]

#: Seconds in which a HELLO of this router's own is answered, if ever; others wait for that.
_CROSSING_SECONDS = 1.0


class Accepting:
    """Answers the HELLOs of routers."""

    def __init__(
        self,
        context: MeshContext,
        peerings: Peerings,
        heartbeats: Heartbeats,
        problems: Problems,
        dialing: Dialing,
        alarm: Alarm,
    ) -> None:
        self._alarm = alarm
        self._context = context
        self._node = context.node
        self._links = context.node.links
        self._peerings = peerings
        self._heartbeats = heartbeats
        self._problems = problems
        self._dialing = dialing
        #: By the id of the router.
        self._waiting: dict[int, _Waiting] = {}

    def next_deadline(self) -> float:
        """The time of the next :meth:`tick` (monotonic seconds)."""
        return min([each.until for each in self._waiting.values()]) if self._waiting else inf

    def tick(self, now: float) -> None:
        """Let those that have waited long enough wait no more."""
        for each in list(self._waiting.values()):
            if now >= each.until:
                self._again(now, each, may_wait=False)

    def hello(self, now: float, route: bytes, hello: HelloBody, user: str) -> bytes | None:
        """Handle the HELLO of a router; return the refusal to send to ``route``, or None.

        Raises:
            ProtocolError: the body does not say which router it is.
        """
        other = MeshIdentity.parse(hello.mesh)
        try:
            self._greet(now, route, hello, user, other, may_wait=True)
        except Refusal as refusal:
            return self._refusal(now, other, refusal)
        return None

    def _refusal(self, now: float, other: MeshIdentity, refusal: Refusal) -> bytes:
        self._links.counters[f"refused {refusal.reason}"] += 1
        if refusal.reason == "id-taken":
            self._problems.note(now, f"router {other.id}", refusal.reason, str(refusal))
        known = self._context.incarnation_of(other.id) if refusal.reason == "stale-incarnation" else None
        text = shorten(str(refusal))
        mesh = as_body(self._context.own).encode()
        return RefusedBody(reason=refusal.reason, text=text, mesh=mesh, incarnation=known).message()

    def _greet(
        self, now: float, route: bytes, hello: HelloBody, user: str, other: MeshIdentity, may_wait: bool
    ) -> None:
        """Make or resume the link of ``other``, or let it wait.

        Raises:
            Refusal: it gets none.
        """
        existing = self._peerings.of_router(other.id)
        resumes = existing is not None and self._resumes(existing, route, hello, other)
        self._check(other, resumes)
        admission = self._links.access.admit(user, other.name)
        admission.check_router(other.id)
        if existing is not None and resumes and admission.owns(existing.link):
            if not existing.token and self._dialing.is_resuming(existing):
                raise Refusal("crossing", f"router {self._context.own.name!r} goes on with the link itself")
            self._dialing.goes_on_elsewhere(now, existing)
            self._resume(now, existing, route, hello)
            return
        if existing is not None:
            if existing.route is not None and existing.link.state is not LinkState.AWAY:
                self._let_wait(now, _Waiting(route, hello, user, other, existing, inf))
                self._heartbeats.probe(now, existing)
                return
            reason = "started over" if existing.is_with(other) else "its next life has come"
            self._links.end(now, existing.link, reason)
        until = self._dialing.greeted_at(other.id) + _CROSSING_SECONDS
        if may_wait and self._context.own.id < other.id and now < until:
            self._let_wait(now, _Waiting(route, hello, user, other, None, until))
            return
        self._accept(now, route, other, admission)

    def _check(self, other: MeshIdentity, resumes: bool) -> None:
        own = self._context.own
        if other.mesh != own.mesh:
            text = f"router {own.name!r} belongs to the mesh {own.mesh!r}, and you to {other.mesh!r}: set mesh.name"
            raise Refusal("other-mesh", text)
        if other == as_body(own):
            raise Refusal("self", f"{own.name!r} is you")
        if other.id == own.id:
            raise Refusal("id-taken", told_apart(own, other))
        if not other.name:
            raise Refusal("identity", "a router must have a name: set router.name")
        closed = self._context.targets.closed
        if closed == "left":
            raise Refusal(closed, f"router {own.name!r} has left the mesh; `rpcmq mesh join` there lets it come back")
        if closed and not resumes:
            raise Refusal(closed, f"router {own.name!r} is shutting down")
        # Beyond the last one, which somebody must have made up, it could not go.
        if not resumes and MAX_INCARNATION > self._context.incarnation_of(other.id) > other.incarnation:
            raise Refusal("stale-incarnation", f"router id {other.id} is known in a later life")

    def _resumes(self, existing: Peering, route: bytes, hello: HelloBody, other: MeshIdentity) -> bool:
        link = existing.link
        if existing.token:
            # This router has dialled; the other one can have a direct connection in place of others that carry it.
            is_direct = existing.neighbour.is_relayed and route not in self._node.relayed.by_route
            is_owner = is_direct and hello.token == existing.token
        else:
            is_owner = hello.token == link.token
        return existing.is_with(other) and is_owner and link.can_resume(hello.received)

    def _resume(self, now: float, peering: Peering, route: bytes, hello: HelloBody) -> None:
        link = peering.link
        if link.failed_resumptions >= MAX_FAILED_RESUMPTIONS:
            # Some message ends each connection it is sent on.
            self._links.end(now, link, f"{MAX_FAILED_RESUMPTIONS} connections in a row ended without progress")
            raise Refusal("crossing", "the session is over; begin a new one")
        assert hello.received is not None, "it can be resumed"
        try:
            self._peerings.resume(now, peering, route, hello.received, is_dialed=False)
        except ProtocolError as error:
            self._links.end(now, link, str(error))
            raise

    def _accept(self, now: float, route: bytes, other: MeshIdentity, admission: Admission) -> None:
        settings = self._node.settings
        if len(self._links) >= settings.max_links:
            raise Refusal("too-many-links", f"link limit reached (link.max_links = {settings.max_links})")
        if not self._peerings.has_room(is_relayed=route in self._node.relayed.by_route):
            raise Refusal("too-many-links", f"a router is linked to {MAX_NEIGHBOURS} others at most")
        admission.check_room()
        self._peerings.accept(now, route, other, admission)
        self._heartbeats.start(now)
        self._problems.solved(f"router {other.id}")

    # --- those that wait ---------------------------------------------------------------------

    def _let_wait(self, now: float, waiting: _Waiting) -> None:
        self.connection_lost(waiting.route)  # it has said HELLO anew
        before = self._waiting.pop(waiting.other.id, None)
        if before is not None:
            self._refuse(now, before, Refusal("crossing", "a newer connection has come"))
        if len(self._waiting) >= MAX_NEIGHBOURS:
            raise Refusal("crossing", f"{MAX_NEIGHBOURS} routers wait to be linked already")
        self._waiting[waiting.other.id] = waiting
        self._alarm.by(waiting.until)

    def _refuse(self, now: float, waiting: _Waiting, refusal: Refusal) -> None:
        self._node.act(Answer(waiting.route, self._refusal(now, waiting.other, refusal)))
        if waiting.route in self._node.relayed.by_route:
            self._context.hang_up(waiting.route)  # there may be any number of them

    def _again(self, now: float, waiting: _Waiting, may_wait: bool = True) -> None:
        """Decide anew about a HELLO that has waited."""
        del self._waiting[waiting.other.id]
        try:
            self._greet(now, waiting.route, waiting.hello, waiting.user, waiting.other, may_wait)
        except Refusal as refusal:
            self._refuse(now, waiting, refusal)

    def greeted(self, now: float) -> None:
        """A HELLO of this router was answered, or will not be."""
        for each in list(self._waiting.values()):
            if each.probed is not None:
                continue
            if self._peerings.of_router(each.other.id) is not None:
                del self._waiting[each.other.id]
                self._refuse(now, each, Refusal("crossing", "both have dialled: the other connection stays"))
            else:
                self._again(now, each)

    def answered(self, now: float, peering: Peering) -> None:
        """``peering`` has answered a probe: it stays, and whoever wanted its place is refused."""
        waiting = self._waiting.get(peering.identity.id)
        if waiting is None or waiting.probed is not peering:
            return
        del self._waiting[peering.identity.id]
        other = waiting.other
        if peering.is_with(other):
            refusal = Refusal("already-linked", f"router {self._context.own.name!r} has a link to {other.name!r}")
        else:
            refusal = Refusal("id-taken", told_apart(peering.identity, other))
        self._refuse(now, waiting, refusal)

    def link_changed(self, now: float, peering: Peering) -> None:
        """The link of ``peering`` is away, or has ended: who waits for its place gets it, in the next tick."""
        waiting = self._waiting.get(peering.identity.id)
        if waiting is not None and waiting.probed is peering:
            # Not at once: the other parts are just being told, and have yet to hear of it.
            waiting.until = now
            self._alarm.by(now)

    def connection_lost(self, route: bytes) -> None:
        """A connection is gone: who has said HELLO on it does not wait any more."""
        self._waiting = {id: each for id, each in self._waiting.items() if each.route != route}


@dataclass(slots=True)
class _Waiting:
    """A HELLO that waits."""

    route: bytes
    hello: HelloBody
    user: str
    other: MeshIdentity
    #: The peering that is probed; None: it waits for the answer to a HELLO of this router.
    probed: Peering | None
    #: The time at which it waits no more; while something is probed, that is for the probe to say.
    until: float
