"""Events across the mesh: a router is a subscriber of each other one, for all patterns of its own processes.

* The first process that subscribes to a pattern has this router subscribe at each neighbour, and the end of the last
  one's has it unsubscribe. A neighbour that is new is told all patterns, some hundreds at a time.
* An event goes once to each neighbour that wants it, however many processes there do, and from there to these
  processes only: each router is linked to each, so nobody passes on what a neighbour has passed on.
* A neighbour that falls behind loses the oldest events, as any subscriber does; it is told the topics, and tells the
  processes that have subscribed to these.
* The subscription of a process is confirmed once each neighbour that answers has confirmed it, so that whatever is
  published anywhere afterwards reaches it.
"""

from __future__ import annotations

from collections import Counter
from math import inf

from rpcmq.core.common.text import shorten
from rpcmq.core.common.topic_patterns import pattern_states
from rpcmq.core.router.actions import LogEvent
from rpcmq.core.router.mesh.limits import DENIED
from rpcmq.core.router.mesh.neighbour_patterns import NeighbourPatterns
from rpcmq.core.router.mesh.neighbours import Neighbour
from rpcmq.core.router.mesh.origins import is_forged
from rpcmq.core.router.mesh.part import MeshContext, MeshPart
from rpcmq.core.router.mesh.waiting_subscribers import WaitingSubscribers
from rpcmq.core.router.model import Link
from rpcmq.core.router.pubsub.other_routers import Pattern
from rpcmq.core.router.pubsub.subscriber import NeighbourSubscriber, Subscriber, notices_by_topic
from rpcmq.errors import ProtocolError
from rpcmq.payload.format import ALL
from rpcmq.wire import KEY, ORIGIN, Address, Kind, address_of
from rpcmq.wire.bodies import SubscribeBody, SubscribedBody

__all__ = ["Events"]

#: Seconds after which a neighbour is told again what it had no room for.
_RETRY_SECONDS = 10.0
#: Routers that are still to be told what was lost with their last link.
_MAX_UNTOLD = 100
#: Memory of a pattern, and of each of its words, beside its bytes: estimated from above, as if it shared none.
_PATTERN_BYTES, _WORD_BYTES = 400, 400
#: The patterns of another router can add so many times the states of one subscriber to the match of an event.
_STATES_SHARE = 10


