"""The part of the mesh by which each router knows the addresses that the others have consumers for.

:mod:`~rpcmq.core.router.mesh.own_addresses` has this router's, :mod:`~rpcmq.core.router.mesh.announcer` tells them,
:mod:`~rpcmq.core.router.mesh.learner` takes those of others, :mod:`rpcmq.wire.interest` says how they are written.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import islice
from math import inf

from rpcmq.core.router.directory_watcher import DirectoryWatcher
from rpcmq.core.router.mesh.announcer import Announcer
from rpcmq.core.router.mesh.learner import Learner
from rpcmq.core.router.mesh.neighbours import Neighbour
from rpcmq.core.router.mesh.own_addresses import OwnAddresses, places_of
from rpcmq.core.router.mesh.part import MeshContext, MeshPart
from rpcmq.core.router.mesh.places import Place
from rpcmq.core.router.model import Consumer, Delivery, Link, Server, Topic
from rpcmq.core.router.remotes import Remote
from rpcmq.wire import Address, Kind, sequence_of
from rpcmq.wire.consumer_name import ConsumerName

__all__ = ["Interest"]

#: Topics whose places are entered in one tick, when the first neighbour has come.
_ENTERED_AT_ONCE = 500


class Interest(MeshPart):
    """Tells neighbours this router's addresses, and knows theirs."""

    def __init__(self, context: MeshContext) -> None:
        self._context = context
        self.directory = context.node.directory
        self._departures = context.roundrobin.dispatch.departures
        self._deliveries = context.roundrobin.dispatch.deliveries
        self.own = OwnAddresses()
        self.announcer = Announcer(self.own)
        self.learner = Learner(context.node, context.places)
        #: Consumers that no other router knows yet, in the order in which they came. They are given nothing (rule
        #: ``announce`` of docs/contributing/mesh-model.md): if this router died, nobody could ask them what they had.
        self._unknown: dict[Consumer, None] = {}
        #: The same, while there is no neighbour that answers. They are given all but what others may have taken over.
        self._unheard: dict[Consumer, None] = {}
        self._deliveries.unheard = self._unheard
        #: The ones of them that were not told yet; and the others, each with the version in which it was told.
        self._untold: dict[Consumer, None] = {}
        self._told: deque[tuple[int, Consumer]] = deque()
        #: Topics that are left to be entered; None: nobody wants to know any yet.
        self._to_enter: Iterator[Topic] | None = None
        self._is_entering = False
        self.kinds = {Kind.INTEREST: self.learner.take, Kind.INTEREST_ACK: self._acknowledged}
        self.directory.watcher = _Watcher(self)
        context.places.on_changed.append(self._remote_changed)
        self._departures.on_left = self.consumer_left
        recovery = context.roundrobin.dispatch.recovery
        recovery.has_converged, recovery.are_on_their_way = self.learner.has_converged, self.learner.are_on_their_way
        context.names = self.learner.names

    # --- knowledge for other parts -----------------------------------------------------------

    def has_converged(self, now: float) -> bool:
        """Return whether the addresses of all neighbours are known: an address without consumers has none anywhere."""
        return self.learner.has_converged(now)

    def is_known(self, consumer: Consumer) -> bool:
        """Return whether another router knows ``consumer``, or there is none that could be told."""
        return consumer not in self._unknown

    def acknowledged(self, neighbour: Neighbour) -> int:
        """The version of this router's addresses that ``neighbour`` has taken; 0: none yet."""
        return self.announcer.acknowledged(neighbour.link)

    def names(self, address: Address, group: str = "") -> Iterator[tuple[str, ConsumerName]]:
        """Router and name of each consumer elsewhere of an address, of routers that are gone lately, too."""
        return self.learner.names(address, group)

    # --- neighbours --------------------------------------------------------------------------

    def neighbour_up(self, now: float, neighbour: Neighbour, resumed: bool) -> None:
        """Tell it everything, and expect the same of it."""
        self.neighbour_changed(now, neighbour)
        if resumed:
            return
        if self._to_enter is None:
            self._to_enter, self._is_entering = iter(list(self.directory)), True
        self.learner.add(now, neighbour)
        self.announcer.add(now, neighbour.link)

    def neighbour_gone(self, now: float, neighbour: Neighbour, reason: str) -> None:
        """Its addresses are void."""
        self.announcer.remove(neighbour.link)
        self.learner.remove(now, neighbour)
        self.neighbour_changed(now, neighbour)

    def neighbour_changed(self, now: float, neighbour: Neighbour) -> None:
        """Have consumers take work that nobody else knows, if no neighbour answers who could be told of them."""
        if neighbour.is_usable and self._unheard:
            self._untold.update(self._unheard)
            self.announcer.wake(now)
        elif self._unknown and not any(each.is_usable for each in self._context.neighbours):
            self._told.clear()
            self._untold.clear()
            unknown, self._unknown = self._unknown, {}
            self._unheard.update(unknown)
            for consumer in unknown:
                consumer.release(consumer.granted)
                self._deliveries.deliver_waiting(now, consumer)

    def neighbour_has_room(self, now: float, neighbour: Neighbour) -> None:
        """Go on telling it."""
        self.announcer.wake(now)

    def _acknowledged(self, now: float, link: Link, message: bytes) -> None:
        version = sequence_of(message)
        self.announcer.take_acknowledgement(now, link, version)
        self._acknowledge(now, version)

    def _acknowledge(self, now: float, version: int) -> None:
        """A router knows all consumers that were told up to ``version``."""
        known: list[Consumer] = []
        while self._told and self._told[0][0] <= version:
            consumer = self._told.popleft()[1]
            if consumer in self._unknown:
                consumer.release(consumer.granted)
            elif consumer not in self._unheard:
                continue  # it has left
            self._unknown.pop(consumer, None)
            self._unheard.pop(consumer, None)
            known.append(consumer)
        for consumer in known:
            self._deliveries.deliver_waiting(now, consumer)

    # --- this router's addresses -------------------------------------------------------------

    def place_changed(self, now: float, place: Place) -> None:
        """Tell others of ``place`` soon."""
        if self._to_enter is not None:
            self.own.mark(place)
            self.announcer.wake(now)

    def consumer_changed(self, now: float, consumer: Consumer, is_new: bool = False) -> None:
        """Tell others of ``consumer``, which came, left, or stopped or started answering, soon."""
        if self._to_enter is None:
            return
        self.own.changed(consumer)
        self.announcer.wake(now)
        if not is_new:
            return
        if any(neighbour.is_usable for neighbour in self._context.neighbours):
            self._unknown[consumer] = self._untold[consumer] = None
            consumer.reserve(consumer.granted)
        else:
            self._unheard[consumer] = None

    def consumer_left(self, now: float, consumer: Consumer) -> None:
        """Tell others that ``consumer`` takes nothing more."""
        self.consumer_changed(now, consumer)
        for consumers in (self._unknown, self._unheard, self._untold):
            consumers.pop(consumer, None)

    def process_changed(self, now: float, link: Link) -> None:
        """Its consumers take work again, or none; what it has sent is given to anybody while it is here."""
        for consumer in link.consumers.values():
            if not consumer.stopping:
                self.consumer_changed(now, consumer)
        self._deliver_withheld(now)

    def process_ended(self, now: float, link: Link, reason: str) -> None:
        """Nobody knows any more who has sent what it has left."""
        self._deliver_withheld(now)

    def _deliver_withheld(self, now: float) -> None:
        for consumer in list(self._unheard):
            self._deliveries.deliver_waiting(now, consumer)

    # --- places ------------------------------------------------------------------------------

    def _remote_changed(self, now: float, place: Place, remote: Remote[Delivery]) -> None:
        if not remote.consumers:
            self._departures.nobody_left(now, place)

    # --- life --------------------------------------------------------------------------------

    def tick(self, now: float) -> None:
        """Send what has changed, and go on with what is done in pieces."""
        if now >= self.learner.due:
            self.learner.tick(now)
        if self._is_entering:
            self._enter_more()
            self.announcer.due = now
        elif now >= self.announcer.next_deadline():
            self.announcer.tick(now)
            self._note_told()
            if self._told:
                # A consumer in the place of one like it changes no row: what others took before has told them.
                self._acknowledge(now, max((self.acknowledged(each) for each in self._context.neighbours), default=0))

    def _enter_more(self) -> None:
        """Mark further places that were there before anybody wanted to know."""
        topics = list(islice(self._to_enter or (), _ENTERED_AT_ONCE))
        for topic in topics:
            for place in places_of(topic):
                self.own.mark(place)
        self._is_entering = len(topics) == _ENTERED_AT_ONCE

    def _note_told(self) -> None:
        """Note the version of the consumers that are in the rows by now."""
        for consumer in list(self._untold):
            server = consumer.topic.servers.get(consumer.server)
            if self.own.is_marked(consumer.topic) or (server is not None and self.own.is_marked(server)):
                # Later ones are not told either: places are told in the order in which they changed.
                return
            del self._untold[consumer]
            self._told.append((self.announcer.version, consumer))

    def next_deadline(self) -> float:
        """The time of the next :meth:`tick` (monotonic seconds)."""
        return min(self.announcer.next_deadline(), self.learner.due) if self._to_enter is not None else inf


