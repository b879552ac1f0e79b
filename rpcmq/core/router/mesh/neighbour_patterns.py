"""The patterns of this router's processes, as one neighbour was told of them.

The neighbour is told the state of a pattern, wanted or not, never a difference: what it was told last holds. A pattern
that changes again before it was told is told once.
"""

from __future__ import annotations

from collections.abc import Container
from struct import Struct

from rpcmq.core.router.mesh.neighbours import Neighbour
from rpcmq.core.router.pubsub.other_routers import Pattern
from rpcmq.wire import KEY, Kind, origin_of, pack
from rpcmq.wire.bodies import SubscribeBody

__all__ = ["EVENT_WINDOW", "NeighbourPatterns"]

#: Events that a neighbour may send before it gets credit back, and the number for which it is given back at once.
EVENT_WINDOW = 65_535
_CREDITED_AT_ONCE = EVENT_WINDOW // 8
#: Patterns of which a neighbour is told before it has answered: of 100,000, which it may not know yet, and in all.
_MOST_IN_BULK, _MOST_ASKED = 500, 2000
_ADDRESS_LENGTHS = Struct(">BBB")


class NeighbourPatterns:
    """The patterns that ``neighbour`` was told, and is still to be told.

    Args:
        wanted: the patterns that processes of this router have.
        router_id: of this router.

    Attributes:
        refused: patterns that it has no room for.
    """

    __slots__ = ("_answers", "_asked", "_key", "_origin", "_sequence", "_taken", "_to_tell", "_wanted", "_window",
                 "neighbour", "refused")  # fmt: skip

    def __init__(self, neighbour: Neighbour, wanted: Container[Pattern], router_id: int) -> None:
        self.neighbour = neighbour
        self.refused: dict[Pattern, None] = {}
        self._wanted = wanted
        self._origin = origin_of(router_id, 0)
        self._window = SubscribeBody(window=EVENT_WINDOW).payload()
        self._sequence = 0
        #: In their order; and the latest question about each pattern that is not answered.
        self._to_tell: dict[Pattern, None] = {}
        self._asked: dict[Pattern, bytes] = {}
        self._answers: dict[bytes, Pattern] = {}
        self._taken = 0

    def __len__(self) -> int:
        """Number of patterns of which it does not know, or has not confirmed, that they are wanted or not."""
        return len(self._to_tell) + len(self._asked)

    def is_open(self, pattern: Pattern) -> bool:
        """Return whether it has not confirmed yet what it is, or will be, told of ``pattern``."""
        return pattern in self._asked or pattern in self._to_tell

    def tell_all(self, patterns: dict[Pattern, int]) -> None:
        """Tell it ``patterns``, some at a time."""
        self._to_tell.update(dict.fromkeys(patterns))
        self._tell_more()

    def changed(self, pattern: Pattern) -> None:
        """Tell it whether ``pattern`` is wanted, at once unless it owes too many answers."""
        self.refused.pop(pattern, None)
        if len(self._answers) < _MOST_ASKED:
            self._to_tell.pop(pattern, None)
            self._tell(pattern)
        else:
            self._to_tell[pattern] = None

    def _tell_more(self) -> None:
        while self._to_tell and len(self._answers) < _MOST_IN_BULK:
            pattern = next(iter(self._to_tell))
            del self._to_tell[pattern]
            self._tell(pattern)

    def _tell(self, pattern: Pattern) -> None:
        self._sequence += 1
        key = self._origin + self._sequence.to_bytes(8)
        self._asked[pattern] = key
        self._answers[key] = pattern
        exchange, words = pattern
        address = _ADDRESS_LENGTHS.pack(len(exchange), len(words), 0) + exchange + words
        if pattern in self._wanted:
            message = pack(Kind.SUBSCRIBE, self._window, key=key, address=address)
        else:
            message = pack(Kind.UNSUBSCRIBE, key=key, address=address)
        self.neighbour.link.send(message)

    def answered(self, message: bytes, is_refused: bool) -> Pattern | None:
        """Take its answer; return the pattern that it confirms, or refuses, if it was told nothing else of it since."""
        key = message[KEY]
        pattern = self._answers.pop(key, None)
        self._tell_more()
        if pattern is None or self._asked.get(pattern) != key:
            return None
        del self._asked[pattern]
        if is_refused:
            self.refused[pattern] = None
        return pattern

    def retry(self) -> None:
        """Tell it again what it had no room for."""
        refused, self.refused = self.refused, {}
        self._to_tell.update(refused)
        self._tell_more()

    def event_came(self) -> None:
        """Count an event that it has sent, and give credit back now and then."""
        self._taken += 1
        if self._taken >= _CREDITED_AT_ONCE:
            self.neighbour.link.send(pack(Kind.EVENT_CREDIT, self._taken.to_bytes(4)))
            self._taken = 0
