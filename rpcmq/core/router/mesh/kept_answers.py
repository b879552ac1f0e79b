"""Consumers keep answers until their callers' processes have them (``keep``); here they are told which these are.

A caller acknowledges what it has received, and that is passed on to whoever made the answer: to the consumer's process,
or to its router, which passes it on in turn. Only answers to calls that must not start twice are kept.
"""

from __future__ import annotations

from math import inf

from rpcmq.core.router.base_link import BaseLink
from rpcmq.core.router.link_states import LinkState
from rpcmq.core.router.mesh.neighbours import Neighbour
from rpcmq.core.router.mesh.part import MeshContext, MeshPart
from rpcmq.core.router.model import Link
from rpcmq.wire import KEY, KIND_AT, Kind, pack
from rpcmq.wire.adoption import taken_keys
from rpcmq.wire.bodies import MESH_TYPE

__all__ = ["KeptAnswers"]

_ANSWERS = frozenset(map(int, (Kind.REPLY, Kind.FAULT, Kind.END)))
#: Consumers are told when so many have collected, or after so many seconds.
_TOGETHER, _SECONDS = 256, 0.1


class KeptAnswers(MeshPart):
    """Tells consumers which answers need not be kept."""

    def __init__(self, context: MeshContext) -> None:
        self._requests = context.roundrobin.dispatch.requests
        self._neighbours = context.neighbours
        self._due: dict[BaseLink, list[bytes]] = {}
        self._tell_at = inf
        context.roundrobin.dispatch.settlements.on_answers_taken = self._answers_taken
        self.kinds = {Kind.TAKEN: self._taken}

    def neighbour_up(self, now: float, neighbour: Neighbour, resumed: bool) -> None:
        """From now on there is another router to which callers may go."""
        self._requests.owes_answers = True

    def _answers_taken(self, now: float, link: Link, messages: list[bytes]) -> None:
        """The process of ``link`` has received ``messages``."""
        owed = link.owed
        for message in messages:
            if message[KIND_AT] in _ANSWERS:
                at = owed.pop(message[KEY], None)
                if at is not None:
                    self._note(now, at, message[KEY])

    def _taken(self, now: float, link: Link, message: bytes) -> None:
        """TAKEN of the owner of calls that were answered here.

        Raises:
            ProtocolError: malformed.
        """
        for key in taken_keys(message):
            at = link.owed.pop(key, None)
            if at is not None:
                self._note(now, at, key)

    def _note(self, now: float, link: BaseLink, key: bytes) -> None:
        if not self._due:
            self._tell_at = now + _SECONDS
        keys = self._due.setdefault(link, [])
        keys.append(key)
        if len(keys) >= _TOGETHER:
            del self._due[link]
            _tell(link, keys)

    def tick(self, now: float) -> None:
        """Tell of answers that were taken some time ago."""
        if now < self._tell_at:
            return
        due, self._due = self._due, {}
        self._tell_at = inf
        for link, keys in due.items():
            _tell(link, keys)

    def next_deadline(self) -> float:
        """The time of the next :meth:`tick` (monotonic seconds)."""
        return self._tell_at if self._due else inf

    def process_ended(self, now: float, link: Link, reason: str) -> None:
        """Nobody is to be told any more."""
        self._due.pop(link, None)
        link.owed.clear()

    def neighbour_gone(self, now: float, neighbour: Neighbour, reason: str) -> None:
        """Nobody is to be told any more."""
        self._due.pop(neighbour.link, None)
        neighbour.link.owed.clear()


def _tell(link: BaseLink, keys: list[bytes]) -> None:
    if link.state is not LinkState.ENDED and (link.follows_mesh or link.queue_type == MESH_TYPE):
        link.send(pack(Kind.TAKEN, b"".join(keys)))
