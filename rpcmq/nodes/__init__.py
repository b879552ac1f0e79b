"""The contract of node types that are plugged into a router: all that a plug-in may import of rpcmq.

A plug-in is a distribution with an entry point in the group ``rpcmq.nodes`` that names a class derived from
:class:`Node`. A table ``[[node]]`` of the router's configuration loads it. It runs in the router's process, and is
code that the router trusts: the bounds here protect it from mistakes, not from malice.

Within one :data:`API_VERSION` names are added and none is changed or removed. A node that says another version than the
router has is refused at the start.
"""

from rpcmq.config.values import FLAG, NAME, WORDS, ValueType, choice, integer, number, seconds, setting, size
from rpcmq.errors import ConfigError, ProtocolError
from rpcmq.nodes.ask import Ask
from rpcmq.nodes.context import Context
from rpcmq.nodes.loss import Loss
from rpcmq.nodes.node import API_VERSION, Node, NoSettings
from rpcmq.nodes.passage import Passage
from rpcmq.nodes.peer import Peer
from rpcmq.nodes.stop import Stop
from rpcmq.wire import FIRST_FREE_NODE_KIND, FIRST_NODE_KIND

__all__ = [
    "API_VERSION",
    "FIRST_FREE_NODE_KIND",
    "FIRST_NODE_KIND",
    "FLAG",
    "NAME",
    "WORDS",
    "Ask",
    "ConfigError",
    "Context",
    "Loss",
    "NoSettings",
    "Node",
    "Passage",
    "Peer",
    "ProtocolError",
    "Stop",
    "ValueType",
    "choice",
    "integer",
    "number",
    "seconds",
    "setting",
    "size",
]
