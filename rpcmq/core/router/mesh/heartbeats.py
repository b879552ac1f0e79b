"""Heartbeats between routers: who is silent, how long a round trip takes, and whether an old connection is alive.

A router that has heard nothing of another one for half a second asks it with a HEARTBEAT that wants an answer, and
the answer wants none: the rule of processes, by which each HEARTBEAT is answered, would go on for ever between two
routers. One that was silent for ``mesh.silence_seconds`` gets no new work; one that was silent, or away, for
``mesh.lost_seconds`` is given up.

A *probe* is such a question on which it depends whether a link is replaced by a newer connection.
"""

from __future__ import annotations

from math import inf

from rpcmq.core.router.link_states import LinkState
from rpcmq.core.router.mesh.alarm import Alarm
from rpcmq.core.router.mesh.part import MeshContext
from rpcmq.core.router.mesh.peerings import Peering, Peerings
from rpcmq.errors import ProtocolError
from rpcmq.wire import Flag, Kind, flags_of, pack, payload_of

__all__ = ["PROBE_SECONDS", "Heartbeats"]

#: Seconds of silence after which another router is asked, and after which it is asked though it is heard.
_ASK_SECONDS, _MEASURE_SECONDS = 0.5, 5.0
#: Seconds in which a probe must be answered.
PROBE_SECONDS = 1.0
#: Most questions whose answers are waited for, and bytes of the number of one.
_MOST_ASKED, _NUMBER_BYTES = 16, 8
#: Routers that others carry the messages to are asked, and taken for silent, so many times later: that they are gone is
#: known from their neighbours.
_RELAYED_SLOWNESS = 2.0
#: A tick that is later than this shows that this process was stopped (seconds).
_LATE = 1.0


class Heartbeats:
    """Keeps an eye on ``peerings``."""

    def __init__(self, context: MeshContext, peerings: Peerings, alarm: Alarm) -> None:
        self._alarm = alarm
        self._settings = context.node.settings
        self._links = context.node.links
        self._peerings = peerings
        self._next_check = inf
        #: Since when this process has not been stopped.
        self._awake_since = context.node.now

    def next_deadline(self) -> float:
        """The time of the next :meth:`tick` (monotonic seconds)."""
        return self._next_check

    def start(self, now: float) -> None:
        """There is a link to watch."""
        if self._next_check == inf:
            self._next_check = now + self._pause
            self._alarm.by(self._next_check)

    @property
    def _pause(self) -> float:
        return min(_ASK_SECONDS, self._settings.mesh_silence_seconds / 3) / 2

    def tick(self, now: float) -> None:
        """Look at all links, if it is time to."""
        if now < self._next_check:
            return
        if now > self._next_check + _LATE:
            # Whatever was sent meanwhile has yet to be read.
            self._awake_since = now
        self._next_check = now + self._pause if len(self._peerings) else inf
        for peering in list(self._peerings):
            self._check(now, peering)

    def _check(self, now: float, peering: Peering) -> None:
        link, settings = peering.link, self._settings
        if link.state is LinkState.AWAY:
            if now - max(link.since, self._awake_since) >= settings.mesh_lost_seconds:
                self._links.end_safely(now, link, f"away for {now - link.since:.1f} s")
            return
        if peering.probe and now >= max(peering.probed_until, self._awake_since + PROBE_SECONDS):
            self._links.end_safely(now, link, "it did not answer, and another connection has come")
            return
        silent = now - link.heard
        if silent >= settings.mesh_silence_seconds * _slowness(peering) and link.is_responsive:
            self._links.silent(now, link)
        if now - max(link.heard, self._awake_since) >= settings.mesh_lost_seconds:
            self._links.end_safely(now, link, f"silent for {silent:.1f} s")
            return
        self._ask_if_due(now, peering, silent)

    def _ask_if_due(self, now: float, peering: Peering, silent: float) -> None:
        pace = min(_ASK_SECONDS, self._settings.mesh_silence_seconds / 3) * _slowness(peering)
        is_due = silent >= pace or now - max(peering.answered_at, peering.began) >= _MEASURE_SECONDS
        if is_due and now - max(peering.asked.values(), default=-inf) >= pace:
            self._ask(now, peering)

    def _ask(self, now: float, peering: Peering) -> int:
        """Send a question; return its number, which the answer repeats."""
        link = peering.link
        peering.questions += 1
        peering.asked[peering.questions] = now
        if len(peering.asked) > _MOST_ASKED:
            del peering.asked[next(iter(peering.asked))]
        link.ack_was_sent()
        number = peering.questions.to_bytes(_NUMBER_BYTES)
        # Not the last message of its kind, as which an answer to the other side would replace it.
        link.send_first(pack(Kind.HEARTBEAT, number, sequence=link.received, flags=Flag.ANSWER_WANTED))
        return peering.questions

    def probe(self, now: float, peering: Peering) -> None:
        """Ask the other router: unless it answers within a second, the link ends."""
        if not peering.probe:
            peering.probe = self._ask(now, peering)
            peering.probed_until = now + PROBE_SECONDS
            self._next_check = min(self._next_check, peering.probed_until)
            self._alarm.by(self._next_check)

    def heard(self, now: float, peering: Peering, message: bytes) -> bool:
        """Handle a HEARTBEAT; return whether it answers a probe.

        Raises:
            ProtocolError: it has no number.
        """
        link, number = peering.link, bytes(payload_of(message))
        if len(number) != _NUMBER_BYTES:
            raise ProtocolError(f"a HEARTBEAT of a router has {_NUMBER_BYTES} bytes, not {len(number)}", "length")
        if flags_of(message) & Flag.ANSWER_WANTED:
            link.ack_was_sent()
            link.send_last(pack(Kind.HEARTBEAT, number, sequence=link.received))
            return False
        question = int.from_bytes(number)
        asked_at = peering.asked.get(question)
        if asked_at is None:
            return False
        peering.asked = {each: at for each, at in peering.asked.items() if each > question}
        peering.round_trip, peering.answered_at = now - asked_at, now
        if not 0 < peering.probe <= question:
            return False
        peering.probe = 0
        return True


def _slowness(peering: Peering) -> float:
    return _RELAYED_SLOWNESS if peering.neighbour.is_relayed else 1.0
