"""Random frames that get deep: mostly well-formed, with fields that collide with those of others."""

from __future__ import annotations

import json
from collections.abc import Callable
from random import Random
from typing import Any

from rpcmq.wire import FIRST_SESSION_KIND, NO_TTL, SETTLEMENT, VERSION, Address, Kind, pack

__all__ = ["FrameMaker"]

_NAMES = (
    ("a",), ("a",), ("b",), ("a", "s"), ("a", "t"), ("a.s",), ("a.b",), ("a", "", "x"), ("a", "b.c"), ("a.b", "c"),
    ("a.b.c",),
)  # fmt: skip
_ADDRESSES = [Address(*names).encode() for names in _NAMES]
_RARE_ADDRESSES = (
    *(Address(pattern).encode() for pattern in ("#", "*", "a.#", "#.b", "*.*", *["a..b"] * 8)),
    *(Address(f"topic-{i}", f"s-{i % 3}" if i % 2 else "").encode() for i in range(40)),
    b"", b"\0", b"\0\0\0", b"\0\1\0", b"\0\1\0\xff", b"\0\1\0\n", b"\0\xff\0a", b"\3\0\0abc",
)  # fmt: skip
_SESSION = [kind for kind in Kind if kind >= FIRST_SESSION_KIND]
_TALK = [
    *[Kind.REQUEST] * 6, *[Kind.CAST] * 6, *[Kind.REPLY] * 4, Kind.FAULT, Kind.END, *[Kind.ITEM] * 2, Kind.ALIVE,
    *[Kind.CANCEL] * 2, Kind.GRANT, *[Kind.SETTLE] * 3, *[Kind.REGISTER] * 3, Kind.UNREGISTER, *[Kind.SUBSCRIBE] * 3,
    Kind.UNSUBSCRIBE, *[Kind.PUBLISH] * 2, *[Kind.EVENT_CREDIT] * 2, Kind.INTRODUCE, Kind.QUERY,
    Kind.CLOCK_STAMP, Kind.OCCUPIED, Kind.GIVE_BACK,
]  # fmt: skip
#: Values of a JSON body, right and wrong.
_VALUES: tuple[Any, ...] = (
    0,
    1,
    2,
    5,
    65535,
    65536,
    -1,
    10**30,
    1.5,
    True,
    None,
    "",
    "x",
    "00" * 20,
    "zz",
    [],
    [1],
    {},
    {"a": {}},
)
_VIEWS = ("overview", "summary", "processes", "topics", "calls", "methods", "nonsense")


