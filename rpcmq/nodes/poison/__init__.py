"""The node type ``poison``: calls that kill consumers are kept from further ones."""

from rpcmq.nodes.poison.node import Poison

__all__ = ["Poison"]
