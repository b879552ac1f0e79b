"""Room: the credit of consumers here that is kept, for a moment, for requests which wait at other routers.

A request waits at its owner, so what waits here in its stead is the owner's turn
(:class:`~rpcmq.core.router.forwarded.Ticket`), among the requests of this router itself. When it has come, the credit
of a consumer is reserved, and the owner is told (ROOM). An owner that does not use room waits behind everybody else
then, and gets it for one request at a time until it does use it.
"""

from __future__ import annotations

from collections import deque
from math import inf

from rpcmq.core.router.forwarded import Room, Ticket
from rpcmq.core.router.mesh.places import Place, address_of_place
from rpcmq.core.router.model import Consumer, Link, Server
from rpcmq.core.router.roundrobin.dispatch import Dispatch
from rpcmq.wire import Kind, pack

__all__ = ["Rooms"]

#: Room that its owner does not use is given to others after this (seconds), and is taken for unused after that.
_KEPT, _HELD = 1.0, 0.1
#: Most room of one owner for one place, and most places of which it is known that it did not use room.
_MOST_ROOM, _MOST_UNUSED = 4096, 1000
#: For so long an owner gets no room for a place of which it has brought what cannot be taken yet (seconds): with free
#: consumers there it would bring the same again at once, and get it back, without end.
_REST = 0.1
#: Places that nobody consumes any more are looked for so often (seconds).
_SWEPT = 10.0


