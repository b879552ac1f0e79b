"""Routers with plugged-in nodes for tests: in the virtual network, and the plans of nodes that are not installed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from rpcmq.core.router.router import Router
from rpcmq.nodes.keeper import Keeper
from rpcmq.nodes.loading import PlugIns
from rpcmq.nodes.node import Node
from rpcmq.nodes.plan import Plan
from rpcmq.nodes.plug_in import PlugIn

__all__ = ["engine_with", "node_of", "plan_of", "plug_in_of"]


def plan_of(make: type[Node], name: str = "", settings: Mapping[str, Any] | None = None, **bounds: Any) -> Plan:
    """The plan of a node that need not be installed.

    Args:
        make: its class.
        name: its name; empty: that of the class, in lower case.
        settings: values of ``make.Settings``, unchecked.
        bounds: ``max_bytes``, ``max_seconds``.
    """
    name = name or make.__name__.lower()
    chosen = {"max_bytes": 16 << 20, "max_seconds": 0.25, **bounds}
    return Plan(name, name, "a test", make, make.Settings(**(settings or {})), **chosen)


def engine_with(*nodes: type[Node] | Plan, keepers: Mapping[str, Keeper] | None = None) -> Callable[..., Router]:
    """Return a maker of routers with ``nodes``, for :class:`rpcmq.testing.network.Network`.

    Args:
        keepers: of the rows that nodes keep, by name; its ``on_kept`` says when they are on the disk.
    """
    plans = [node if isinstance(node, Plan) else plan_of(node) for node in nodes]
    return partial(Router, plug_ins=PlugIns(plans, dict(keepers or {})).makers)


def plug_in_of(router: Router, name: str) -> PlugIn:
    """The node ``name`` among the node types of ``router``."""
    return next(each for each in router.nodes if isinstance(each, PlugIn) and each.plan.name == name)


def node_of(router: Router, name: str) -> Any:
    """The plugged-in node ``name`` itself; None: it is out."""
    return plug_in_of(router, name).node
