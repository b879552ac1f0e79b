"""Keys, and a router that has them."""

from __future__ import annotations

from typing import Any

from rpcmq.core.router.permissions import usage_row
from rpcmq.core.router.rights import EVERYTHING, Key, Right
from rpcmq.errors import Outcome
from rpcmq.testing.network import Call, Network
from rpcmq.wire import Kind

__all__ = ["NODE", "ROOT", "WEB", "denied", "rekey", "right", "rows", "slow"]


NODE = Key("node", "NODE", (Right(frozenset(["serve"]), ("compute", "compute.node-7")),))
WEB = Key("web", "WEB", (Right(frozenset(["call", "cast"]), ("compute.#",)),))
ROOT = Key("root", "ROOT", (EVERYTHING,))


def right(verbs: str, *topics: str, exchanges: tuple[str, ...] = ("",)) -> Right:
    return Right(frozenset(verbs.split(",")), topics, exchanges)


def rows(net: Network) -> list[dict[str, Any]]:
    return [usage_row(usage, net.now) for usage in net.router.links.access.usages() or ()]


def rekey(net: Network, *keys: Key) -> None:
    net.router.set_authorized_keys(net.now, keys)
    net.run()


def denied(call: Call) -> dict[str, Any]:
    """The details of the router's refusal of a call that the key has no right to."""
    (answer,) = call.answers
    assert answer.kind is Kind.ERROR and answer.outcome is Outcome.DENIED
    details = answer.body["details"]
    for named in (details["verb"], details["topic"], details["key"]):
        assert named in answer.body["text"]
    return dict(details)


def slow(rate: float) -> Key:
    return Key("web", "WEB", WEB.rights, messages_per_second=rate)
