"""Peer2Peer: the router introduces two processes, which then communicate directly."""

from __future__ import annotations

from rpcmq.core.router.model import Destination, Link
from rpcmq.core.router.node_type import NodeContext, NodeType
from rpcmq.wire import KEY, Kind
from rpcmq.wire.bodies import IntroductionBody

__all__ = ["Peer2Peer"]

#: Messages queued for a consumer above which it is not introduced to callers.
_MAX_WAITING = 1000


class Peer2Peer(NodeType):
    """Introductions."""

    def __init__(self, context: NodeContext) -> None:
        self._context = context
        self.kinds = {Kind.INTRODUCE: self._introduce}
        self.answered = {Kind.INTRODUCE}

    def _introduce(self, now: float, link: Link, message: bytes) -> None:
        destination = self._context.directory.resolve(now, message)
        self._context.turns.spend(len(destination.consumers))
        target = _introduce(link, message[KEY], destination, self._context.new_token())
        if target is not None:
            self._context.links.access.introduced(link, target)


def _introduce(caller: Link, key: bytes, destination: Destination, ticket: str) -> Link | None:
    """Tell ``caller`` where a consumer of ``destination`` listens, and that consumer who will come.

    Returns:
        The consumer's link; None if there is none that listens.
    """
    candidates = [c for c in destination.consumers if c.link.is_responsive]
    willing = [c for c in candidates if c.peer_url]
    # A caller that asks endlessly must not fill the consumer's link.
    listening = [c for c in willing if not c.link.is_full and len(c.link.outbox) < _MAX_WAITING]
    if not listening:
        reason = "has no peer socket" if candidates else "has no consumer that answers"
        reason = "has no consumer that takes introductions now" if willing else reason
        caller.send(IntroductionBody(text=f"{destination.name!r} {reason}").message(key=key))
        return None
    target = min(listening, key=lambda c: len(c.in_flight))
    # With CURVE, each accepts the other's key, and no other, on the connection that comes of this.
    caller_key, target_key = (link.key.public if link.key is not None else None for link in (caller, target.link))
    to_target = IntroductionBody(ticket=ticket, topic=destination.name, identity=caller.identity, key=caller_key)
    to_caller = IntroductionBody(
        ticket=ticket,
        topic=destination.name,
        identity=target.link.identity,
        key=target_key,
        url=target.peer_url,
        accepts=target.accepts,
    )
    target.link.send(to_target.message(key=key))
    caller.send(to_caller.message(key=key))
    return target.link