class Rooms:
    """The turns of other routers, and the room that is kept for them.

    Attributes:
        kept: the room that is kept for each router.
    """

    def __init__(self, dispatch: Dispatch) -> None:
        self._requests = dispatch.requests
        self._deliveries = dispatch.deliveries
        #: The oldest first.
        self._tickets: dict[Place, dict[Link, Ticket]] = {}
        self.kept: dict[Link, dict[Place, deque[Room]]] = {}
        #: Places for which an owner had room and did not use it, until it does.
        self._unused: dict[Link, dict[Place, None]] = {}
        #: Owners that get no room for a place for a moment: until when, and how much they want then.
        self._resting: dict[tuple[Link, Place], tuple[float, int]] = {}
        #: Places of which an owner uses room again.
        self._to_serve: dict[Place, None] = {}
        self._next_look = 0.0
        self._next_sweep = inf
        dispatch.deliveries.tickets = self._tickets
        dispatch.deliveries.on_tickets = self._call_ticket

    def want(self, now: float, link: Link, place: Place, count: int) -> None:
        """So many requests for ``place`` wait at ``link``; room that is kept for it is given back."""
        self._withdraw_ticket(link, place)
        kept = self.kept.get(link, {}).get(place)
        if kept and (count or now - kept[0].since > _HELD):
            self._note_unused(now, link, place)
        self._take_back_room(now, link, place)
        self._forget_empty(link)
        if self._requests.draining:
            return  # what waits goes elsewhere when this router has gone; until then nothing is taken
        if (resting := self._resting.get((link, place))) is not None:
            self._resting[link, place] = resting[0], count
        elif count:
            self._tickets.setdefault(place, {})[link] = Ticket(link, count, self._requests.last_number)
            self._next_sweep = min(self._next_sweep, now + _SWEPT)
            self._serve(now, place)

    def rest(self, now: float, link: Link, place: Place) -> None:
        """``link`` has brought what cannot be taken yet: it gets no room for ``place`` for a moment."""
        self._resting[link, place] = now + _REST, 0

    def take(self, link: Link, place: Place) -> Consumer | None:
        """Take room that is kept for ``link``; None if there is none."""
        rooms = self.kept.get(link)
        kept = rooms.get(place) if rooms else None
        while kept:
            consumer = kept.popleft().consumer
            self._release(consumer)
            if self._unused and self._unused.get(link, {}).pop(place, False) is None:
                self._to_serve[place] = None
            if consumer.ready:
                return consumer
        return None

    def owner_answers(self, now: float, link: Link) -> None:
        """``link`` answers again: it has the turns that it has missed."""
        for place in [place for place, tickets in self._tickets.items() if link in tickets]:
            self._serve(now, place)

    def forget(self, now: float, link: Link) -> None:
        """``link`` has ended: nothing is kept for it."""
        # First, or what is taken back would be kept for it again.
        for place in list(self._tickets):
            self._withdraw_ticket(link, place)
        for place in list(self.kept.get(link, ())):
            self._take_back_room(now, link, place)
        self.kept.pop(link, None)
        self._unused.pop(link, None)
        for resting in [each for each in self._resting if each[0] is link]:
            del self._resting[resting]

    def _serve(self, now: float, place: Place) -> None:
        """Give room to the owners that wait for ``place``, the oldest first, while nobody here waits."""
        for ticket in list(self._tickets.get(place, {}).values()):
            while ticket.count and self._may_have_room(ticket, place):
                consumer = _pick(place) if not place.queue else None
                if consumer is None:
                    return
                self._give_room(now, ticket, consumer, place)
            if not ticket.count:
                self._withdraw_ticket(ticket.owner, place)

    def _may_have_room(self, ticket: Ticket, place: Place) -> bool:
        owner = ticket.owner
        kept = len(self.kept.get(owner, {}).get(place, ()))
        return owner.is_responsive and kept < (1 if place in self._unused.get(owner, ()) else _MOST_ROOM)

    def _withdraw_ticket(self, link: Link, place: Place) -> None:
        tickets = self._tickets.get(place)
        if tickets is not None and tickets.pop(link, None) is not None and not tickets:
            del self._tickets[place]

    def _call_ticket(self, now: float, consumer: Consumer, number: float) -> bool:
        """Give credit of ``consumer``, which is free, to the oldest ticket; return whether that could be.

        Args:
            number: of the oldest request that waits for it: one that is older goes first.
        """
        topic = consumer.topic
        oldest: Ticket | None = None
        where: Place = topic
        for place in (topic, topic.servers[consumer.server]):
            for ticket in self._tickets.get(place, {}).values():
                if self._may_have_room(ticket, place):
                    if ticket.number < number and (oldest is None or ticket.number < oldest.number):
                        oldest, where = ticket, place
                    break
        if oldest is None:
            return False
        self._give_room(now, oldest, consumer, where)
        if not oldest.count:
            self._withdraw_ticket(oldest.owner, where)
        return True

    def _give_room(self, now: float, ticket: Ticket, consumer: Consumer, place: Place) -> None:
        """Reserve credit of ``consumer`` for the owner of ``ticket``, and tell it."""
        free = consumer.credit - len(consumer.in_flight)
        is_contended = any(consumer.queues) or any(owner is not ticket.owner for owner in self._tickets.get(place, ()))
        is_one = is_contended or place in self._unused.get(ticket.owner, ())
        count = min(ticket.count, 1 if is_one else free, _MOST_ROOM)
        self._requests.turns.spent += count
        consumer.reserve(count)
        consumer.topic.ready.move(consumer)
        kept = self.kept.setdefault(ticket.owner, {}).setdefault(place, deque())
        kept.extend(Room(consumer, now) for _ in range(count))
        self._next_look = min(self._next_look, now + _KEPT) if self._next_look else now + _KEPT
        address, tag = address_of_place(place)
        ticket.owner.send(pack(Kind.ROOM, count.to_bytes(4), address=address.encode(), consumer=tag))
        ticket.count -= count

    def _take_back_room(self, now: float, link: Link, place: Place) -> None:
        for room in self.kept.get(link, {}).pop(place, ()):
            self._release(room.consumer)
            self._deliveries.deliver_waiting(now, room.consumer)

    def _forget_empty(self, owner: Link) -> None:
        """Without room of any owner what comes is taken the short way."""
        if not self.kept.get(owner, True):
            del self.kept[owner]

    def _release(self, consumer: Consumer) -> None:
        consumer.release()
        consumer.topic.ready.move(consumer)

    def tick(self, now: float) -> None:
        """Give room that was not used to others, and forget places that nobody serves."""
        if now >= self._next_sweep:
            self._sweep(now)
        for (link, of), (until, count) in list(self._resting.items()):
            if until <= now:
                del self._resting[link, of]
                self.want(now, link, of, count)
        if not self._to_serve and (not self._next_look or now < self._next_look):
            return
        self._next_look = 0.0
        to_serve, self._to_serve = self._to_serve, {}
        for place in to_serve:
            self._serve(now, place)
        for owner, rooms in list(self.kept.items()):
            for place, kept in list(rooms.items()):
                late: list[Consumer] = []
                while kept and kept[0].since + _KEPT <= now:
                    late.append(kept.popleft().consumer)
                if late:
                    self._note_unused(now, owner, place)
                for consumer in late:
                    self._release(consumer)
                for consumer in late:
                    self._deliveries.deliver_waiting(now, consumer)
                if kept:
                    until = kept[0].since + _KEPT
                    self._next_look = min(self._next_look or until, until)
                else:
                    rooms.pop(place, None)
            self._forget_empty(owner)

    def _sweep(self, now: float) -> None:
        """Forget places that nobody consumes: owners know that, and begin anew when somebody comes."""
        for place in [place for place in self._tickets if not place.consumers]:
            del self._tickets[place]
        for link, unused in list(self._unused.items()):
            self._unused[link] = {place: None for place in unused if place.consumers}
            if not self._unused[link]:
                del self._unused[link]
        self._next_sweep = now + _SWEPT if self._tickets or self._unused else inf

    def _note_unused(self, now: float, owner: Link, place: Place) -> None:
        """Room for ``place`` was kept for ``owner`` in vain: others go first from now on."""
        unused = self._unused.setdefault(owner, {})
        if len(unused) >= _MOST_UNUSED:
            unused.clear()
        unused[place] = None
        self._next_sweep = min(self._next_sweep, now + _SWEPT)
        tickets = self._tickets.get(place, {})
        ticket = tickets.pop(owner, None)
        if ticket is not None:
            ticket.number = self._requests.last_number
            tickets[owner] = ticket

    def next_deadline(self) -> float:
        """The time at which unused room or tickets are looked for (monotonic seconds)."""
        due = 0.0 if self._to_serve else min(self._next_look or inf, self._next_sweep)
        return min(due, *(until for until, _ in self._resting.values())) if self._resting else due


def _pick(place: Place) -> Consumer | None:
    return place.pick() if isinstance(place, Server) else place.ready.pick()
