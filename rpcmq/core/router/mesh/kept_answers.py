"""Consumers keep answers until their callers' processes have them (``keep``); here they are told which these are.

A caller acknowledges what it has received, and that is passed on to whoever made the answer: to the consumer's process,
or to its router, which passes it on in turn. Processes keep only answers to calls that must not start twice; to tell
these from others would cost each call more here than to tell of all.
"""

from __future__ import annotations

from itertools import islice, repeat
from math import inf
from operator import itemgetter

from rpcmq.core.router.base_link import BaseLink
from rpcmq.core.router.link_states import LinkState
from rpcmq.core.router.mesh.neighbours import Neighbour
from rpcmq.core.router.mesh.part import MeshContext, MeshPart
from rpcmq.core.router.model import Link
from rpcmq.wire import KEY, KIND_AT, Kind, pack
from rpcmq.wire.adoption import MAX_ASKED, taken_keys
from rpcmq.wire.bodies import MESH_TYPE

__all__ = ["KeptAnswers"]

_kind, _key = itemgetter(KIND_AT), itemgetter(KEY)
_REPLY = int(Kind.REPLY)
_ANSWERS = frozenset(map(int, (Kind.REPLY, Kind.FAULT, Kind.END)))
#: Consumers are told when so many have collected, or after so many seconds.
_TOGETHER, _SECONDS = 256, 0.1
#: Answers to callers of one neighbour that are remembered.
_MOST = 100_000


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
        self._requests.owes_answers = self._requests.watches_answers = True

    def _answers_taken(self, now: float, link: Link, messages: list[bytes]) -> None:
        """The process of ``link`` has received ``messages``."""
        kinds = bytes(map(_kind, messages))
        if kinds.count(_REPLY) < len(kinds):
            # An error is owed where it stands for an answer that was too large.
            owed = link.owed
            messages = [message for message in messages if message[KIND_AT] in _ANSWERS or message[KEY] in owed]
        self._note(now, link, [*map(_key, messages)])

    def _taken(self, now: float, link: Link, message: bytes) -> None:
        """TAKEN of the owner of calls that were answered here.

        Raises:
            ProtocolError: malformed.
        """
        keys = taken_keys(message)
        self._requests.turns.spend(len(keys) // 2)
        self._note(now, link, keys)

    def _note(self, now: float, link: Link, keys: list[bytes]) -> None:
        """The answers to ``keys``, which went to ``link``, have arrived where they belong."""
        if not self._due:
            self._tell_at = now + _SECONDS
        # Mostly one consumer made them all: the loops are those of C.
        makers = [*map(link.owed.pop, keys, repeat(link.maker))] if link.owed else [link.maker] * len(keys)
        for maker in dict.fromkeys(makers):
            if maker is None:
                continue
            told = self._due.setdefault(maker, [])
            told += keys if makers.count(maker) == len(keys) else _of(maker, keys, makers)
            if len(told) >= _TOGETHER:
                _tell(maker, told)
                told.clear()

    def tick(self, now: float) -> None:
        """Tell of answers that were taken some time ago."""
        if now < self._tell_at:
            return
        due, self._due = self._due, {}
        self._tell_at = inf
        for link, keys in due.items():
            _tell(link, keys)
        for neighbour in self._neighbours:
            # Those whose callers have gone are never told of.
            owed = neighbour.link.owed
            for key in list(islice(owed, max(0, len(owed) - _MOST))):
                del owed[key]

    def next_deadline(self) -> float:
        """The time of the next :meth:`tick` (monotonic seconds)."""
        return self._tell_at if self._due else inf

    def process_ended(self, now: float, link: Link, reason: str) -> None:
        """Nobody is to be told any more."""
        self._due.pop(link, None)
        link.owed.clear()
        link.maker = None

    def neighbour_gone(self, now: float, neighbour: Neighbour, reason: str) -> None:
        """Nobody is to be told any more."""
        self._due.pop(neighbour.link, None)
        neighbour.link.owed.clear()
        neighbour.link.maker = None


def _of(maker: BaseLink, keys: list[bytes], makers: list[BaseLink | None]) -> list[bytes]:
    return [key for key, each in zip(keys, makers, strict=True) if each is maker]


def _tell(link: BaseLink, keys: list[bytes]) -> None:
    if link.state is not LinkState.ENDED and (link.follows_mesh or link.queue_type == MESH_TYPE):
        for start in range(0, len(keys), MAX_ASKED):
            link.send(pack(Kind.TAKEN, b"".join(keys[start : start + MAX_ASKED])))
