"""The node type ``tap``: copies of what passes on a topic, for an operator."""

from rpcmq.nodes.tap.node import Tap

__all__ = ["Tap"]
