"""The story of a quarantined call, for its callers and for operators."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from rpcmq.nodes.poison.facts import Kill, Suspect

__all__ = ["SHORT", "kill_row", "name_of", "row_of", "story_of"]

#: Kills that the text for callers names.
_MOST_TOLD = 3
#: Hexadecimal digits of a fingerprint that are enough to name it.
SHORT = 12


def name_of(suspect: Suspect) -> str:
    """Topic and method of a call."""
    call = suspect.call
    place = f"{call.topic}.{call.server}" if call.server else call.topic
    return f"{call.method!r} of {place!r}" + (f" in {call.exchange!r}" if call.exchange else "")


def story_of(suspect: Suspect) -> str:
    """One sentence on what a quarantined call has done, and what to do about it."""
    kills = suspect.kills[-_MOST_TOLD:]
    told = "; ".join(_told(kill) for kill in kills)
    earlier = f", the last {len(kills)}" if len(kills) < len(suspect.kills) else ""
    short = suspect.call.fingerprint[:SHORT]
    return (
        f"quarantined: {name_of(suspect)} with this payload has killed {len(suspect.kills)} consumers{earlier}: {told}."
        f" `rpcmq poison show {short}` shows it, `rpcmq poison release {short}` lets it through"
    )


def _told(kill: Kill) -> str:
    death = kill.death
    time = datetime.fromtimestamp(death.at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
    return f"{death.identity} at {time}, {kill.seconds:.1f} s after it was given it"


def row_of(suspect: Suspect, chance: float, wall_ms: int) -> dict[str, Any]:
    """A call as operators see it.

    Args:
        chance: probability of so many kills by chance.
        wall_ms: when it was quarantined, or killed last.
    """
    call = suspect.call
    return {
        "fingerprint": call.fingerprint,
        "state": "quarantined" if suspect.quarantined_at is not None else "suspect",
        "topic": call.topic,
        "exchange": call.exchange,
        "server": call.server,
        "method": call.method,
        "format": call.format,
        "size_bytes": call.size_bytes,
        "since_ms": wall_ms,
        "stopped": suspect.stopped,
        "chance": float(f"{chance:.2g}"),
        "doubtful": suspect.is_doubtful,
        "kills": [
            kill_row(kill) | ({"explained": True} if kill.death.loss.process in suspect.explained else {})
            for kill in suspect.kills
        ],
    }


def kill_row(kill: Kill) -> dict[str, Any]:
    """A kill as operators see it, and callers in the details of their error."""
    death = kill.death
    return {
        "consumer": death.identity,
        "router": death.router,
        "at_ms": death.at_ms,
        "seconds": round(kill.seconds, 3),
        "caller": kill.caller,
        "id": kill.id,
        **death.description,
    }
