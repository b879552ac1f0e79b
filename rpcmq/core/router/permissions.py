"""The use of each key, and the permissions of each link, as far as they were asked for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from rpcmq.core.common.token_bucket import TokenBucket
from rpcmq.core.router.rights import Key

__all__ = ["KeyUsage", "Permissions", "usage_row"]


class KeyUsage:
    """The use of one key since the router's start, and its refusals."""

    def __init__(self, key: Key) -> None:
        self.key = key
        self.links = 0
        self.connects = 0
        #: Monotonic seconds of the last HELLO; None: never.
        self.last_seen: float | None = None
        self.refused: Counter[str] = Counter()
        #: Position of a right -> decisions that it was the reason of.
        self.used: Counter[int] = Counter()
        #: Limits the messages of the key; None: nothing does.
        self.bucket: TokenBucket | None = None
        #: Identities that its processes were introduced to: what they exchange does not pass the router.
        self.introduced: dict[str, None] = {}
        #: Of a router's key: the id that it had last. 0: it was not linked yet.
        self.router_id = 0
        #: The number of identities in ``introduced`` beyond which those that have left are forgotten.
        self.most_introduced = 256


class Permissions:
    """The addresses that one link was found to be allowed, as on the wire. See also ``Link.allowed_calls``."""

    __slots__ = ("fanout", "publish", "throttled", "usage")

    def __init__(self, usage: KeyUsage) -> None:
        self.usage = usage
        self.fanout: set[bytes] = set()
        self.publish: set[bytes] = set()
        #: Address -> the first of the casts to it that exceeded the rate: it must come again before
        #: later ones are accepted, so that their order is preserved.
        self.throttled: dict[bytes, int] = {}


def usage_row(usage: KeyUsage, now: float) -> dict[str, Any]:
    """Return a key, its use and its refusals as plain data."""
    key = usage.key
    rights: list[Mapping[str, Any]] = [
        {
            "verbs": sorted(right.verbs),
            "exchanges": list(right.exchanges),
            "topics": list(right.topics),
            "used": usage.used[number],
        }
        for number, right in enumerate(key.rights)
    ]
    return {
        "name": key.name,
        "public": key.public,
        "owner": key.owner,
        "expires": key.expires,
        "links": usage.links,
        "connects": usage.connects,
        "last_seen_seconds": None if usage.last_seen is None else round(now - usage.last_seen, 3),
        "refused": dict(usage.refused),
        "rights": rights,
    }
