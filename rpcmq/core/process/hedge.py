"""Calls that several consumers may have, in the process that makes them."""

from __future__ import annotations

from rpcmq.core.process.call import Call
from rpcmq.core.process.uplink import Uplink

__all__ = ["send_hedge"]


def send_hedge(uplink: Uplink, call: Call) -> None:
    """Tell the router, to which ``call`` was just sent, on which terms several consumers may have it, if any.

    A router that does not know how gives it to one.
    """
    if call.hedge is not None and uplink.router is not None and uplink.router.hedges:
        uplink.send(call.hedge.message(call.key))