class Events(MeshPart):
    """Subscribes at the neighbours, and lets them subscribe here."""

    def __init__(self, context: MeshContext) -> None:
        self._context = context
        self._settings = context.node.settings
        self._pubsub = pubsub = context.pubsub
        pubsub.other_routers = self
        self._neighbours: dict[Link, NeighbourPatterns] = {}
        self.waiting = WaitingSubscribers()
        self._retry_at = inf
        #: By id and incarnation of a router: the events lost with its last link, by address, until it is linked again.
        self._untold: dict[tuple[int, int], Counter[bytes]] = {}
        self.kinds = {
            Kind.SUBSCRIBE: self._subscribe,
            Kind.UNSUBSCRIBE: self._unsubscribe,
            Kind.SUBSCRIBED: self._subscribed,
            Kind.PUBLISH: self._publish,
            Kind.EVENT_CREDIT: pubsub.taken,
            Kind.LOST: pubsub.lost_by,
        }

    # --- neighbours --------------------------------------------------------------------------

    def neighbour_up(self, now: float, neighbour: Neighbour, resumed: bool) -> None:
        """Tell a new neighbour all patterns."""
        link = neighbour.link
        link.accepts = ALL  # its processes', of which it knows
        if resumed:
            return
        self._tell_losses(neighbour)
        known = NeighbourPatterns(neighbour, self._pubsub.patterns, self._settings.router_id)
        self._neighbours[link] = known
        known.tell_all(self._pubsub.patterns)

    def neighbour_changed(self, now: float, neighbour: Neighbour) -> None:
        """Nobody waits for a neighbour that does not answer."""
        if not neighbour.is_usable:
            self.waiting.not_waited_for(neighbour)

    def neighbour_gone(self, now: float, neighbour: Neighbour, reason: str) -> None:
        """Forget what it was told."""
        self._neighbours.pop(neighbour.link, None)
        self.waiting.not_waited_for(neighbour)

    def tick(self, now: float) -> None:
        """Confirm what has waited for long enough; tell neighbours again what they had no room for."""
        self.waiting.tick(now)
        if now >= self._retry_at:
            self._retry_at = inf
            for known in self._neighbours.values():
                known.retry()

    def next_deadline(self) -> float:
        """The time of the next :meth:`tick` (monotonic seconds)."""
        return min(self._retry_at, self.waiting.next_deadline())

    def _tell_losses(self, neighbour: Neighbour) -> None:
        """Tell a new neighbour at once what was lost with its last link: whether it subscribes again is not known."""
        present = _life_of(neighbour)
        for life in [each for each in self._untold if each[0] == present[0]]:
            lost = self._untold.pop(life)
            for notice in notices_by_topic(lost) if life == present else ():
                neighbour.link.send(notice)

    # --- subscriptions of this router's processes --------------------------------------------

    def ended(self, now: float, link: Link, subscriber: NeighbourSubscriber) -> None:
        """Tell the other router what it did not get when it is linked again."""
        known = self._neighbours.get(link)
        if known is not None and subscriber.lost:
            self._untold[_life_of(known.neighbour)] = subscriber.lost
            if len(self._untold) > _MAX_UNTOLD:
                del self._untold[next(iter(self._untold))]

    def wanted(self, now: float, pattern: Pattern) -> None:
        """Subscribe at all neighbours."""
        for known in self._neighbours.values():
            known.changed(pattern)

    def unwanted(self, now: float, pattern: Pattern) -> None:
        """Unsubscribe at all neighbours."""
        for known in self._neighbours.values():
            known.changed(pattern)
        self.waiting.settle(pattern)

    def confirm(self, now: float, link: Link, pattern: Pattern, answer: bytes) -> None:
        """Send ``answer`` to ``link`` once all neighbours that answer have confirmed ``pattern``."""
        missing = []
        for known in self._neighbours.values():
            if pattern in known.refused:
                known.changed(pattern)
            if known.neighbour.is_usable and known.is_open(pattern):
                missing.append(known.neighbour)
        if missing:
            self.waiting.add(now, link, pattern, answer, missing)
        else:
            link.send(answer)

    def _subscribed(self, now: float, link: Link, message: bytes) -> None:
        known = self._neighbours.get(link)
        if known is None:
            return
        refusal = SubscribedBody.of(message).refusal
        pattern = known.answered(message, bool(refusal))
        if pattern is None:
            return
        if refusal:
            self._refused(now, known, pattern, refusal)
        else:
            self.waiting.confirmed(known.neighbour, pattern)

    def _refused(self, now: float, known: NeighbourPatterns, pattern: Pattern, refusal: str) -> None:
        text = f"router {known.neighbour.name} refuses the pattern {shorten(pattern[1].decode())!r}: {refusal}"
        self._retry_at = min(self._retry_at, now + _RETRY_SECONDS)
        known.neighbour.link.counters["patterns refused by it"] += 1
        for link in self.waiting.refuse(pattern, text):
            self._pubsub.take(now, link, pattern)
        if len(known.refused) == 1 and pattern in self._pubsub.patterns:
            # Of those who had it before this router was linked to that one.
            self._context.node.act(LogEvent("pattern refused", text, known.neighbour.name))

    # --- subscriptions of neighbours ---------------------------------------------------------

    def _subscribe(self, now: float, link: Link, message: bytes) -> None:
        pattern = self._pubsub.address(message)
        refusal = ""
        if pattern not in link.patterns:
            if link.window is None:
                link.window = NeighbourSubscriber(SubscribeBody.of(message).window)
            refusal = self._refusal(link, link.window, pattern)
            if not refusal:
                self._pubsub.add(now, link, pattern)
                link.window.pattern_bytes += _size_of(pattern)
        link.send(SubscribedBody(pattern="", refusal=refusal).message(key=message[KEY]))

    def _refusal(self, link: Link, subscriber: Subscriber, pattern: Pattern) -> str:
        """Return the limit that one more pattern of a neighbour exceeds; empty: none."""
        settings = self._settings
        held = subscriber.pattern_bytes
        if len(link.patterns) >= settings.mesh_max_patterns:
            return f"{len(link.patterns)} patterns are subscribed to; mesh.max_patterns = {settings.mesh_max_patterns}"
        if held + _size_of(pattern) > settings.mesh_max_pattern_bytes:
            most = settings.mesh_max_pattern_bytes
            return f"its {len(link.patterns)} patterns take {held} bytes already; mesh.max_pattern_bytes = {most}"
        states, most = subscriber.states, _STATES_SHARE * settings.pubsub_max_pattern_states
        if states + pattern_states(pattern[1]) > most:
            return (
                f"its {len(link.patterns)} patterns can add {states} states to the match of an event already; the limit"
                f" is {_STATES_SHARE} * pubsub.max_pattern_states = {most}"
            )
        return ""

    def _unsubscribe(self, now: float, link: Link, message: bytes) -> None:
        pattern = self._pubsub.address(message)
        subscriber = link.window
        if subscriber is not None and pattern in link.patterns:
            self._pubsub.take(now, link, pattern)
            subscriber.pattern_bytes -= _size_of(pattern)
        link.send(SubscribedBody(pattern="").message(key=message[KEY]))

    # --- events of neighbours ----------------------------------------------------------------

    def _publish(self, now: float, link: Link, message: bytes) -> None:
        known = self._neighbours.get(link)
        if known is not None:
            known.event_came()
        node = self._context.node
        if is_forged(now, node.links, self._settings, message):
            raise ProtocolError(f"origin {message[ORIGIN].hex()} is a process of this router", "origin")
        limits = self._context.limits.get(link)
        if limits is not None and not limits.may_bring(_topic_block(message)):
            link.counters[DENIED] += 1
            return
        self._pubsub.publish_from(now, link, message)


def _topic_block(message: bytes) -> bytes:
    """The address of an event without the server, which is ignored in events."""
    address = Address.decode(address_of(message))
    return address_of(message) if not address.server else address._replace(server="").encode()


def _life_of(neighbour: Neighbour) -> tuple[int, int]:
    return neighbour.identity.id, neighbour.identity.incarnation


def _size_of(pattern: Pattern) -> int:
    exchange, words = pattern
    return _PATTERN_BYTES + len(exchange) + len(words) + _WORD_BYTES * (words.count(b".") + 1)
