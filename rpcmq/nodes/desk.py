"""The node type that operators ask about plugged-in nodes: which there are, how they are, and to start one over."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rpcmq.core.router.actions import LogEvent
from rpcmq.core.router.model import Link
from rpcmq.core.router.node_type import NodeContext, NodeType
from rpcmq.core.router.view_rows import View, made
from rpcmq.errors import ProtocolError
from rpcmq.nodes.plug_in import PlugIn
from rpcmq.wire.query_bodies import NodeRestartQuery, NodeStateAnswer

__all__ = ["Desk", "rows_of"]


class Desk(NodeType):
    """Answers operators about the plugged-in nodes of a router."""

    def __init__(self, context: NodeContext) -> None:
        self._context = context
        self._nodes: list[PlugIn] = []
        self.views = {"nodes": self._view}
        self.controls = {"control.node.restart": self._restart}

    def meet(self, others: Sequence[NodeType]) -> None:
        """Get to know the plugged-in ones."""
        self._nodes = [each for each in others if isinstance(each, PlugIn)]

    def _view(self, now: float) -> View:
        return made("nodes", (node.row(now) for node in self._nodes), len(self._nodes))

    def _restart(self, now: float, link: Link, message: bytes) -> NodeStateAnswer:
        name = NodeRestartQuery.of(message).node
        node = next((each for each in self._nodes if each.plan.name == name), None)
        if node is None:
            known = ", ".join(each.plan.name for each in self._nodes) or "none"
            raise ProtocolError(f"this router has no node {name!r}; it has: {known}", "query")
        was_out = bool(node.out)
        node.restart(now)
        text = f"{link.identity} has node {name} start over" + (
            f", and it is out again: {node.out}" if node.out else ""
        )
        self._context.act(LogEvent("node restarted", text, link.identity, {"node": name, "out": node.out}))
        return NodeStateAnswer(was_out=was_out, out=node.out)


def rows_of(nodes: Sequence[NodeType], now: float) -> list[dict[str, Any]]:
    """The rows of the view ``nodes``, at once; empty: there are none."""
    return [each.row(now) for each in nodes if isinstance(each, PlugIn)]
