"""Signed payloads: a keyed BLAKE2b over payload and header, made by the sender and checked before any decode.

The *seal* is a suffix of the payload, announced by the flag ``SEALED``. What it covers and what not is in
``docs/protocol/payloads.md``. Whoever holds a key can make any seal of that key: it proves that the sender holds
the key, so that a router, which does not, can neither change nor invent what is sealed. It does not prove that the
payload is harmless.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from hmac import compare_digest
from struct import Struct
from typing import Final, NamedTuple

from rpcmq.errors import PayloadRefused

__all__ = [
    "KEY_BYTES",
    "NOT_BOUND",
    "OVERHEAD",
    "MacKeys",
    "NotTrusted",
    "ReplayGuard",
    "Signer",
    "VerifiedPayload",
    "split_signature",
]

KEY_BYTES: Final = 32
#: Most bytes that a signature adds to a payload.
OVERHEAD: Final = 39 + 255 + 64
NOT_BOUND: Final = bytes(16)

_VERSION = 1
_PERSON = b"rpcmq seal 1"
_TAG_BYTES = 16
#: Nonce, time in ms since the epoch, life in ms, tag, bytes of sender and key id, version. Sender and key id are
#: before it.
_TAIL = Struct(">8sQI16sBBB")
#: Version, kind, format, flags, number, time, life, nonce, tag of the request, then bytes of what follows: sender,
#: key id, address, method. All lengths are in it, so that no two messages are the same bytes.
_HEAD = Struct(">BBBHIQI8s16sBBHB")
_MAX_LIFE_MS = 0xFFFFFFFF


class NotTrusted(PayloadRefused):
    """A payload was refused before it was decoded. Counted and logged where it was refused.

    Args:
        text: the sentence.
        reason: short, for counters.
    """

    def __init__(self, text: str, reason: str = "") -> None:
        super().__init__(text)
        self.reason = reason


@dataclass(frozen=True)
class MacKeys:
    """Keys by their ids.

    Attributes:
        write: id of the key that seals.
        secrets: id to key of 32 bytes; all of them are good to read.
    """

    write: str
    secrets: Mapping[str, bytes] = field(repr=False)


class VerifiedPayload(NamedTuple):
    """A payload with a valid signature.

    ``time`` is seconds since the epoch, ``life`` seconds; ``tag`` is what an answer is bound to.
    """

    payload: bytes | memoryview
    key_id: str
    sender: str
    nonce: bytes
    time: float
    life: float
    tag: bytes


class _Parts(NamedTuple):
    size: int
    sender: bytes
    key_id: bytes
    nonce: bytes
    time: int
    life: int
    tag: bytes


def _parts(data: bytes | memoryview) -> _Parts:
    """The seal at the end of ``data``.

    Raises:
        NotTrusted: there is none that can be read.
    """
    end = len(data) - _TAIL.size
    if end < 0:
        raise NotTrusted("a payload that is flagged as signed is shorter than a signature", "malformed signature")
    nonce, sent, life, tag, sender_bytes, id_bytes, version = _TAIL.unpack_from(data, end)
    start = end - sender_bytes - id_bytes
    if version != _VERSION or start < 0:
        raise NotTrusted("a payload's signature cannot be read", "malformed signature")
    cut = start + sender_bytes
    return _Parts(len(data) - start, bytes(data[start:cut]), bytes(data[cut:end]), nonce, sent, life, tag)


def split_signature(data: bytes | memoryview) -> bytes | memoryview:
    """Return the payload without its signature, unchecked, for receivers without keys.

    Raises:
        NotTrusted: there is no seal that can be read.
    """
    return memoryview(data)[: len(data) - _parts(data).size]


class Signer:
    """Signs the payloads a process sends, and verifies those it receives.

    Args:
        keys: the keys.
        identity: of this process.
        window: longest life of what is sealed without a deadline, and of anything that is opened (seconds).
        skew: how far clocks may differ (seconds).
        clock: seconds since the epoch.
    """

    def __init__(
        self, keys: MacKeys, identity: str, window: float = 3600.0, skew: float = 30.0,
        clock: Callable[[], float] = time.time,
    ) -> None:  # fmt: skip
        #: Key id -> the hash with the key in it, to be copied.
        self._begun = {
            name.encode(): blake2b(digest_size=_TAG_BYTES, key=secret, person=_PERSON)
            for name, secret in keys.secrets.items()
        }
        self._key_id = keys.write.encode()
        self._writes = self._begun[self._key_id]
        self._sender = identity.encode()[:255]
        self._window = window
        self._skew = skew
        self._clock = clock

    def seal(
        self,
        kind: int,
        format: int,
        payload: bytes | memoryview,
        *,
        flags: int = 0,
        address: bytes = b"",
        method: bytes = b"",
        life: float | None = None,
        bound: bytes = NOT_BOUND,
        number: int = 0,
    ) -> tuple[bytes, bytes]:
        """Sign ``payload``; return it with its signature, and the signature's tag.

        Args:
            flags: those that no router may change.
            life: seconds for which it is worth something; None: as long as the window.
            bound: tag of the request that this answers.
            number: how many of the kind went before in this answer.
        """
        nonce = os.urandom(8)
        sent = int(self._clock() * 1000)
        seconds = self._window if life is None else min(life, self._window)
        life_ms = max(1, min(_MAX_LIFE_MS, round(seconds * 1000)))
        sender, key_id = self._sender, self._key_id
        texts = sender + key_id + address + method
        lengths = len(sender), len(key_id), len(address), len(method)
        head = _HEAD.pack(_VERSION, kind, format, flags, number, sent, life_ms, nonce, bound, *lengths)
        tag = _tag(self._writes, head + texts, payload)
        tail = _TAIL.pack(nonce, sent, life_ms, tag, len(sender), len(key_id), _VERSION)
        return b"".join((payload, sender, key_id, tail)), tag

    def open(
        self,
        data: bytes | memoryview,
        kinds: tuple[int, ...],
        format: int,
        *,
        flags: int = 0,
        address: bytes = b"",
        method: bytes = b"",
        bound: bytes = NOT_BOUND,
        number: int = 0,
    ) -> VerifiedPayload:
        """Verify ``data``, and return its payload if the signature is valid and has not expired.

        Args:
            kinds: what it may have been sealed as.

        Raises:
            NotTrusted: the seal is not genuine, of an unknown key, or too old.
        """
        size, sender, key_id, nonce, sent, life_ms, tag = _parts(data)
        name = key_id.decode(errors="replace")
        begun = self._begun.get(key_id)
        if begun is None:
            raise NotTrusted(f"it is signed with the key {name[:64]!r}, which is not in our mac_file", "unknown key")
        payload = memoryview(data)[: len(data) - size]
        texts = sender + key_id + address + method
        lengths = len(sender), len(key_id), len(address), len(method)
        for kind in kinds:
            head = _HEAD.pack(_VERSION, kind, format, flags, number, sent, life_ms, nonce, bound, *lengths)
            if compare_digest(_tag(begun, head + texts, payload), tag):
                break
        else:
            raise NotTrusted(f"its signature with the key {name!r} is wrong", "wrong signature")
        if bound == NOT_BOUND:
            self._check_age(sent / 1000, life_ms / 1000)
        made = payload if len(payload) >= 1 << 15 else bytes(payload)
        return VerifiedPayload(made, name, sender.decode(errors="replace"), nonce, sent / 1000, life_ms / 1000, tag)

    def until(self, opened: VerifiedPayload) -> float:
        """Return when ``opened`` expires for all receivers (seconds since the epoch)."""
        return opened.time + min(opened.life, self._window) + self._skew

    def now(self) -> float:
        """Seconds since the epoch."""
        return self._clock()

    def _check_age(self, sent: float, life: float) -> None:
        now = self._clock()
        if now < sent - self._skew:
            ahead = sent - now
            raise NotTrusted(f"it is signed {ahead:.0f} s ahead of our clock; set the clocks", "signed in the future")
        if now > sent + min(life, self._window) + self._skew:
            text = f"it was signed {now - sent:.0f} s ago, to be used within {min(life, self._window):.0f} s"
            raise NotTrusted(text, "too old")


def _tag(begun: blake2b, covered: bytes, payload: bytes | memoryview) -> bytes:
    mac = begun.copy()
    mac.update(covered)
    mac.update(payload)
    return mac.digest()


#: Nonces that expire within the same second are forgotten together; interval of that (seconds).
_LOOK_EVERY = 8.0


class ReplayGuard:
    """The nonces of verified, unexpired payloads, to detect replays, within a bound.

    Where there are more than ``most``, the oldest are forgotten, and from then on nothing is taken that was
    signed before the newest of them: a message that was on its way for long is refused rather than run twice.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._seen: set[bytes] = set()
        #: Second in which they end -> nonces, and when the last of them was signed.
        self._spans: dict[int, tuple[list[bytes], float]] = {}
        self._next_look = 0.0
        self._floor = 0.0

    def __len__(self) -> int:
        return len(self._seen)

    def check(self, now: float, nonce: bytes, sent: float, until: float) -> None:
        """Take note of a message.

        Args:
            now: seconds since the epoch, as ``sent``, when it was signed, and ``until``, when it is refused anyway.

        Raises:
            NotTrusted: it was here before, or is so old that this cannot be told.
        """
        if nonce in self._seen:
            raise NotTrusted("it was received before: a replay", "repeated")
        if sent <= self._floor:
            text = "it is older than the remembered signed messages (`remember` in the trust policy)"
            raise NotTrusted(text, "older than the memory")
        if now >= self._next_look:
            self._next_look = now + _LOOK_EVERY
            for number in [number for number in self._spans if number + 1 < now]:
                self._seen.difference_update(self._spans.pop(number)[0])
        if len(self._seen) >= self._most:
            oldest = min(self._spans, key=lambda number: self._spans[number][1])
            nonces, newest = self._spans.pop(oldest)
            self._seen.difference_update(nonces)
            self._floor = max(self._floor, newest)
        number = int(until)
        nonces, newest = self._spans.get(number, ([], 0.0))
        nonces.append(nonce)
        self._spans[number] = nonces, max(newest, sent)
        self._seen.add(nonce)
