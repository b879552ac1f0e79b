"""Introductions across the mesh: the caller at this router, the consumer at another one.

A router without a consumer that can be introduced asks a neighbour that has consumers of the address. That one
introduces one of its own, or says why not, and the next neighbour is asked. The answer goes to the caller unchanged.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from math import inf

from rpcmq.core.router.link_states import LinkState
from rpcmq.core.router.mesh.neighbours import Neighbour
from rpcmq.core.router.mesh.part import MeshContext, MeshPart
from rpcmq.core.router.model import Destination, Link
from rpcmq.core.router.peer2peer.node import MAX_WAITING, Caller, OtherIntroducers
from rpcmq.wire import KEY, Kind, address_of, pack
from rpcmq.wire.bodies import MESH_TYPE, IntroductionBody
from rpcmq.wire.mesh_bodies import IntroduceBody

__all__ = ["Introductions"]

#: Seconds in which a neighbour must answer, or the next one is asked.
_ANSWER_SECONDS = 2.0
#: Most introductions of one caller, and of all, that other routers have not answered.
_MAX_EACH, _MAX_ASKED = 100, 10_000
#: Counts at a link the introductions to consumers of other routers.
_INTRODUCED = "introduced elsewhere"


class Introductions(MeshPart, OtherIntroducers):
    """Asks neighbours for introductions, and makes those that they ask for."""

    def __init__(self, context: MeshContext) -> None:
        self._links = context.node.links
        self._turns = context.node.turns
        self._peer2peer = context.peer2peer
        context.peer2peer.other_routers = self
        #: By key, in the order of their deadlines.
        self._asked: OrderedDict[bytes, _Asked] = OrderedDict()
        self._of_callers: Counter[Link] = Counter()
        self.kinds = {Kind.INTRODUCE: self._introduce, Kind.INTRODUCTION: self._introduction}

    # --- callers of this router --------------------------------------------------------------

    def introduce(self, now: float, link: Link, message: bytes, destination: Destination, reason: str) -> bool:
        """Ask the neighbours that have consumers of the address, one after the other."""
        if not destination.remotes or message[KEY] in self._asked:
            return False
        if self._of_callers[link] >= _MAX_EACH or len(self._asked) >= _MAX_ASKED:
            return False
        remotes = sorted(destination.remotes.values(), key=lambda each: -len(each.offered) / (each.capacity or 1))
        others = [each.link for each in remotes if isinstance(each.link, Link)]
        asked = _Asked(link, message, reason, others)
        self._of_callers[link] += 1
        self._ask_next(now, asked)
        return True

    def _ask_next(self, now: float, asked: _Asked) -> None:
        key = asked.message[KEY]
        caller = asked.caller
        while asked.others:
            link = asked.others.pop()
            if link.is_responsive and not link.is_full and len(link.outbox) < MAX_WAITING:
                public = caller.key.public if caller.key is not None else None
                body = IntroduceBody(identity=caller.identity, key=public)
                link.send(pack(Kind.INTRODUCE, body.payload(), key=key, format=1, address=address_of(asked.message)))
                asked.neighbour, asked.deadline = link, now + _ANSWER_SECONDS
                self._asked[key] = asked
                self._asked.move_to_end(key)
                return
        self._done(asked, IntroductionBody(text=asked.reason).message(key=key))

    def _done(self, asked: _Asked, answer: bytes) -> None:
        self._asked.pop(answer[KEY], None)
        caller = asked.caller
        self._of_callers[caller] -= 1
        if not self._of_callers[caller]:
            del self._of_callers[caller]
        if caller.state is not LinkState.ENDED:
            caller.send(answer)

    def _introduction(self, now: float, link: Link, message: bytes) -> None:
        """A neighbour's answer; or its word that a key was revoked."""
        body = IntroductionBody.of(message)
        if body.revoked:
            self._revoked(message)
            return
        asked = self._asked.get(message[KEY])
        if asked is None or asked.neighbour is not link:
            return  # it came too late
        if body.url:
            asked.caller.counters[_INTRODUCED] += 1
            self._done(asked, message)
        else:
            asked.reason = body.text or asked.reason
            self._ask_next(now, asked)

    def _revoked(self, message: bytes) -> None:
        """Have processes end their direct links with those of a key that another router has revoked."""
        self._turns.spend(len(self._links))
        for link in self._links:
            if link.queue_type != MESH_TYPE and (
                link.counters[_INTRODUCED] or any(c.peer_url for c in link.consumers.values())
            ):
                link.send(message)

    # --- consumers of this router ------------------------------------------------------------

    def _introduce(self, now: float, link: Link, message: bytes) -> None:
        body = IntroduceBody.of(message)
        # Whatever routers make up, each pushes out only what it has introduced itself.
        caller = Caller(body.identity, body.key, link.identity)
        link.send(self._peer2peer.introduce_here(now, caller, message))

    # --- neighbours and time -----------------------------------------------------------------

    def neighbour_gone(self, now: float, neighbour: Neighbour, reason: str) -> None:
        """Ask others in its place."""
        for asked in [each for each in self._asked.values() if each.neighbour is neighbour.link]:
            self._ask_next(now, asked)

    def process_ended(self, now: float, link: Link, reason: str) -> None:
        """Forget what a caller waits for."""
        if self._of_callers.pop(link, None) is not None:
            for key in [key for key, asked in self._asked.items() if asked.caller is link]:
                del self._asked[key]

    def tick(self, now: float) -> None:
        """Ask others in the place of neighbours that have not answered in time."""
        while self._asked and now >= self.next_deadline():
            self._ask_next(now, next(iter(self._asked.values())))

    def next_deadline(self) -> float:
        """The time of the next :meth:`tick` (monotonic seconds)."""
        return next(iter(self._asked.values())).deadline if self._asked else inf


class _Asked:
    """An INTRODUCE that a neighbour is to answer."""

    __slots__ = ("caller", "deadline", "message", "neighbour", "others", "reason")

    def __init__(self, caller: Link, message: bytes, reason: str, others: list[Link]) -> None:
        self.caller = caller
        self.message = message
        #: The latest reason that there was nobody to introduce.
        self.reason = reason
        #: The links of the neighbours that may be asked, the best last, and that of the one that was.
        self.others = others
        self.neighbour: Link | None = None
        self.deadline = inf
