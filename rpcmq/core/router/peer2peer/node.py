"""Peer2Peer: the router introduces two processes, which then communicate directly."""

from __future__ import annotations

from typing import NamedTuple

from rpcmq.core.router.model import Consumer, Destination, Link
from rpcmq.core.router.node_type import NodeContext, NodeType
from rpcmq.wire import KEY, Kind
from rpcmq.wire.bodies import IntroductionBody

__all__ = ["MAX_WAITING", "Caller", "OtherIntroducers", "Peer2Peer"]

#: Messages queued for a consumer, or router, above which it is not asked for introductions.
MAX_WAITING = 1000


class Caller(NamedTuple):
    """A process that wants to be introduced."""

    identity: str
    #: Its public key; None without CURVE.
    key: str | None
    #: The name of the router that it is linked to; None: this one.
    via: str | None = None


class OtherIntroducers:
    """The other routers, as introductions concern them: here there are none."""

    def introduce(self, now: float, link: Link, message: bytes, destination: Destination, reason: str) -> bool:
        """Have another router answer the INTRODUCE ``message`` of ``link``; return whether one is asked.

        Args:
            reason: the reason that no consumer of this router can be introduced.
        """
        return False


class Peer2Peer(NodeType):
    """Introductions."""

    def __init__(self, context: NodeContext) -> None:
        self._context = context
        self.other_routers = OtherIntroducers()
        self.kinds = {Kind.INTRODUCE: self._introduce}
        self.answered = {Kind.INTRODUCE}

    def _introduce(self, now: float, link: Link, message: bytes) -> None:
        destination = self._context.directory.resolve(now, message)
        target, reason = self._pick(destination)
        if target is not None:
            caller = Caller(link.identity, link.key.public if link.key is not None else None)
            link.send(self._introduction(caller, message[KEY], destination, target))
            self._context.links.access.introduced(link, target.link)
        elif not self.other_routers.introduce(now, link, message, destination, reason):
            link.send(IntroductionBody(text=reason).message(key=message[KEY]))

    def introduce_here(self, now: float, caller: Caller, message: bytes) -> bytes:
        """Introduce ``caller``, which is linked to another router, to a consumer of this one; return the answer to it.

        Raises:
            ProtocolError: the address is malformed, or there would be too many topics.
        """
        destination = self._context.directory.resolve(now, message)
        target, reason = self._pick(destination)
        if target is None:
            return IntroductionBody(text=reason).message(key=message[KEY])
        return self._introduction(caller, message[KEY], destination, target)

    def _pick(self, destination: Destination) -> tuple[Consumer | None, str]:
        """Return the consumer of this router that a caller is introduced to; None, and why, if there is none."""
        self._context.turns.spend(len(destination.consumers))
        candidates = [c for c in destination.consumers if c.link.is_responsive]
        willing = [c for c in candidates if c.peer_url]
        # A caller that asks endlessly must not fill the consumer's link.
        listening = [c for c in willing if not c.link.is_full and len(c.link.outbox) < MAX_WAITING]
        if listening:
            return min(listening, key=lambda c: len(c.in_flight)), ""
        reason = "has no peer socket" if candidates else "has no consumer that answers"
        reason = "has no consumer that takes introductions now" if willing else reason
        return None, f"{destination.name!r} {reason}"

    def _introduction(self, caller: Caller, key: bytes, destination: Destination, target: Consumer) -> bytes:
        """Tell ``target`` who will come; return what tells the caller where it listens."""
        ticket = self._context.new_token()
        # With CURVE, each accepts the other's key, and no other, on the connection that comes of this.
        target_key = target.link.key.public if target.link.key is not None else None
        to_target = IntroductionBody(
            ticket=ticket, topic=destination.name, identity=caller.identity, key=caller.key, via=caller.via
        )  # fmt: skip
        target.link.send(to_target.message(key=key))
        return IntroductionBody(
            ticket=ticket,
            topic=destination.name,
            identity=target.link.identity,
            key=target_key,
            url=target.peer_url,
            accepts=target.accepts,
        ).message(key=key)
