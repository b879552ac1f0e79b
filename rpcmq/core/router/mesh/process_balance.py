"""Balance: a router that has clearly more processes than its share asks some of them to go on at other routers.

So those of a router that was restarted come back to it. Each router counts its processes every
``mesh.rebalance_seconds``, and tells the others if the number has changed; a mesh in balance sends nothing. The plan is
that of :mod:`rpcmq.core.router.mesh.shares`. Nothing swings, because

* a router that has asked looks on until all have told their new numbers;
* a process stays for some time where it has come to, and is not asked again soon;
* a router that has just joined, or come back, is given nothing before it has been there for some time.

A process that is asked leaves as it leaves a router that drains (:mod:`rpcmq.core.process.departure`), or stays. Those
with consumers of a domain of this router are not asked, nor are links of subscribers and publishers: another router
could pass on later events before earlier ones, and events that are published meanwhile would be missed.
"""

from __future__ import annotations

from collections import Counter, deque
from heapq import nsmallest
from math import inf
from zlib import crc32

from rpcmq.config.values import is_connect_url
from rpcmq.core.router.actions import LogEvent
from rpcmq.core.router.link_states import LinkState
from rpcmq.core.router.mesh.neighbours import Neighbour
from rpcmq.core.router.mesh.part import MeshContext, MeshPart
from rpcmq.core.router.mesh.shares import moves
from rpcmq.core.router.model import Link
from rpcmq.wire.bodies import CONSUMER_ROLE

__all__ = ["Balance"]

#: Most processes that are asked after one look, and the time over which they are (seconds, and share of the interval).
_MOST_ASKED, _SPREAD, _SPREAD_SHARE = 1000, 10.0, 1 / 3
#: Intervals for which a router that has asked looks on, and after which it asks the same process again.
_REST, _ASKED_AGAIN = 2.5, 20.0
#: Seconds between two looks where nothing is to be asked: the setting may change.
_LOOK_IF_OFF = 30.0


class Balance(MeshPart):
    """Asks processes to go on at other routers."""

    def __init__(self, context: MeshContext) -> None:
        self._context = context
        self._node = context.node
        #: The next look, the next question, and the end of the rest after a round of them.
        self._look_at = self._ask_at = inf
        self._rests_until = 0.0
        #: Processes that are to be asked, with the router that has room; and the time between two of them (seconds).
        self._asks: deque[tuple[Link, Neighbour]] = deque()
        self._pause = 0.0
        #: The time at which each process was asked (monotonic seconds).
        self._asked: dict[Link, float] = {}

    def neighbour_up(self, now: float, neighbour: Neighbour, resumed: bool) -> None:
        """Begin to look, at another time than other routers."""
        if self._look_at == inf:
            own = self._context.own
            jitter = crc32(f"{own.id}:{own.incarnation}".encode()) / (1 << 32)
            self._look_at = now + self._interval * (0.5 + jitter / 2)

    def neighbour_gone(self, now: float, neighbour: Neighbour, reason: str) -> None:
        """Ask nobody to go there."""
        self._asks = deque(ask for ask in self._asks if ask[1] is not neighbour)
        if not self._context.neighbours:
            self._look_at = inf

    def process_ended(self, now: float, link: Link, reason: str) -> None:
        """Forget it."""
        self._asked.pop(link, None)

    @property
    def _interval(self) -> float:
        return self._node.settings.mesh_rebalance_seconds or _LOOK_IF_OFF

    @property
    def _is_on(self) -> bool:
        return self._node.settings.mesh_rebalance_seconds > 0 and not self._context.targets.closed

    # --- time --------------------------------------------------------------------------------

    def tick(self, now: float) -> None:
        """Look, or ask the next one."""
        if now >= self._look_at:
            self._look_at = now + self._interval
            self._look(now)
        while now >= self._ask_at:
            self._ask_next(now)

    def next_deadline(self) -> float:
        """The time of the next :meth:`tick` (monotonic seconds)."""
        return min(self._look_at, self._ask_at)

    def _look(self, now: float) -> None:
        context = self._context
        count = sum(map(_is_counted, self._node.links))
        if count != context.processes:
            context.processes = count
            context.own_changed(now)
        if not self._is_on or self._asks or now < self._rests_until:
            return
        takers = {each.identity.id: each for each in context.neighbours if self._may_take(now, each)}
        told = {id: member.said.processes for id in takers if (member := context.members.get(id)) is not None}
        counts = {id: count for id, count in told.items() if count is not None}
        destinations = moves(counts | {context.own.id: count}, context.own.id, _MOST_ASKED)
        if destinations:
            self._plan(now, [takers[id] for id in destinations])

    def _may_take(self, now: float, neighbour: Neighbour) -> bool:
        """Return whether processes may be asked to go to ``neighbour``, which has been there for some time."""
        link = neighbour.link
        is_settled = now - link.since >= self._interval and not self._context.has_left(neighbour.identity.id)
        return neighbour.is_usable and is_settled and link not in self._context.limits and bool(_url_of(neighbour))

    # --- processes ---------------------------------------------------------------------------

    def _plan(self, now: float, destinations: list[Neighbour]) -> None:
        movable = (link for link in self._node.links if self._is_movable(now, link))
        # Those that have nothing to do first; of these any, but the same ones each time.
        chosen = nsmallest(len(destinations), movable, key=lambda link: (_is_busy(link), crc32(link.identity.encode())))
        self._asks.extend(zip(chosen, destinations, strict=False))
        if not self._asks:
            return
        self._rests_until = now + _REST * self._interval
        self._pause = min(_SPREAD, self._interval * _SPREAD_SHARE) / len(self._asks)
        self._ask_at = now
        for name, number in Counter(neighbour.name for _, neighbour in self._asks).items():
            text = f"{number} processes are asked to go on at router {name}, which has fewer than its share"
            self._node.act(LogEvent("rebalance", text, name))

    def _is_movable(self, now: float, link: Link) -> bool:
        interval = self._interval
        if link.state is not LinkState.ANSWERING or not _is_counted(link) or now - link.since < interval:
            return False
        asked = self._asked.get(link)
        if asked is not None and now - asked < _ASKED_AGAIN * interval:
            return False
        owner_of, own = self._context.domain_owner, self._context.own.name
        return not any(owner_of(each.topic.address.topic) == own for each in link.consumers.values())

    def _ask_next(self, now: float) -> None:
        link, neighbour = self._asks.popleft() if self._asks else (None, None)
        self._ask_at = self._ask_at + self._pause if self._asks else inf
        if link is None or neighbour is None or not self._is_on:
            return
        if link.state is LinkState.ANSWERING and neighbour.is_usable:
            self._asked[link] = now
            link.counters["asked to go elsewhere"] += 1
            link.send(self._context.routers_with(_url_of(neighbour)).message())


def _is_counted(link: Link) -> bool:
    """Return whether ``link`` is one of a process that is connected, and may go on at other routers."""
    is_process = link.queue_type == "roundrobin" and link.role != CONSUMER_ROLE
    return is_process and link.follows_mesh and link.route is not None


def _is_busy(link: Link) -> bool:
    return bool(link.calls) or any(consumer.in_flight for consumer in link.consumers.values())


def _url_of(neighbour: Neighbour) -> str:
    """Return the first url of the router that processes can connect to; empty: it has none."""
    return next(filter(is_connect_url, neighbour.identity.urls), "")
