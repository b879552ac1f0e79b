"""One tap: what it wants to see, and the copies that wait for its reader, within bounds."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

from rpcmq.nodes import Ask, Passage, Peer, ProtocolError
from rpcmq.nodes.tap.budget import Budget
from rpcmq.nodes.tap.redaction import shown_payload

__all__ = ["FIELDS", "WHATS", "ActiveTap", "Wish"]

#: The sorts of passages, and the fields of a copy.
WHATS = ("call", "cast", "fanout", "reply", "fault", "end", "ended")
FIELDS = (
    "what", "id", "topic", "exchange", "server", "method", "caller", "consumer", "attempt", "outcome", "seconds", "ttl",
    "size_bytes", "format",
)  # fmt: skip
_OPTIONS = frozenset(("do", "topic", "exchange", "seconds", "rate", "count", "what", "fields", "redact", "payload"))
_MAX_NAME, _MAX_WORDS, _MAX_WORD = 255, 50, 100
#: Seconds for which nobody reads it after which a tap ends.
UNREAD_SECONDS = 30.0


@dataclass(frozen=True)
class Wish:
    """A tap that is asked for."""

    topic: str
    exchange: str
    seconds: float
    rate: float
    count: int
    what: frozenset[str]
    fields: tuple[str, ...]
    redact: tuple[str, ...]
    payload: bool

    @classmethod
    def of(cls, asked: Mapping[str, Any], longest: float, fastest: float, most: int) -> Wish:
        """Read what is asked for; the bounds are those of the node.

        Raises:
            ProtocolError: a member is unknown or wrong; names it and its bound.
        """
        if unknown := asked.keys() - _OPTIONS:
            raise ProtocolError(f"unknown: {', '.join(sorted(map(repr, unknown)))[:200]}", "tap")
        topic = _name(asked, "topic")
        if not topic:
            raise ProtocolError("topic: expected the name of a topic", "tap")
        return cls(
            topic,
            _name(asked, "exchange"),
            _number(asked, "seconds", min(60.0, longest), longest),
            _number(asked, "rate", min(100.0, fastest), fastest),
            int(_number(asked, "count", most, most)),
            frozenset(_words(asked, "what", WHATS, WHATS)),
            tuple(_words(asked, "fields", FIELDS, FIELDS)),
            tuple(word.lower() for word in _words(asked, "redact", (), None)),
            asked.get("payload") is True,
        )


def _name(asked: Mapping[str, Any], member: str) -> str:
    value = asked.get(member, "")
    if not isinstance(value, str) or len(value) > _MAX_NAME or not value.isprintable():
        raise ProtocolError(f"{member}: expected printable text of at most {_MAX_NAME} characters", "tap")
    return value


def _number(asked: Mapping[str, Any], member: str, default: float, most: float) -> float:
    value = asked.get(member, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= most:
        raise ProtocolError(f"{member} = {value!r:.50}: expected a number above 0, and at most {most:g}", "tap")
    return value


def _words(asked: Mapping[str, Any], member: str, default: Sequence[str], known: Sequence[str] | None) -> Sequence[str]:
    value = asked.get(member, default)
    if not isinstance(value, list | tuple) or len(value) > _MAX_WORDS:
        raise ProtocolError(f"{member}: expected a list of at most {_MAX_WORDS} words", "tap")
    for word in value:
        if not isinstance(word, str) or len(word) > _MAX_WORD or (known is not None and word not in known):
            expected = f"one of {', '.join(known)}" if known is not None else "a word"
            raise ProtocolError(f"{member}: {word!r:.50}: expected {expected}", "tap")
    return value


class ActiveTap:
    """A tap that runs.

    Attributes:
        reader: the ask for copies that is still to be answered; None: there is none.
        lost: copies that there were no room or time for, since the reader was told last.
        over: why it has ended; empty: it runs.
    """

    def __init__(self, token: str, peer: Peer, wish: Wish, now: float, buffer_bytes: int) -> None:
        self.token = token
        self.peer = peer
        self.wish = wish
        self.began = self.read_at = now
        self.ends_at = now + wish.seconds
        self.reader: Ask | None = None
        self.read_until = inf
        self.lost = self.copies = self.lost_in_all = 0
        self.over = ""
        self._buffer_bytes = buffer_bytes
        self._waiting: deque[bytes] = deque()
        self._waiting_bytes = 0
        self._copies = Budget(wish.rate, now)

    def offer(self, passage: Passage, wall_ms: int, redact: Sequence[str], payload_bytes: int, looks: Budget) -> bool:
        """Take a copy of ``passage``, if it is wanted, not too soon, and there is room; return whether it was taken.

        Args:
            looks: bytes of payloads that may be looked into, of all taps.
        """
        wish = self.wish
        if self.over or passage.what not in wish.what:
            return False
        now = passage.now
        if not self._copies.has(now) or self._waiting_bytes >= self._buffer_bytes:
            self.lost += 1
            self.lost_in_all += 1
            return False
        self._copies.spend()
        row: dict[str, Any] = {"at_ms": wall_ms}
        row |= {field: _value_of(passage, field) for field in wish.fields}
        if wish.payload and passage.what != "ended":
            row["payload"], why = self._payload(passage, redact, payload_bytes, looks)
            if why:
                row["withheld"] = why
        line = json.dumps(row, separators=(",", ":")).encode()
        self._waiting.append(line)
        self._waiting_bytes += len(line)
        self.copies += 1
        if self.copies >= wish.count:
            self.over = f"its budget of {wish.count} copies is used up"
        return True

    def _payload(self, passage: Passage, redact: Sequence[str], payload_bytes: int, looks: Budget) -> tuple[Any, str]:
        """The payload as it may be seen, and why it is withheld."""
        size = min(len(passage.payload), payload_bytes)
        if not looks.has(passage.now, size):
            return None, "more was looked into than payload_bytes_per_second"
        looks.spend(size)
        return shown_payload(passage.format, passage.payload, (*redact, *self.wish.redact), payload_bytes)

    @property
    def has_news(self) -> bool:
        """Whether there is something to tell its reader."""
        return bool(self._waiting or self.over)

    @property
    def has_copies(self) -> bool:
        """Whether copies wait for its reader."""
        return bool(self._waiting)

    def read(self, now: float, ask: Ask, most: int) -> None:
        """Answer ``ask`` with what waits, at most about so many bytes."""
        self.reader, self.read_until, self.read_at = None, inf, now
        taken: list[bytes] = []
        size = 0
        while self._waiting and size < most:
            line = self._waiting.popleft()
            self._waiting_bytes -= len(line)
            size += len(line)
            taken.append(line)
        lost, self.lost = self.lost, 0
        over = "" if self._waiting else self.over
        about = (f'"lost":{lost}', f'"left":{max(0.0, round(self.ends_at - now, 3))}', f'"over":{json.dumps(over)}')
        ask.answer(b'{%s,"copies":[%s]}' % (",".join(about).encode(), b",".join(taken)))

    def next_deadline(self) -> float:
        """The time at which it ends, or its reader wants an answer (monotonic seconds)."""
        if self.over:
            return self.read_at + UNREAD_SECONDS if self.reader is None else -inf
        unread = inf if self.reader is not None else self.read_at + UNREAD_SECONDS
        return min(self.ends_at, self.read_until, unread)


def _value_of(passage: Passage, field: str) -> Any:
    value = getattr(passage, field)
    return round(value, 6) if isinstance(value, float) else value
