"""The part of each router in the adoption of messages by others: it asks its consumers, and refuses earlier owners.

Only the process of a consumer knows whether it has started something: a router's own word would be stale by one move.
So a question is passed on to all consumers of its address that are linked here (``promise``), the answers go to the
owner, and whatever is said here of consumers that are gone is that nobody can know any more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from math import inf

from rpcmq.core.router.forwarded import Forwarded
from rpcmq.core.router.mesh.consumer_names import in_one_message
from rpcmq.core.router.mesh.departed import Departed
from rpcmq.core.router.mesh.fence_news import FenceNews, send_fences
from rpcmq.core.router.mesh.fences import Fence, Fences, PlaceKey, group_of_place, name_of
from rpcmq.core.router.mesh.part import MeshContext
from rpcmq.core.router.mesh.places import Place, Tag, address_of_place
from rpcmq.core.router.method_statistics import Statistics
from rpcmq.core.router.model import Consumer, Destination, Link, Request, Server, Topic
from rpcmq.core.router.turns import TURN_STEPS
from rpcmq.core.router.usage import MESSAGE_OVERHEAD
from rpcmq.errors import Outcome
from rpcmq.wire import (
    CONSUMER_AT,
    FORMAT_AT,
    KEY,
    NO_TTL,
    ORIGIN_OF_KEY,
    STAMP,
    Address,
    Kind,
    address_of,
    method_of,
    pack,
    sequence_of,
)
from rpcmq.wire.adoption import HERE_RECORD, MAX_ASKED, WHERE_RECORD, Word, where_records
from rpcmq.wire.consumer_name import NOBODY, ConsumerName
from rpcmq.wire.mesh_bodies import KnowsBody

__all__ = ["Witness", "place_key"]

_LOOK_SECONDS = 30.0
_IDENTITY_BYTES = 255
#: Turns' steps of a message that is asked for, beside one for each neighbour.
_STEPS = 8
_NOT_COUNTED = Statistics("", "")


def place_key(place: Place) -> PlaceKey:
    """Return the key of ``place`` in questions and fences."""
    address, tag = address_of_place(place)
    return address, tag == Tag.GROUP


class Witness:
    """Answers for this router what owners ask, and asks its consumers on their behalf.

    Args:
        give_up: called with (now, key, group) of a message of this router for which a later owner asks.

    Attributes:
        fences: the latest owner of each message that was asked for.
        departed: consumers that are gone.
    """

    def __init__(self, context: MeshContext, give_up: Callable[[float, bytes, str], None]) -> None:
        self._context = context
        self._dispatch = context.roundrobin.dispatch
        self._requests = self._dispatch.requests
        self._give_up = give_up
        self.fences = Fences()
        self._news = FenceNews(self.fences)
        self.departed = Departed()
        self._look_at = inf

    # --- questions ---------------------------------------------------------------------------

    def where(self, now: float, link: Link, message: bytes) -> None:
        """WHERE: the router at ``link`` asks for messages, and is their owner from now on.

        Raises:
            ProtocolError: malformed.
        """
        neighbour = self._context.neighbours.by_link.get(link)
        records, place = where_records(message), _place_of(message)
        sought = ConsumerName(message[KEY][ORIGIN_OF_KEY], method_of(message))
        if neighbour is None:
            return
        is_call, owner, group = bool(message[FORMAT_AT]), neighbour.identity.id, group_of_place(place)
        self._spend(len(records))
        asked, refused, seen = [], [], []
        untold = self._context.untold([key for key, _ in records])
        for key, stamp in records:
            fence = self.fences.get(key, group)
            if fence is not None and fence.stamp > stamp:
                refused.append((key, fence.stamp, Word.NEWER))
                continue
            if fence is None or fence.stamp < stamp:
                seen.append(self.note(key, Fence(stamp, owner, place, is_call, now)))
                self._give_up(now, key, group)
                self._give_up_unasked(now, key, stamp, place, is_call)
            if sought.identity:
                self.departed.seek(now, key, group, sought)
            elif (name := self.holder(key, group) or untold.get(key)) is not None:
                self._tell(link, name, [(key, stamp, Word.SOUGHT)], place)
            if identity := self.departed.lost(key, group):
                self._tell(link, NOBODY._replace(identity=identity), [(key, stamp, Word.LOST)], place)
            else:
                asked.append((key, stamp))
        self._carry(seen, link)
        self._tell(link, NOBODY, refused, place)
        names = in_one_message(self._names(place))
        if names is not None:
            self._context.node.turns.spend(len(names))
            link.send(KnowsBody(consumers=tuple(names)).message(sequence=sequence_of(message)))
        else:
            # Nothing is decided without all names: the owner gives up in time, and says so.
            self._context.node.turns.spend(TURN_STEPS)
            link.counters["consumers not named"] += 1
        self.ask_consumers(place, is_call, asked)

    def fences_seen(self, now: float, link: Link, message: bytes) -> None:
        """FENCES: the router at ``link`` has seen owners.

        Raises:
            ProtocolError: malformed.
        """
        place, is_call, owner = _place_of(message), bool(message[FORMAT_AT]), sequence_of(message)
        records, seen = where_records(message), []
        self._spend(len(records))
        for key, stamp in records:
            fence = self.fences.get(key, group_of_place(place))
            if fence is None or fence.stamp < stamp:
                seen.append(self.note(key, Fence(stamp, owner, place, is_call, now)))
                if owner != self._context.own.id:
                    self._give_up(now, key, group_of_place(place))
                    self._give_up_unasked(now, key, stamp, place, is_call)
        self._carry(seen, link)

    def _spend(self, records: int) -> None:
        self._context.node.turns.spend(records * (_STEPS + len(self._context.neighbours)))

    def note(self, key: bytes, fence: Fence) -> tuple[bytes, Fence]:
        """Refuse owners before ``fence`` from now on (``fence``); return both."""
        self.fences.put(key, fence)
        self._look_at = min(self._look_at, fence.put_at + _LOOK_SECONDS)
        return key, fence

    def _carry(self, seen: Sequence[tuple[bytes, Fence]], source: Link) -> None:
        """Pass on what was ``seen`` together: it is alike but for keys and stamps (``carry``)."""
        for neighbour in self._context.neighbours if seen else ():
            link = neighbour.link
            if link is not source and neighbour.identity.id != seen[0][1].owner and link not in self._context.limits:
                send_fences(link, seen)

    def tell_all(self, now: float, link: Link) -> None:
        """Tell a neighbour that has just come of all owners that were seen, unless it is limited: it has no say."""
        if link not in self._context.limits:
            self._news.add(now, link)

    def _names(self, place: PlaceKey) -> Iterator[ConsumerName]:
        address, is_group = place
        bare, group = (address._replace(server=""), address.server) if is_group else (address, "")
        for _, name in self._context.names(bare, group):
            yield name
        for consumer in self.consumers(place):
            yield ConsumerName(consumer.link.origin, consumer.link.identity)

    # --- consumers ---------------------------------------------------------------------------

    def consumers(self, place: PlaceKey) -> Iterator[Consumer]:
        """The consumers of ``place`` that are linked here, one for each process, those that are leaving included."""
        found = self._context.places.find(*place)
        if found is None:
            return
        server = found.name if isinstance(found, Server) else None
        leaving = (found.topic if isinstance(found, Server) else found).leaving
        seen: set[Link] = set()
        for consumer in (*found.consumers, *leaving):
            link = consumer.link
            # What one had whose link has ended is known, and it will say nothing.
            is_here = link.consumers.get(consumer.tag) is consumer and server in (None, consumer.server)
            if is_here and link not in seen:
                seen.add(link)
                yield consumer

    def serves(self, consumer: Consumer | None, place: PlaceKey) -> bool:
        """Return whether ``consumer``, linked here, is one of ``place``: nobody else has a say about its messages."""
        found = self._context.places.find(*place)
        if consumer is None or found is None:
            return False
        topic = found.topic if isinstance(found, Server) else found
        return consumer in found.consumers or consumer in topic.leaving

    def ask_consumers(self, place: PlaceKey, is_call: bool, records: Sequence[tuple[bytes, bytes]]) -> None:
        """Pass a question on to all consumers of ``place`` that are linked here."""
        if not records:
            return
        asked = 0
        for consumer in self.consumers(place):
            asked += 1
            _ask(consumer, place, is_call, records)
        self._context.node.turns.spend(asked)

    def ask_consumer(self, consumer: Consumer, places: Iterable[PlaceKey]) -> None:
        """Ask a consumer that has come for all that was asked for before (``push``)."""
        for place in places:
            for is_call in (True, False):
                records = [(key, fence.stamp) for key, fence in self.fences.of_place(place) if fence.is_call is is_call]
                for start in range(0, len(records), MAX_ASKED):
                    _ask(consumer, place, is_call, records[start : start + MAX_ASKED])

    def relay(
        self, now: float, consumer: Consumer | None, link: Link, key: bytes, stamp: bytes, word: int, fence: Fence
    ) -> None:
        """Tell the owner of a message the word of the consumer at ``link``, which may have it for that owner now."""
        owner = self._context.neighbours.by_id.get(fence.owner)
        if owner is None:
            return
        if word in (Word.RUNNING, Word.ANSWERED) and consumer is not None and stamp == fence.stamp:
            self._host(now, owner.link, consumer, key, fence)
        self._tell(owner.link, ConsumerName(link.origin, link.identity), [(key, stamp, word)], fence.place)

    def _tell(self, link: Link, name: ConsumerName, words: Sequence[tuple[bytes, bytes, int]], place: PlaceKey) -> None:
        if words:
            payload = b"".join(HERE_RECORD.pack(*each) for each in words)
            address, is_group = place
            block, tag = (address.encode(), Tag.GROUP) if is_group else (b"", Tag.TOPIC)
            method = name.identity.encode()[:_IDENTITY_BYTES]
            link.send(pack(Kind.HERE, payload, key=name.key, method=method, address=block, consumer=tag))

    def _host(self, now: float, owner: Link, consumer: Consumer, key: bytes, fence: Fence) -> None:
        """A consumer here has a message of the router at ``owner``: what it says of it goes there."""
        topic = consumer.topic
        request = Forwarded()
        request.owner, request.key = owner, key
        kind = Kind.REQUEST if fence.is_call else Kind.CAST
        request.message = pack(kind, key=key, hops=fence.stamp[0], attempt=fence.stamp[1])
        request.destination = Destination(topic, None, "", _NOT_COUNTED)
        request.is_call, request.reply_to = fence.is_call, owner if fence.is_call else None
        request.queue = request.delivery = request.slot = request.outcome = None
        request.ttl, request.attempts, request.kept = NO_TTL, fence.stamp[1], False
        request.number, request.received_at = self._requests.last_number, now
        request.usage, request.charge = owner.usage, MESSAGE_OVERHEAD
        owner.usage.size_bytes += MESSAGE_OVERHEAD
        self.displace(now, consumer, key)
        if fence.is_call:
            if (former := owner.calls.get(key)) is not None:
                self.end_silently(now, former)
            owner.calls[key] = request
            self._requests.calls_in_flight += 1
            self._requests.deadlines.arm(request, now + self._context.node.settings.max_ttl_seconds)
        self._dispatch.deliveries.note_given(now, request, consumer, fence.stamp[1])

    def attach(self, now: float, request: Request, consumer: Consumer, stamp: bytes) -> None:
        """``consumer`` has ``request``, which this router owns."""
        if request.outcome is not None:
            return
        if request.queue is not None:
            request.queue.remove(request)
        self.displace(now, consumer, request.key)
        self._dispatch.deliveries.note_given(now, request, consumer, stamp[1])

    def displace(self, now: float, consumer: Consumer, key: bytes) -> None:
        """Forget an earlier delivery of the same message: its owner is not the one that counts now."""
        former = consumer.in_flight.pop(key, None)
        if former is not None and not former.request.has_ended:
            self.end_silently(now, former.request)

    def take_back(self, now: float, key: bytes, stamp: bytes, consumer: Consumer) -> None:
        """``consumer`` has not taken the message with ``key`` from an owner before ``stamp``: that gives it up."""
        delivery = consumer.in_flight.get(key)
        if delivery is None:
            return
        request = delivery.request
        if bytes((request.message[STAMP][0], delivery.attempt)) >= stamp:
            return
        del consumer.in_flight[key]
        if type(request) is Forwarded:
            self._tell(request.owner, NOBODY, [(key, stamp, Word.NEWER)], place_key(_place_of_request(request)))
        self.end_silently(now, request)
        place = _place_of_request(request)
        remote = place.remotes.get(consumer.link)
        if remote is not None:
            remote.offered.pop(key, None)
            self._context.places.changed(now, place, remote)
        self._dispatch.departures.relieved(now, consumer)
        self._dispatch.deliveries.deliver_waiting(now, consumer)

    def cancel_unwanted(self, link: Link, tag: int, key: bytes, fence: Fence | None) -> None:
        """Tell a consumer that runs a call of this router's, as it says, if nobody waits for that any more.

        It has come back too late: its caller was told that nobody knows. A handler that counts on being waited for,
        such as that of a work queue's item, must learn it.
        """
        caller = self._context.node.links.by_origin(key[ORIGIN_OF_KEY])
        if fence is None or not fence.is_call or fence.owner != self._context.own.id:
            return
        if caller is not None and key not in caller.calls:
            link.send(pack(Kind.CANCEL, key=key, consumer=tag, hops=fence.stamp[0], attempt=fence.stamp[1]))

    def refuses(self, link: Link, key: bytes, stamp: bytes, topic: Topic) -> bool:
        """Return whether a later owner of an offered message is known; then the one at ``link`` is told (``fence``).

        Args:
            topic: the topic, or group, that it is offered for.
        """
        fence = self.fences.get(key, topic.group)
        if fence is None or fence.stamp <= stamp:
            return False
        self._tell(link, NOBODY, [(key, fence.stamp, Word.NEWER)], fence.place)
        return True

    # --- ends --------------------------------------------------------------------------------

    def end_silently(self, now: float, request: Request) -> None:
        """End a request here that goes on elsewhere: nobody is told, nor keeps it from running."""
        request.kept = False
        if request.queue is not None:
            request.queue.remove(request)
        if request.has_ended:
            return
        if request.reply_to is not None:
            self._requests.finish(now, request, Outcome.CANCELLED)
        elif type(request) is Forwarded:
            request.outcome = int(Outcome.CANCELLED)
            request.usage.size_bytes -= request.charge
            request.charge = 0
        else:
            self._requests.deadlines.disarm(request)
            self._requests.record(now, request, Outcome.CANCELLED)

    def _give_up_unasked(self, now: float, key: bytes, stamp: bytes, place: PlaceKey, is_call: bool) -> None:
        """A later owner asks for a message that this router has had from its sender (``give_up``)."""
        link = self._context.node.links.by_origin(key[ORIGIN_OF_KEY])
        request = link.calls.get(key) if link is not None and is_call else None
        found = self._context.places.find(*place)
        if request is None and found is not None:
            request = found.queue.get(key)
        if request is not None:
            self.end_silently(now, request)
        topic = found.topic if isinstance(found, Server) else found
        for work in self._context.offered.values():
            # Where it was offered it is the later owner's: its end would never be told here.
            self.take_back(now, key, stamp, work.whole if topic is None or is_call else work.of(topic))

    def note_departed(self, now: float, request: Request, name: ConsumerName, is_sought: bool) -> None:
        """The consumer ``name`` has left with a message that it may have started, and may turn up elsewhere, or not."""
        if is_sought:
            self.departed.seek(now, request.key, request.destination.topic.group, name)
        elif len(self._context.neighbours):
            self.departed.lose(now, request, name.identity)
        self._look_at = min(self._look_at, now + _LOOK_SECONDS)

    def holder(self, key: bytes, group: str) -> ConsumerName | None:
        """The consumer that had a message when it left, or has ended it, as far as is known here; None: nobody."""
        context = self._context
        ended_by = context.ended_by(name_of(key, group)) or context.untold_before(key)
        return self.departed.sought(key, group) or ended_by

    def tick(self, now: float) -> None:
        """Forget what is old."""
        self._news.tick(now)
        if now < self._look_at:
            return
        self.fences.expire(now)
        self.departed.expire(now)
        self._look_at = now + _LOOK_SECONDS if self.fences or self.departed else inf

    def next_deadline(self) -> float:
        """The time of the next :meth:`tick` (monotonic seconds)."""
        return min(self._look_at, self._news.due)


def _place_of(message: bytes) -> PlaceKey:
    return Address.decode(address_of(message)), message[CONSUMER_AT] == Tag.GROUP


def _place_of_request(request: Request) -> Place:
    return request.destination.server or request.destination.topic


def _ask(consumer: Consumer, place: PlaceKey, is_call: bool, records: Sequence[tuple[bytes, bytes]]) -> None:
    """Ask a consumer; one whose process knows no such question stays silent."""
    if consumer.link.follows_mesh and records:
        payload = b"".join(WHERE_RECORD.pack(*each) for each in records)
        block = place[0].encode()
        consumer.link.send(pack(Kind.WHERE, payload, format=int(is_call), address=block, consumer=consumer.tag))