class _Watcher(DirectoryWatcher):
    """Tells the part of the mesh of changes in the directory."""

    def __init__(self, interest: Interest) -> None:
        self._interest = interest

    def made(self, now: float, place: Place) -> None:
        """Others may have consumers of it."""
        self._interest.learner.made(now, place)

    def declared(self, now: float, place: Place) -> None:
        """Others are to know it."""
        self._interest.place_changed(now, place)

    def registered(self, now: float, consumer: Consumer) -> None:
        """Others are to know it."""
        self._interest.consumer_changed(now, consumer, is_new=True)

    def unregistered(self, now: float, consumer: Consumer) -> None:
        """Others are to send it nothing."""
        self._interest.consumer_left(now, consumer)

    def forgotten(self, place: Place) -> None:
        """Others are to forget it as one of this router's."""
        self._interest.place_changed(0.0, place)

    def keeps(self, now: float, place: Place) -> bool:
        """Return whether others know it. If each stayed for the other none would go: so this router's word ends now."""
        if not self._interest.learner.is_known(place):
            return False
        if place.registered_here:
            place.registered_here = False
            self._interest.place_changed(now, place)
        return True

    def find_alias(self, now: float, address: Address) -> Server | None:
        """A server of another router may be meant."""
        return self._interest.learner.find_alias(now, address)
