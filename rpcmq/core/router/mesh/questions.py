"""A question to all that could have a message: everyone of its roll, and the routers that know who is on it.

A consumer is on a roll by its origin, which is another one in its next life: that can't speak for what this one had.
"""

from __future__ import annotations

from itertools import islice

from rpcmq.core.router.mesh.fences import PlaceKey, name_of
from rpcmq.core.router.mesh.neighbours import Neighbour
from rpcmq.core.router.mesh.places import Tag
from rpcmq.core.router.mesh.searches import Patience, Search
from rpcmq.core.router.model import Request
from rpcmq.wire import Kind, pack
from rpcmq.wire.adoption import WHERE_RECORD
from rpcmq.wire.consumer_name import NOBODY, ConsumerName

__all__ = ["Asked", "Question", "Roll"]

#: Most consumers that are looked at, and named, to say for whom a message waits.
_LOOKED_AT, _NAMED = 100, 3
#: Origin of each consumer that could have had a message -> for people, its identity and the router it was known at.
Roll = dict[bytes, tuple[str, str]]


class Question:
    """One question about messages for one place.

    Attributes:
        number: of the question, in the answers of routers.
        place: where the messages are to go.
        is_call: whether the messages are calls.
        roll: those who could have had one.
        told: ids of the other routers that have said which consumers they know.
        put_to: the other routers that were asked, and are linked, by id.
        asked: the messages that are still asked for, by key.
        put_at, until: when it is put, and given up (monotonic seconds).
        sought: the consumer that has left with the messages; None: it may be anybody.
    """

    __slots__ = ("asked", "is_call", "number", "place", "put_at", "put_to", "roll", "sought", "told", "until")

    def __init__(
        self,
        number: int,
        place: PlaceKey,
        is_call: bool,
        now: float,
        patience: Patience,
        sought: ConsumerName | None,
    ) -> None:
        self.number = number
        self.place = place
        self.is_call = is_call
        self.put_at = now
        self.until = now + patience.seconds
        self.sought = sought
        self.roll: Roll = {}
        self.told: set[int] = set()
        self.put_to: dict[int, Neighbour] = {}
        self.asked: dict[bytes, Asked] = {}

    def silent_routers(self) -> list[Neighbour]:
        """The routers that have not said which consumers they know, although they answer heartbeats."""
        return [each for id, each in self.put_to.items() if each.link.is_responsive and id not in self.told]

    def where(self) -> bytes:
        """The WHERE that puts it to a router, about all messages that are still asked for."""
        address, is_group = self.place
        records = b"".join(WHERE_RECORD.pack(each.request.key, each.stamp) for each in self.asked.values())
        name = self.sought or NOBODY
        return pack(
            Kind.WHERE, records, key=name.key, method=name.identity.encode(), sequence=self.number,
            format=int(self.is_call), address=address.encode(), consumer=Tag.GROUP if is_group else Tag.TOPIC,
        )  # fmt: skip


class Asked:
    """A message that nobody may start before it is known who has had it.

    Attributes:
        name: of the message.
        stamp: of this router as its owner.
        promised: origins of those who have not had it, and start it for no earlier owner.
        question: the question it is part of; None until that is put.
        routers: the number of routers that its sender knew of; 0: not told.
        roll: those who could have had it, beside everyone of the question.
        search: why it is asked for.
    """

    __slots__ = ("name", "promised", "question", "request", "roll", "routers", "search", "stamp")

    def __init__(self, request: Request, stamp: bytes, routers: int, search: Search) -> None:
        self.request = request
        self.name = name_of(request.key, request.destination.topic.group)
        self.stamp = stamp
        self.routers = routers
        self.promised: set[bytes] = set()
        self.question: Question | None = None
        self.roll: Roll = {}
        self.search = search

    def silent(self) -> Roll:
        """The consumers that have not said anything."""
        roll = self.question.roll | self.roll if self.question is not None else self.roll
        return {origin: name for origin, name in roll.items() if origin not in self.promised}

    def why(self, now: float) -> str:
        """Say for whom it waits. There may be thousands: only as many are looked at as are named."""
        question = self.question
        if question is None:
            return "about to be asked for"
        some = self.roll | dict(islice(question.roll.items(), _LOOKED_AT))
        silent = [name for origin, name in some.items() if origin not in self.promised][:_NAMED]
        names = [f"{name}, which was at router {router}" if router else name for name, router in silent]
        names += [f"router {each.name}" for each in question.silent_routers()[:_NAMED]]
        return (
            f"asked for {now - question.put_at:.1f} s ago: no word from {', '.join(names) or 'a router that is gone'}"
        )

    def why_lost(self) -> str:
        """Say why it is given up: somebody may have started it, and does not say."""
        silent, patience, text = self.silent(), self.search.patience, self.search.loss
        within = f"within {patience.seconds:g} s ({patience.setting})"
        if text and silent and silent.keys() <= self.roll.keys():
            return f"{text}, and has come to no router {within}"
        names = ", ".join(f"{name} ({router})" if router else name for name, router in list(silent.values())[:5])
        why = [text] if text else []
        if names:
            why.append(f"{names} did not say {within} whether it had it")
        silent_routers = self.question.silent_routers() if self.question is not None else []
        if silent_routers or not names:
            routers = ", ".join(f"router {each.name}" for each in silent_routers[:5]) or "a router that is gone"
            why.append(f"{routers} did not say {within} who may have had it")
        return "; ".join(why)
