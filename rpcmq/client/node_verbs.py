"""The verbs that nodes answer which are plugged into the router."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rpcmq.client.base import BaseClient
from rpcmq.client.shown_names import shown_as
from rpcmq.errors import UsageError
from rpcmq.transport.home import at_home
from rpcmq.wire import FIRST_NODE_KIND, MAX_VIEW_BYTES, body_of, payload_of
from rpcmq.wire.query_bodies import NodeControlQuery, NodeRestartQuery, NodeStateAnswer

__all__ = ["NodeVerbs"]

_ROUTER = (b"", "router")


@shown_as("Client")
class NodeVerbs(BaseClient):
    """The verbs that nodes answer."""

    @at_home
    def ask_node(self, kind: int, payload: bytes = b"", timeout: float | None = None) -> bytes:
        """Ask the node of the router that takes messages of ``kind``, and return its answer.

        It is asked once: if the router goes away meanwhile, the node may have done what it was asked for.

        Args:
            kind: one of the node's kinds, 0x80 to 0xff; its documentation names them.
            payload: as that node wants it.
            timeout: seconds to wait for the answer, which may come late on purpose.

        Raises:
            UsageError: that is no kind of a node.
            NoConsumer: the node is out; the text says why.
            AccessDenied: the key of this process has no right ``node`` on that.
            CallError: the node refuses it, or the router has no such node.
            RouterUnreachable, CallTimeout, LinkLost: there is no answer.
        """
        if type(kind) is not int or not FIRST_NODE_KIND <= kind <= 0xFF:
            raise UsageError(f"kind {kind!r}: those of nodes are from {FIRST_NODE_KIND:#x} to 0xff")
        return bytes(payload_of(self.sender.ask_kind(kind, payload, 0, (b"", f"node kind {kind:#x}"), timeout)))

    @at_home
    def control_node(
        self, node: str, control: str, arguments: Mapping[str, Any] | None = None, timeout: float | None = None
    ) -> dict[str, Any]:
        """Ask for a control of a node of the router.

        Args:
            node: its name in the router's configuration.
            control: of those that its documentation names.
            arguments: JSON values by name.
            timeout: seconds to wait for the router.

        Raises:
            NoConsumer: the node is out; the text says why.
            AccessDenied: the key of this process has no right ``admin`` on ``control.NODE.CONTROL``.
            CallError: the arguments are wrong, or the router has no such node.
            RouterUnreachable, CallTimeout: there is no answer.
        """
        query = NodeControlQuery(what=f"control.{node}.{control}", arguments=arguments or {})
        return body_of(self.sender.ask(query, _ROUTER, timeout), MAX_VIEW_BYTES)

    @at_home
    def restart_node(self, node: str, timeout: float | None = None) -> str:
        """Have a node of the router start over, whether it is out or not: what it holds is lost.

        Returns:
            The reason why it is out again, or an empty text if it works.

        Raises:
            CallError: the router has no such node.
            AccessDenied: the key of this process has no right ``admin`` on ``control.node.restart``.
            RouterUnreachable, CallTimeout: there is no answer.
        """
        return NodeStateAnswer.of(self.sender.ask(NodeRestartQuery(node=node), _ROUTER, timeout)).out
