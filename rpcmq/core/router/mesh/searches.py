"""The search for a consumer that is gone with a message: how long it lasts, and what the sender is told if in vain.

A process whose connection is lost may live, and go on at another router, within some seconds:
``mesh.return_seconds``, or, where its router drains and it has left in order, the ``mesh.recovery_seconds`` of the
death of a router. A process that is killed looks the same, so its calls end that much later than with one router: that
is why the time is short.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from rpcmq.core.router.mesh.part import MeshContext
from rpcmq.core.router.model import Delivery
from rpcmq.core.router.roundrobin import explain
from rpcmq.core.router.settings import Settings
from rpcmq.wire.consumer_name import ConsumerName

__all__ = ["Patience", "Search", "after_router", "for_consumer_elsewhere", "for_consumer_here"]


class Patience(NamedTuple):
    """The time in which consumers are to say whether they have a message (seconds), and the setting that says so."""

    seconds: float
    setting: str


class Search(NamedTuple):
    """A search for whoever has a message.

    Attributes:
        sought: the consumer that has left with it; None: it may be anybody.
        loss: how that was; empty if it is not known.
        details: the same as fields.
    """

    patience: Patience
    sought: ConsumerName | None = None
    loss: str = ""
    details: Mapping[str, Any] = {}


def after_router(settings: Settings) -> Search:
    """For whoever has a message that a router has had which is gone."""
    return Search(Patience(settings.mesh_recovery_seconds, "mesh.recovery_seconds"))


def for_consumer_here(now: float, context: MeshContext, delivery: Delivery, reason: str) -> Search | None:
    """For a consumer whose link to this router is gone for that ``reason``; None: it will not turn up again."""
    link = delivery.consumer.link
    if not context.may_go_on(link, reason):
        return None
    text, details = explain.departure(now, delivery, reason)
    patience = _patience(context, context.node.links.draining)
    return Search(patience, ConsumerName(link.origin, link.identity), text, details)


def for_consumer_elsewhere(now: float, context: MeshContext, delivery: Delivery, name: ConsumerName) -> Search | None:
    """For a consumer that has left another router, which says so; None: that is none any more."""
    neighbour = context.neighbours.by_link.get(delivery.consumer.link)
    if neighbour is None:
        return None
    who = f"{name.identity} (router {neighbour.name})"
    text, details = explain.departure(now, delivery, "its router says", who)
    return Search(_patience(context, neighbour.is_draining), name, text, details | {"server": name.identity})


def _patience(context: MeshContext, drains: bool) -> Patience:
    settings = context.node.settings
    if drains:
        return after_router(settings).patience
    return Patience(settings.mesh_return_seconds, "mesh.return_seconds")
