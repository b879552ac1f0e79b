"""Taps: copies of the envelopes of what passes on a topic, for one process of an operator.

A tap has a rate, a budget and an end, and ends with the link of its process. Its reader asks for copies, and is
answered when there are some; a reader that is slow loses copies, which are counted. While there is no tap, nothing is
watched, and calls and casts cost what they cost without this node.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import inf
from typing import Any

from rpcmq.nodes import (
    FLAG,
    WORDS,
    Ask,
    Context,
    Node,
    Passage,
    Peer,
    ProtocolError,
    integer,
    number,
    seconds,
    setting,
    size,
)
from rpcmq.nodes.tap.active import UNREAD_SECONDS, ActiveTap, Wish
from rpcmq.nodes.tap.budget import Budget

__all__ = ["TAP_KIND", "Tap"]

TAP_KIND = 0x80
_MAX_ASK_BYTES, _ANSWER_BYTES = 64 << 10, 256 << 10
_MAX_WAIT = 10.0


@dataclass(frozen=True)
class TapSettings:
    """Settings of the node type ``tap``."""

    max_taps: int = setting(16, integer(1, 1000), "taps at a time")
    max_rate: float = setting(1000.0, number(0.1, 100_000), "copies a second of one tap, at most")
    max_duration: float = setting(3600.0, seconds(1, 86400.0), "seconds that a tap lasts, at most")
    max_copies: int = setting(1_000_000, integer(1), "copies of one tap, at most")
    buffer_bytes: int = setting(256 << 10, size(4096, 64 << 20), "bytes of copies that wait for a tap's reader")
    payloads: bool = setting(False, FLAG, "whether payloads in JSON can be seen, with the right tap.payload:TOPIC")
    payload_bytes: int = setting(16 << 10, size(0, 1 << 20), "bytes of a payload beyond which it is withheld")
    payload_bytes_per_second: int = setting(
        128 << 10, size(1, 1 << 30), "bytes of payloads in a second that are looked into for all taps"
    )
    redact: tuple[str, ...] = setting(
        (
            "*password*",
            "*passwd*",
            "*pass",
            "*passphrase*",
            "*pwd*",
            "*pswd*",
            "*secret*",
            "*token*",
            "*credential*",
            "*cookie*",
            "*authorization*",
            "*key",
        ),
        WORDS,
        "patterns of names in payloads whose values nobody sees",
    )


class Tap(Node):
    """Gives processes copies of what passes."""

    Settings = TapSettings
    kinds = {TAP_KIND: ""}  # noqa: RUF012 - as a plug-in writes it
    views = ("taps",)

    def __init__(self, context: Context, settings: TapSettings) -> None:
        super().__init__(context, settings)
        self._taps: dict[str, ActiveTap] = {}
        #: The taps of each topic.
        self._of_topic: dict[tuple[str, str], list[ActiveTap]] = {}
        self._looks = Budget(settings.payload_bytes_per_second, context.now, settings.payload_bytes)
        self._redact = tuple(name.lower() for name in settings.redact)
        self._counts = Counter({"taps": 0, "copies": 0, "lost": 0})

    # --- asks --------------------------------------------------------------------------------

    def take(self, now: float, ask: Ask) -> None:
        """Start a tap, give copies of one, or stop one."""
        asked = ask.json_object(_MAX_ASK_BYTES)
        verbs = {"start": self._start, "read": self._read, "stop": self._stop}
        verb = verbs.get(str(asked.get("do")))
        if verb is None:
            raise ProtocolError(f"do: expected one of {', '.join(verbs)}", "tap")
        verb(now, ask, asked)

    def _start(self, now: float, ask: Ask, asked: Mapping[str, Any]) -> None:
        settings: TapSettings = self.settings
        wish = Wish.of(asked, settings.max_duration, settings.max_rate, settings.max_copies)
        if not self._is_allowed(ask, wish):
            return
        if wish.payload and not settings.payloads:
            ask.refuse("payloads cannot be seen at this router: its [[node]] of type tap has payloads = false")
            return
        if len(self._taps) >= settings.max_taps:
            ask.refuse(f"{len(self._taps)} taps run; max_taps = {settings.max_taps} of the node {self.context.name}")
            return
        tap = ActiveTap(self.context.new_token(), ask.peer, wish, now, settings.buffer_bytes)
        self._taps[tap.token] = tap
        self._of_topic.setdefault((wish.exchange, wish.topic), []).append(tap)
        self.context.watch_topic(wish.topic, wish.exchange)
        self._counts["taps"] += 1
        text = f"{ask.peer.identity} taps {wish.topic!r} for at most {wish.seconds:g} s, {wish.rate:g} copies a second"
        if wish.payload:
            text += ", with payloads"
        self.context.log(now, "started", text, ask.peer.identity, self._audit(now, tap))
        ask.answer_json({"tap": tap.token, "seconds": wish.seconds, "rate": wish.rate, "router": self.context.router})

    def _is_allowed(self, ask: Ask, wish: Wish) -> bool:
        """Return whether its sender may see the topic, and its payloads if they are wanted; it is refused if not."""
        name = f"{wish.exchange}/{wish.topic}" if wish.exchange else wish.topic
        return ask.require(name) and (not wish.payload or ask.require(f"payload:{name}"))

    def _own(self, ask: Ask, asked: Mapping[str, Any]) -> ActiveTap | None:
        tap = self._taps.get(str(asked.get("tap")))
        if tap is None or tap.peer is not ask.peer:
            ask.refuse("this process has no such tap: it has ended, or its link has")
            return None
        return tap if self._is_allowed(ask, tap.wish) else None

    def _read(self, now: float, ask: Ask, asked: Mapping[str, Any]) -> None:
        tap = self._own(ask, asked)
        if tap is None:
            return
        wait = asked.get("wait", 0.0)
        if isinstance(wait, bool) or not isinstance(wait, int | float) or not 0 <= wait <= _MAX_WAIT:
            raise ProtocolError(f"wait: expected seconds from 0 to {_MAX_WAIT:g}", "tap")
        if tap.reader is not None:
            tap.read(now, tap.reader, _ANSWER_BYTES)
        if tap.has_news or not wait:
            self._tell(now, tap, ask)
        else:
            tap.reader, tap.read_until = ask, now + wait

    def _tell(self, now: float, tap: ActiveTap, ask: Ask) -> None:
        tap.read(now, ask, _ANSWER_BYTES)
        if tap.over and not tap.has_copies:
            self._remove(now, tap)

    def _stop(self, now: float, ask: Ask, asked: Mapping[str, Any]) -> None:
        tap = self._own(ask, asked)
        if tap is not None:
            tap.over = tap.over or "it was stopped"
            self._remove(now, tap)
            ask.answer_json({"copies": tap.copies, "lost": tap.lost_in_all})

    def ask_ended(self, now: float, ask: Ask) -> None:
        """Forget a reader that waits no more."""
        for tap in self._taps.values():
            if tap.reader is ask:
                tap.reader, tap.read_until = None, inf

    def peer_ended(self, now: float, peer: Peer, reason: str) -> None:
        """End the taps of a process with its link."""
        for tap in [each for each in self._taps.values() if each.peer is peer]:
            tap.over = tap.over or f"its link has ended: {reason}"
            self._remove(now, tap)

    # --- copies ------------------------------------------------------------------------------

    def passed(self, passage: Passage) -> None:
        """Offer it to the taps of its topic."""
        settings: TapSettings = self.settings
        for tap in self._of_topic.get((passage.exchange, passage.topic), ()):
            before = tap.lost_in_all
            wall_ms = self.context.wall_ms(passage.now)
            taken = tap.offer(passage, wall_ms, self._redact, settings.payload_bytes, self._looks)
            self._counts["copies"] += taken
            self._counts["lost"] += tap.lost_in_all - before
            if taken and tap.reader is not None:
                self._tell(passage.now, tap, tap.reader)

    def _remove(self, now: float, tap: ActiveTap) -> None:
        self._taps.pop(tap.token, None)
        place = tap.wish.exchange, tap.wish.topic
        rest = [each for each in self._of_topic.get(place, ()) if each is not tap]
        if rest:
            self._of_topic[place] = rest
        else:
            self._of_topic.pop(place, None)
            self.context.unwatch_topic(tap.wish.topic, tap.wish.exchange)
        text = (
            f"the tap of {tap.peer.identity} on {tap.wish.topic!r} has ended after {now - tap.began:.1f} s: {tap.over}"
        )
        self.context.log(now, "ended", text, tap.peer.identity, self._audit(now, tap))

    def _audit(self, now: float, tap: ActiveTap) -> dict[str, Any]:
        wish = tap.wish
        return {
            "by": tap.peer.identity, "key": tap.peer.key, "topic": wish.topic, "exchange": wish.exchange,
            "fields": list(wish.fields), "payload": wish.payload, "seconds": wish.seconds, "rate": wish.rate,
            "lasted": round(now - tap.began, 3), "copies": tap.copies, "lost": tap.lost_in_all, "over": tap.over,
        }  # fmt: skip

    # --- time and operators ------------------------------------------------------------------

    def next_deadline(self) -> float:
        """The time of the next :meth:`tick` (monotonic seconds)."""
        return min((tap.next_deadline() for tap in self._taps.values()), default=inf)

    def tick(self, now: float) -> None:
        """End taps whose time is up, and those that nobody reads; answer readers that have waited long enough."""
        for tap in list(self._taps.values()):
            if now >= tap.ends_at and not tap.over:
                tap.over = "its time is up"
            if tap.reader is not None and (tap.over or now >= tap.read_until):
                self._tell(now, tap, tap.reader)
            elif tap.reader is None and now >= tap.read_at + UNREAD_SECONDS:
                tap.over = tap.over or f"nobody has read it for {UNREAD_SECONDS:g} s"
                self._remove(now, tap)

    def view(self, now: float, name: str) -> Iterator[Mapping[str, Any]]:
        """The taps that run."""
        for tap in list(self._taps.values()):
            yield {**self._audit(now, tap), "left": max(0.0, round(tap.ends_at - now, 3))}

    def metrics(self) -> Mapping[str, float]:
        """Taps that were started, copies that were taken, and copies that were lost."""
        return dict(self._counts)
