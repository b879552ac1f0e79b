"""The tables that a router's node types are entered into: handlers by kind, and what an operator can ask for."""

from __future__ import annotations

from rpcmq.core.router.model import Handler, Link
from rpcmq.core.router.node_type import Control, Greeter, NodeType
from rpcmq.errors import ProtocolError
from rpcmq.wire import FIRST_NODE_KIND, KIND_AT, Kind

__all__ = ["KindTable"]


class KindTable:
    """Handlers by kind, and what an operator can ask for.

    Attributes:
        handlers: of each kind; it raises ProtocolError for kinds that nobody takes.
        rights: of kinds of nodes that are plugged in: what a key needs the right ``node`` on; empty: nothing.
        refusals: handlers that refuse messages of a link for which the router holds too much already.
        answered: kinds of which a message that breaks the protocol is answered with an ERROR.
        controls: changes that an operator can ask for.
        greeters: of HELLOs of links that are not of processes, by queue type.
    """

    def __init__(self) -> None:
        self.handlers: list[Handler] = [_not_for_a_router] * 256
        self.refusals: dict[Kind, Handler] = {}
        self.answered: set[Kind] = set()
        self.rights: dict[int, str] = {}
        self.controls: dict[str, Control] = {}
        self.greeters: dict[str, Greeter] = {}

    def register(self, node: NodeType) -> None:
        """Enter what ``node`` takes."""
        for kind, handler in node.kinds.items():
            assert self.handlers[kind] is _not_for_a_router, f"two node types take {kind!r}"
            self.handlers[kind] = handler
        assert node.kinds.keys() >= node.answered, "a node type answers for its own kinds only"
        assert node.rights.keys() == {kind for kind in node.kinds if kind >= FIRST_NODE_KIND}, "a kind without a right"
        self.answered |= node.answered
        self.rights |= node.rights
        self.refusals |= node.refusals
        self.controls |= node.controls
        self.greeters |= node.greeters


def _not_for_a_router(now: float, link: Link, message: bytes) -> None:
    kind = message[KIND_AT]
    if kind >= FIRST_NODE_KIND:
        raise ProtocolError(f"this router has no node that takes messages of kind {kind:#04x}", "kind")
    raise ProtocolError(f"kind {kind:#04x} is unknown or not for a router", "kind")