class FrameMaker:
    """Makes frames as the processes of a router might send them, and as they must not.

    Args:
        rng: where all choices come from.
        origins: the origins (router and handle, 12 bytes) that there are now.
        delivered: by origin, keys, attempts and tags of what was delivered there lately.
    """

    def __init__(self, rng: Random, origins: list[bytes], delivered: dict[bytes, list[tuple[bytes, int, int]]]) -> None:
        self._rng = rng
        self._origins = origins
        self._delivered = delivered
        self._origin = b""
        #: The number of messages so far.
        self.made = 0
        self._bodies: dict[int, Callable[[], bytes]] = {
            Kind.REGISTER: self._registration,
            Kind.SUBSCRIBE: lambda: self._json(window=self._rng.choice((1, 3, 100, *_VALUES))),
            Kind.QUERY: lambda: self._json(what=self._rng.choice(_VIEWS)),
            Kind.SETTLE: self._settlements,
            Kind.EVENT_CREDIT: lambda: self._rng.choice((1, 1, 2, 5, 2**32 - 1)).to_bytes(4),
            Kind.CLOCK_STAMP: bytes,
            Kind.OCCUPIED: lambda: self._rng.choice((0, 0, 1, 2, 70_000)).to_bytes(4),
            Kind.GIVE_BACK: bytes,
            Kind.GRANT: lambda: self._rng.randrange(20).to_bytes(4),
        }

    def batch(self, origin: bytes) -> tuple[bytes, list[bytes]]:
        """One batch as the link of ``origin`` might send it, and the frames that go with it."""
        rng = self._rng
        messages = [self.message(origin) for _ in range(rng.choice((1, 1, 1, 2, 5)))]
        payloads = [bytes(rng.randrange(50)) for message in messages if len(message) > 7 and message[7] & 1]
        if rng.random() < 0.01:
            payloads = payloads[1:] if payloads else [b"surplus"]
        return b"".join(messages), payloads

    def message(self, origin: bytes) -> bytes:
        """One message, mostly well-formed."""
        rng = self._rng
        self._origin = origin
        self.made += 1
        if rng.random() < 0.005:
            return rng.randbytes(rng.choice((0, 1, 39, 40, 41, 80)))
        kind = rng.choice(_TALK) if rng.random() < 0.9 else rng.choice((rng.choice(_SESSION), rng.randrange(256)))
        key, attempt, consumer = self._names(origin, kind)
        body = self._bodies.get(kind, self._payload)() if rng.random() < 0.95 else self._payload()
        message = pack(
            kind,
            body,
            flags=self._flags(),
            format=rng.choice((1, 1, 1, 1, 2, 3, 0, 7, 8, 255)) if rng.random() < 0.3 else 1,
            ttl=rng.choice((NO_TTL, NO_TTL, 0, 1, 100, 5000, 60_000, NO_TTL - 1)),
            key=key,
            address=rng.choice(_RARE_ADDRESSES if rng.random() < 0.1 else _ADDRESSES),
            method=rng.choice((b"", b"m", b"m", b"\xff", b"x" * 255)),
            trace=rng.choice((b"", b"", b"trace")),
            attempt=attempt,
            consumer=consumer,
            hops=rng.choice((0, 0, 0, 255)),
        )
        if kind in _WITHOUT_ADDRESS and rng.random() < 0.95:
            message = pack(kind, body, flags=0, format=1, key=key, attempt=attempt, consumer=consumer)
        return self._damaged(bytes(message)) if rng.random() < 0.03 else bytes(message)

    def hello(self, tokens: dict[str, str]) -> bytes:
        """A HELLO of one of few identities, with the right token, a wrong one, or none."""
        rng = self._rng
        self.made += 1
        identity = rng.choice("ABCDEF")
        body: dict[str, Any] = {
            "identity": identity,
            "queue_type": rng.choice(("roundrobin", "roundrobin", "roundrobin", "pubsub")),
            "versions": [VERSION],
            "accepts": rng.choice((["json", "pickle"], ["json"], ["json", "pickle", "dill"], "x", None)),
        }
        if rng.random() < 0.5:
            body["token"] = tokens.get(identity + body["queue_type"], "wrong")
            body["received"] = rng.choice((0, 0, 1, 2, 3, 5, 8, 10**6, -1, None, "x"))
        if rng.random() < 0.3:
            body["handle"] = rng.choice((1, 2, 3, 2**64 - 1, *_VALUES))
        if rng.random() < 0.05:
            body[rng.choice(list(body))] = rng.choice(_VALUES)
        return bytes(pack(Kind.HELLO, json.dumps(body).encode(), format=1))

    def about_link(self, counts: list[int]) -> bytes:
        """ACK, HEARTBEAT, GOODBYE or what a process must not send, with a right count or a wrong one."""
        rng = self._rng
        self.made += 1
        kind = rng.choice((Kind.ACK, Kind.HEARTBEAT)) if rng.random() < 0.9 else rng.randrange(FIRST_SESSION_KIND)
        sequence = rng.choice((*counts, *counts, 0, 1, 2**64 - 1))
        return bytes(pack(kind, sequence=sequence, flags=self._flags() & 0xFFFE))

    def _names(self, origin: bytes, kind: int) -> tuple[bytes, int, int]:
        rng = self._rng
        delivered = self._delivered.get(origin)
        if kind in _ANSWERS and delivered and rng.random() < 0.9:
            return rng.choice(delivered)
        if rng.random() < 0.05:
            origin = rng.choice((*self._origins, bytes(12), b"\xff" * 12))
        attempt = rng.choice((1, 255)) if rng.random() < 0.03 else 0
        tagged = kind in (Kind.REGISTER, Kind.UNREGISTER) or rng.random() < 0.03
        return origin + rng.randrange(40).to_bytes(8), attempt, rng.randrange(3) if tagged else 0

    def _flags(self) -> int:
        rng = self._rng
        if rng.random() < 0.6:
            return 0
        return 1 << rng.randrange(16) if rng.random() < 0.8 else rng.randrange(65536)

    def _payload(self) -> bytes:
        rng = self._rng
        return rng.choice((b"", b"x", b"{}", b"[]", b"{", bytes(4), bytes(26), b"\xff" * 30, b"x" * 1000))

    def _json(self, **body: Any) -> bytes:
        return json.dumps(body).encode()

    def _registration(self) -> bytes:
        rng = self._rng
        body = {"credit": rng.choice((1, 1, 2, 3, 10)) if rng.random() < 0.9 else rng.choice(_VALUES)}
        for name in ("peer_url", "recent"):
            if rng.random() < 0.1:
                body[name] = rng.choice(_VALUES)
        return self._json(**body)

    def _settlements(self) -> bytes:
        rng = self._rng
        delivered = self._delivered.get(self._origin)
        entries = [rng.choice(delivered) for _ in range(rng.randrange(4))] if delivered else []
        return b"".join(SETTLEMENT.pack(key, attempt, rng.choice((0, 0, 1, 200)), 5) for key, attempt, _ in entries)

    def _damaged(self, message: bytes) -> bytes:
        rng = self._rng
        position = rng.randrange(len(message))
        if rng.random() < 0.3:
            return message[:position]
        # The length and version stay: else nothing of the batch would be looked at.
        position = position if position > 4 else 36 + position
        return message[:position] + bytes([rng.randrange(256)]) + message[position + 1 :]


_ANSWERS = {Kind.REPLY, Kind.FAULT, Kind.END, Kind.ITEM, Kind.ALIVE, Kind.GIVE_BACK}
_WITHOUT_ADDRESS = _ANSWERS | {
    Kind.CANCEL,
    Kind.GRANT,
    Kind.SETTLE,
    Kind.UNREGISTER,
    Kind.EVENT_CREDIT,
    Kind.QUERY,
    Kind.CLOCK_STAMP,
    Kind.OCCUPIED,
    Kind.GIVE_BACK,
}
