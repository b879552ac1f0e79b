"""The views that a router has."""

from __future__ import annotations

from rpcmq.testing.network import Network

VIEWS = tuple(Network().router.views)
