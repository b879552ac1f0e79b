"""A question to all that could have a message: everyone of its roll, and the routers that know who is on it."""

from __future__ import annotations

from rpcmq.core.router.mesh.fences import PlaceKey, name_of
from rpcmq.core.router.model import Request

__all__ = ["Asked", "Question"]


class Question:
    """One question about messages for one place.

    Attributes:
        number: of the question, in the answers of routers.
        place: where the messages are to go.
        is_call: whether the messages are calls.
        roll: identity of each consumer that could have had one -> the router that it was known at, for people.
        told: ids of the other routers that have said which consumers they know.
        asked: the messages that are still asked for, by key.
        until: it is given up then (monotonic seconds).
    """

    __slots__ = ("asked", "is_call", "number", "place", "roll", "told", "until")

    def __init__(self, number: int, place: PlaceKey, is_call: bool, until: float) -> None:
        self.number = number
        self.place = place
        self.is_call = is_call
        self.until = until
        self.roll: dict[str, str] = {}
        self.told: set[int] = set()
        self.asked: dict[bytes, Asked] = {}


class Asked:
    """A message that nobody may start before it is known who has had it.

    Attributes:
        name: of the message.
        stamp: of this router as its owner.
        promised: identities of those who have not had it, and start it for no earlier owner.
        question: the question it is part of; None until that is put.
        routers: the number of routers that its sender knew of; 0: not told.
    """

    __slots__ = ("name", "promised", "question", "request", "routers", "stamp")

    def __init__(self, request: Request, stamp: bytes, routers: int) -> None:
        self.request = request
        self.name = name_of(request.key, request.destination.topic.group)
        self.stamp = stamp
        self.routers = routers
        self.promised: set[str] = set()
        self.question: Question | None = None

    def silent(self) -> list[str]:
        """The consumers that have not said anything, each with the router that it was known at."""
        if self.question is None:
            return []
        roll = self.question.roll
        return [f"{each} ({roll[each]})" if roll[each] else each for each in roll if each not in self.promised]
