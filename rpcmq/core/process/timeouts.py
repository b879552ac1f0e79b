"""The error of a call that timed out: what was awaited, and what is known of the router."""

from __future__ import annotations

from typing import Any

from rpcmq.core.process.call import Call
from rpcmq.core.process.uplink import Uplink
from rpcmq.errors import CallTimeout

__all__ = ["timeout_error"]


def timeout_error(now: float, call: Call, uplink: Uplink, awaited: str, never_accepted: bool) -> CallTimeout:
    """Return the error of ``call``, which has timed out.

    Args:
        awaited: what did not come, in words.
        never_accepted: whether it is certain that no router has passed the call on.
    """
    details: dict[str, Any] = {"topic": call.address, "waited_seconds": round(now - call.sent_at, 3)}
    text = f"{awaited} from {call.address!r}"
    if not uplink.ready:
        details["router"] = "not connected"
        text += f": no connection to the router for {now - uplink.lost_at:.1f} s"
    elif never_accepted:
        details["router"] = "shutting down"
        text += ": the router is shutting down and has not accepted it"
    else:
        silent = now - uplink.heard
        details["router_silent_seconds"] = round(silent, 3)
        is_silent = uplink.silent_seconds(now)
        text += f"; the router has been silent for {silent:.1f} s" if is_silent else ""
        text += "" if is_silent else f"; the router was last heard {silent:.1f} s ago"
    if never_accepted:
        details["started"] = "no"
        text += "; it did not run"
    return CallTimeout(text, details)
