"""Links between routers: who dials whom, HELLO and WELCOME between routers, heartbeats, and what is in the way.

The two sides of a handshake are :mod:`rpcmq.core.router.mesh.dialing` and :mod:`rpcmq.core.router.mesh.accepting`.
"""

from __future__ import annotations

from rpcmq.core.router.link_states import LinkState
from rpcmq.core.router.mesh.accepting import Accepting
from rpcmq.core.router.mesh.alarm import Alarm
from rpcmq.core.router.mesh.dialing import Dialing
from rpcmq.core.router.mesh.heartbeats import Heartbeats
from rpcmq.core.router.mesh.neighbours import Neighbour
from rpcmq.core.router.mesh.part import MeshContext, MeshPart
from rpcmq.core.router.mesh.peerings import Peerings
from rpcmq.core.router.mesh.problems import Problems
from rpcmq.core.router.model import Link
from rpcmq.wire import Kind
from rpcmq.wire.bodies import HelloBody, RefusedBody

__all__ = ["MeshHandshake"]


class MeshHandshake(MeshPart):
    """Makes the links to other routers, and keeps them."""

    def __init__(self, context: MeshContext) -> None:
        self._context = context
        self._links = context.node.links
        self.problems = Problems(self._links.counters, context.node.act)
        self.peerings = Peerings(context)
        self._alarm = alarm = Alarm()
        self._heartbeats = Heartbeats(context, self.peerings, alarm)
        self.dialing = Dialing(context, self.peerings, self._heartbeats, self.problems, self._greeted, alarm)
        self._accepting = Accepting(context, self.peerings, self._heartbeats, self.problems, self.dialing, alarm)
        self.kinds = {
            Kind.HEARTBEAT: self._heartbeat,
            Kind.DRAIN: self._neighbour_drains,
            Kind.REFUSED: self._refused,
        }
        context.problem, context.solved = self.problems.note, self.problems.solved
        context.dismiss = self.dialing.dismiss
        context.greet, context.greeting_answered = self.hello, self.dialed_message
        settings = context.node.settings
        for url in settings.mesh_peers:
            context.targets.configure(context.node.now, url)
        for peer in settings.mesh_peer:
            context.targets.configure(context.node.now, peer.url, peer.server_key)

    def _greeted(self, now: float) -> None:
        self._accepting.greeted(now)

    # --- connections -------------------------------------------------------------------------

    def hello(self, now: float, route: bytes, hello: HelloBody, user: str) -> bytes | None:
        """Handle the HELLO of a router; return the refusal to send to ``route``, or None.

        Raises:
            ProtocolError: the body does not say which router it is.
        """
        return self._accepting.hello(now, route, hello, user)

    def connected(self, now: float, route: bytes) -> None:
        """Say HELLO."""
        self.dialing.connected(now, route)

    def dialed_message(self, now: float, route: bytes, message: bytes) -> None:
        """Handle the answer to HELLO."""
        self.dialing.message(now, route, message)

    def connection_lost(self, now: float, route: bytes, reason: str) -> None:
        """Dial again, or wait for the other side to do so."""
        self._accepting.connection_lost(route)
        self.dialing.lost(now, route, reason)

    # --- messages ----------------------------------------------------------------------------

    def _heartbeat(self, now: float, link: Link, message: bytes) -> None:
        peering = self.peerings.of_link(link)
        if peering is not None and self._heartbeats.heard(now, peering, message):
            self._accepting.answered(now, peering)

    def _neighbour_drains(self, now: float, link: Link, message: bytes) -> None:
        peering = self.peerings.of_link(link)
        if peering is not None and not peering.neighbour.is_draining:
            peering.neighbour.is_draining = True
            self._context.changed(now, peering.neighbour)

    def _refused(self, now: float, link: Link, message: bytes) -> None:
        refused = RefusedBody.of(message)
        if refused.reason == "protocol":
            # Of one message, which the other side has counted and passed over.
            self.problems.note(now, link.identity, "protocol", f"{link.identity} refuses a message: {refused.text}")
            return
        forgotten = refused.reason == "hello-first"
        reason = "it has ended the link" if forgotten else f"refused by it: {refused.text}"
        self._links.end(now, link, reason)

    # --- links -------------------------------------------------------------------------------

    def neighbour_changed(self, now: float, neighbour: Neighbour) -> None:
        """Whoever waits for the place of a link that is away gets it."""
        peering = self.peerings.of_link(neighbour.link)
        if peering is not None and neighbour.link.state is LinkState.AWAY:
            if peering.target is None:
                peering.route = None
            self._accepting.link_changed(now, peering)

    def neighbour_gone(self, now: float, neighbour: Neighbour, reason: str) -> None:
        """Close the connection, and dial again."""
        peering = self.peerings.forget(neighbour.link)
        if peering is None:
            return
        if peering.route is not None:
            self._context.hang_up(peering.route)
        self.dialing.link_ended(now, peering)
        self._accepting.link_changed(now, peering)

    # --- time --------------------------------------------------------------------------------

    def tick(self, now: float) -> None:
        """Do what is due."""
        if now < self._alarm.at:
            return
        for each in (self._heartbeats, self._accepting, self.dialing):
            self._context.node.guarded(now, each.tick)
        self._alarm.at = min(
            self._heartbeats.next_deadline(), self._accepting.next_deadline(), self.dialing.next_deadline()
        )

    def next_deadline(self) -> float:
        """The time of the next :meth:`tick` (monotonic seconds)."""
        return self._alarm.at

    def begin_drain(self, now: float) -> None:
        """Make no more links."""
        self._context.targets.close("draining")
