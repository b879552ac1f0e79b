"""A node as the configuration wants it: found, and its settings checked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rpcmq.nodes.keeper import Keeper
from rpcmq.nodes.node import Node

__all__ = ["Plan", "row_of"]


@dataclass(frozen=True)
class Plan:
    """A node that was found and whose settings are right.

    Attributes:
        name: its own.
        type_name: that of its entry point.
        origin: the distribution that it comes from, with its version.
        make: its class.
        settings: an object of ``make.Settings``.
        max_bytes, max_seconds: its bounds.
        file: where the router puts what it keeps for its next life; empty: nowhere.
    """

    name: str
    type_name: str
    origin: str
    make: type[Node]
    settings: Any
    max_bytes: int
    max_seconds: float
    file: str = ""


def row_of(plan: Plan, keeper: Keeper | None) -> dict[str, Any]:
    """The node as operators see it, as far as its plan and what it keeps say it."""
    return {
        "name": plan.name,
        "type": plan.type_name,
        "from": plan.origin,
        "max_bytes": plan.max_bytes,
        "max_seconds": plan.max_seconds,
        "file": plan.file,
        "file_problem": keeper.problem if keeper is not None else "",
        "kinds": [f"{kind:#04x}" for kind in plan.make.kinds],
    }
