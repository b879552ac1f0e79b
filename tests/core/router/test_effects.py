"""The order of effects, and the kinds of node types."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from rpcmq.core.common.session import Session
from rpcmq.core.router.actions import Answer
from rpcmq.core.router.effects import Effects
from rpcmq.core.router.mesh.relayed_connections import RelayedConnections
from rpcmq.core.router.node_type import NodeContext, NodeType
from rpcmq.core.router.router import NODE_TYPES, Router
from rpcmq.testing.network import Network


def test_the_order_of_effects() -> None:
    order: list[str] = []
    dirty: list[Session] = []
    effects = Effects(dirty, RelayedConnections(Counter()))

    def send(session: Session) -> None:
        order.append("send")
        if len(order) < 3:
            effects.actions.append(Answer(b"late", b""))
            link.mark()

    def act(action: Any) -> None:
        order.append(f"act {action.route.decode()}")

    link: Any = Session(dirty)
    link.mark()
    effects.actions.append(Answer(b"first", b""))
    effects.perform(send, act, lambda route, messages: True)
    assert order == ["send", "act first", "send", "act late"] and not effects


def test_two_node_types_cannot_take_one_kind() -> None:
    class Ledger(NodeType):
        def __init__(self, context: NodeContext) -> None:
            self.kinds = {0x70: lambda now, link, message: None}  # type: ignore[dict-item]

    class Twice(Router):
        node_types = (*NODE_TYPES, Ledger, Ledger)

    with pytest.raises(AssertionError, match="two node types"):
        Network(engine=Twice)
