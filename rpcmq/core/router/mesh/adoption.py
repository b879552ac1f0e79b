"""The owner's side of adoption: a call or cast that may have been started is started again only when nobody has.

A process that has moved sends again what it still waits for, and its new router becomes the owner of that by asking
for it: all routers, and by way of them all consumers of the address. So does an owner whose neighbour is gone with
requests. The rules, and what becomes of calls without each, are in docs/contributing/mesh-model.md, where they were
searched for exceptions (``tests/mesh``); their names there are those in the comments here.

* Only the sender counts its moves and only an owner its attempts: (hops, attempt), the *stamp* of a message, orders all
  owners that it ever has.
* A message that is asked for waits. If a consumer has it, it is that consumer's; if everyone of the roll has promised
  to start it for no earlier owner, it goes to any. Time decides nothing but when the sender is told ``LinkLost``, with
  the names of those who were silent: one of them may have started it, and nobody else can know.
* A consumer that leaves a router which lives is *sought*: it may have gone to another one. It is on the roll of what it
  had, although no router has it among its consumers. Whoever is asked for that says so; so does who was told of it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import count
from math import inf

from rpcmq.core.router.mesh.asked_routers import AskedRouters
from rpcmq.core.router.mesh.fences import Fence, PlaceKey, name_of
from rpcmq.core.router.mesh.neighbours import Neighbour
from rpcmq.core.router.mesh.part import MeshContext, MeshPart
from rpcmq.core.router.mesh.questions import Asked, Question
from rpcmq.core.router.mesh.searches import Patience, Search, after_router, for_consumer_elsewhere, for_consumer_here
from rpcmq.core.router.mesh.witness import Witness, place_key
from rpcmq.core.router.model import Consumer, Delivery, Link, Request
from rpcmq.core.router.waiting_queue import Queue
from rpcmq.wire import CONSUMER_AT, KEY, ORIGIN_OF_KEY, STAMP, Flag, Kind, method_of, sequence_of
from rpcmq.wire.adoption import MAX_ASKED, Word, here_records
from rpcmq.wire.bodies import MESH_TYPE
from rpcmq.wire.consumer_name import ConsumerName
from rpcmq.wire.mesh_bodies import MAX_NEIGHBOURS, KnowsBody

__all__ = ["Adoption"]

_NOT_ADOPTED = Flag.IDEMPOTENT | Flag.FANOUT | Flag.STREAM
#: Most consumers of an address that are asked for one question, and most that have promised beside these: others may
#: have told too much of them.
_MOST_NAMED, _MOST_UNNAMED = 200_000, 1_000


class Adoption(MeshPart):
    """Asks for messages before they are started again."""

    def __init__(self, context: MeshContext) -> None:
        self._context = context
        self._settings = context.node.settings
        dispatch = context.roundrobin.dispatch
        self._dispatch = dispatch
        self._requests = dispatch.requests
        #: By name.
        self._asked: dict[bytes, Asked] = {}
        #: They wait here, so that deadlines and cancels find them.
        self._queue: Queue[Request] = Queue("messages that may have been started")
        self._questions: dict[int, Question] = {}
        self._numbers = count(1)
        #: Messages that are to be asked for in this wake-up.
        self._due: dict[tuple[PlaceKey, bool, Patience, ConsumerName | None], list[Asked]] = {}
        self._ask_at = inf
        #: No question is put before (monotonic seconds): consumers that a former life of this router had come back.
        self._alone_until = -inf
        self._routers = AskedRouters(context)
        self.witness = Witness(context, self.give_up)
        context.note_departed = self.witness.note_departed
        context.look_for = self.look_for
        context.fenced, context.refuses = self.witness.fences.by_name, self.witness.refuses
        context.displace = self.witness.displace
        dispatch.adopts = self.adopts
        dispatch.held_elsewhere.append(self._queue)
        context.roundrobin.asked = self._asked.values
        dispatch.casts.adopts = self.adopts
        context.roundrobin.outlives = self.outlives
        dispatch.departures.asks = self.asks_again
        context.roundrobin.registrations.on_registered = self._registered
        self.kinds = {
            Kind.WHERE: self.witness.where,
            Kind.FENCES: self.witness.fences_seen,
            Kind.HERE: self._here,
            Kind.KNOWS: self._knows,
        }
        self.process_kinds = {Kind.HERE: self._here_of_consumer}

    # --- who is there ------------------------------------------------------------------------

    def neighbour_up(self, now: float, neighbour: Neighbour, resumed: bool) -> None:
        """It is asked what the others were asked, and told of all owners that were seen (``carry``)."""
        self._routers.came(neighbour, resumed)
        if resumed:
            return
        link = neighbour.link
        self.witness.tell_all(now, link)
        for question in self._questions.values():
            if self._routers.may_know(link, question.place):
                question.put_to[neighbour.identity.id] = neighbour
                link.send(question.where())

    def neighbour_changed(self, now: float, neighbour: Neighbour) -> None:
        """The word of one that does not answer is not waited for."""
        if not neighbour.link.is_responsive:
            self._decide_each(now)

    def neighbour_gone(self, now: float, neighbour: Neighbour, reason: str) -> None:
        """It may have known consumers that nobody else knows."""
        self._routers.gone(now, neighbour)
        for question in self._questions.values():
            question.put_to.pop(neighbour.identity.id, None)
        self._decide_each(now)

    def _registered(self, now: float, consumer: Consumer) -> None:
        """A consumer that comes later is asked what the others were asked (``push``)."""
        topic, server = consumer.topic, consumer.server
        if topic.group:
            self.witness.ask_consumer(consumer, [(topic.address._replace(server=topic.group), True)])
            return
        names = [topic.address]
        if server:
            names += [
                topic.address._replace(server=server),
                topic.address._replace(topic=f"{topic.address.topic}.{server}"),
            ]
        self.witness.ask_consumer(consumer, [(each, False) for each in names])

    # --- messages to ask for -----------------------------------------------------------------

    def adopts(self, now: float, link: Link, request: Request) -> bool:
        """Take ``request``, which its sender has sent to another router before; return whether it is asked for.

        Args:
            link: of the sender.
        """
        if not request.message[STAMP][0] or request.flags & _NOT_ADOPTED:
            return False
        if link.routers <= 1 and not self._routers.count(_place_of(request)):
            if not request.flags & Flag.NOT_AGAIN and not (link.routers and self._settings.queue_dir):
                return False  # there is nobody to ask, and never was
            # The former life of this router may have given it to a consumer that nobody else knows.
            self._alone_until = self._dispatch.recovery.ends_at
        self._ask(now, request, link.routers, after_router(self._settings))
        return True

    def outlives(self, link: Link, request: Request) -> bool:
        """Return whether another router asks for ``request`` once this one has gone; ``link``: of caller or owner."""
        if request.flags & _NOT_ADOPTED or not len(self._context.neighbours):
            return False
        return link.queue_type == MESH_TYPE or link.follows_mesh

    def asks_again(self, now: float, delivery: Delivery, reason: str) -> bool:
        """Ask for a request whose consumer is gone (``ask_again``); return whether that is done.

        A neighbour can be gone whose consumers live, and a process can go on at another router. One that has said
        goodbye, or knows no mesh, is gone for good.
        """
        link = delivery.consumer.link
        if link.queue_type == MESH_TYPE:
            return self._ask_again(now, delivery, after_router(self._settings))
        search = for_consumer_here(now, self._context, delivery, reason)
        if search is None:
            name = ConsumerName(link.origin, link.identity)
            self.witness.note_departed(now, delivery.request, name, is_sought=False)
            return False
        return self._ask_again(now, delivery, search)

    def look_for(self, now: float, delivery: Delivery, name: ConsumerName) -> bool:
        """Ask for a request whose consumer has left another router; return whether that is done."""
        search = for_consumer_elsewhere(now, self._context, delivery, name)
        return search is not None and self._ask_again(now, delivery, search)

    def _ask_again(self, now: float, delivery: Delivery, search: Search) -> bool:
        request = delivery.request
        if request.flags & _NOT_ADOPTED or request.attempts == 255:
            return False
        request.take_back(delivery)
        request.attempts += 1
        self._ask(now, request, 0, search)
        return True

    def _ask(self, now: float, request: Request, routers: int, search: Search) -> None:
        """Ask for ``request``, whose sender knew of so many routers."""
        stamp = bytes((request.message[STAMP][0], request.attempts))
        key, group = _place_of(request), request.destination.topic.group
        asked = Asked(request, stamp, routers, search)
        if search.sought is not None:
            self.witness.note_departed(now, request, search.sought, is_sought=True)
        if (name := self.witness.holder(request.key, group)) is not None:
            asked.roll[name.origin] = name.identity, ""
        self._queue.append(request)
        known, lost = self.witness.fences.get(request.key, group), self.witness.departed.lost(request.key, group)
        if known is not None and known.stamp > stamp:
            self._give_up(now, asked)
            return
        if lost:
            self._lose(now, asked, f"{lost} had it and is gone")
            return
        self.witness.note(request.key, Fence(stamp, self._context.own.id, key, request.is_call, now))
        self._asked[asked.name] = asked
        self._due.setdefault((key, request.is_call, search.patience, search.sought), []).append(asked)
        self._ask_at = now

    def _put_questions(self, now: float) -> None:
        due, self._due = self._due, {}
        self._ask_at = inf
        for (place, is_call, patience, sought), new in due.items():
            asked = [each for each in new if self._asked.get(each.name) is each]  # one that has just come may have it
            for start in range(0, len(asked), MAX_ASKED):
                question = Question(next(self._numbers), place, is_call, now, patience, sought)
                self._put(now, question, asked[start : start + MAX_ASKED])

    def _put(self, now: float, question: Question, asked: list[Asked]) -> None:
        address, is_group = question.place
        for each in asked:
            each.question = question
            question.asked[each.request.key] = each
        self._questions[question.number] = question
        group = address.server if is_group else ""
        bare = address._replace(server="") if is_group else address
        for router, name in self._context.names(bare, group):
            question.roll[name.origin] = name.identity, router
        for consumer in self.witness.consumers(question.place):
            question.roll[consumer.link.origin] = consumer.link.identity, self._context.own.name
        where = question.where()
        for neighbour in self._routers.of(question.place):
            question.put_to[neighbour.identity.id] = neighbour
            neighbour.link.send(where)
        self.witness.ask_consumers(question.place, question.is_call, [(e.request.key, e.stamp) for e in asked])
        self._decide_all(now, question)

    # --- answers -----------------------------------------------------------------------------

    def _knows(self, now: float, link: Link, message: bytes) -> None:
        """KNOWS: the consumers that a neighbour knows of (``names``)."""
        neighbour = self._context.neighbours.by_link.get(link)
        question = self._questions.get(sequence_of(message))
        body = KnowsBody.of(message)
        if neighbour is None or question is None or not self._routers.may_know(link, question.place):
            return
        for name in body.consumers:
            question.roll.setdefault(name.origin, (name.identity, neighbour.name))
        self._requests.turns.spend(len(body.consumers) + len(question.asked))
        if len(question.roll) > _MOST_NAMED:
            return  # it is not decided, but given up in time
        question.told.add(neighbour.identity.id)
        self._decide_all(now, question)

    def _here_of_consumer(self, now: float, link: Link, message: bytes) -> None:
        """HERE of a process that is linked here."""
        consumer = link.consumers.get(message[CONSUMER_AT])
        group = consumer.topic.group if consumer is not None else ""
        records = here_records(message)
        self._requests.turns.spend(2 * len(records))
        for key, stamp, word in records:
            fence = self.witness.fences.get(key, group)
            if fence is not None and not self.witness.serves(consumer, fence.place) and word != Word.NOT_HAD:
                link.counters["word about a message of others"] += 1
            elif word == Word.NEWER:
                self._refused(now, key, group, stamp, consumer)
            elif fence is not None and fence.owner != self._context.own.id:
                self.witness.relay(now, consumer, link, key, stamp, word, fence)
            else:
                who = ConsumerName(link.origin, link.identity)
                self._word(now, name_of(key, group), stamp, word, who, consumer)
                if word == Word.RUNNING:
                    self.witness.cancel_unwanted(link, message[CONSUMER_AT], key, fence)

    def _here(self, now: float, link: Link, message: bytes) -> None:
        """HERE of a consumer elsewhere, by way of its router; without an identity, the router's own word."""
        work = self._context.offered.get(link)
        topic = self._context.places.group_of(message)
        group = topic.group if topic is not None else ""
        who = ConsumerName(message[KEY][ORIGIN_OF_KEY], method_of(message))
        records = here_records(message)
        self._requests.turns.spend(2 * len(records))
        for key, stamp, word in records:
            asked = self._asked.get(name_of(key, group))
            if asked is not None and not self._routers.may_know(link, _place_of(asked.request)):
                continue
            if word == Word.NEWER:
                self._refused(now, key, group, stamp, work.having(key, topic) if work is not None else None)
                continue
            consumer = work.holder(asked.request) if asked is not None and work is not None else None
            self._word(now, name_of(key, group), stamp, word, who, consumer)
            if word == Word.RUNNING:
                self.witness.cancel_unwanted(link, 0, key, self.witness.fences.get(key, group))

    def _word(
        self, now: float, name: bytes, stamp: bytes, word: int, who: ConsumerName, consumer: Consumer | None
    ) -> None:
        asked = self._asked.get(name)
        if asked is None or stamp != asked.stamp:
            return
        if word == Word.NOT_HAD:
            roll = asked.question.roll if asked.question is not None else {}
            if who.origin in roll or who.origin in asked.roll or len(asked.promised) < len(roll) + _MOST_UNNAMED:
                asked.promised.add(who.origin)
                self._decide(now, asked)
        elif word == Word.SOUGHT:
            if len(asked.roll) < MAX_NEIGHBOURS:
                asked.roll.setdefault(who.origin, (who.identity, ""))
        elif word == Word.LOST:
            self._lose(now, asked, f"{who.identity} had it and is gone")
        elif consumer is not None:
            self._forget(asked)
            self.witness.attach(now, asked.request, consumer, asked.stamp)

    def _refused(self, now: float, key: bytes, group: str, stamp: bytes, consumer: Consumer | None) -> None:
        """A consumer, or its router, knows a later owner of a message: it has not taken it from an earlier one."""
        asked = self._asked.get(name_of(key, group))
        if asked is not None and asked.stamp < stamp:
            self._give_up(now, asked)
        if consumer is not None:
            self.witness.take_back(now, key, stamp, consumer)

    def _decide_each(self, now: float) -> None:
        for question in list(self._questions.values()):
            self._decide_all(now, question)

    def _decide_all(self, now: float, question: Question) -> None:
        if self._routers.have_told(question):
            for asked in list(question.asked.values()):
                self._decide(now, asked)

    def _decide(self, now: float, asked: Asked) -> None:
        """The message is free again once nobody can have started it (``roll``)."""
        question = asked.question
        if question is None or len(asked.promised) < len(question.roll) or asked.silent():
            return
        if not self._routers.have_told(question, asked.routers):
            return
        request = asked.request
        # A router that was alone: consumers that have not come back are known to nobody.
        if (asked.routers == 1 and request.is_call) or request.flags & Flag.NOT_AGAIN:
            self._lose(now, asked, "it was sent to another router before, and no consumer that is here has it")
            return
        self._forget(asked)
        if request.queue is not None:
            request.queue.remove(request)
            self._dispatch.deliveries.deliver_again(now, [request])

    @property
    def waiting(self) -> Iterator[Request]:
        """The messages that are asked for."""
        return iter(self._queue)

    # --- ends --------------------------------------------------------------------------------

    def _forget(self, asked: Asked) -> None:
        self._asked.pop(asked.name, None)
        question = asked.question
        if question is not None:
            question.asked.pop(asked.request.key, None)
            if not question.asked:
                self._questions.pop(question.number, None)

    def give_up(self, now: float, key: bytes, group: str) -> None:
        """A later owner asks for the message with ``key``: it is not this router's any more (``give_up``)."""
        if (asked := self._asked.get(name_of(key, group))) is not None:
            self._give_up(now, asked)

    def _give_up(self, now: float, asked: Asked) -> None:
        self._forget(asked)
        self.witness.end_silently(now, asked.request)

    def _lose(self, now: float, asked: Asked, why: str) -> None:
        self._forget(asked)
        self._requests.lose(now, asked.request, why, asked.search.details)

    def tick(self, now: float) -> None:
        """Put the questions of this wake-up, and give up those that were not answered in time."""
        if now >= max(self._ask_at, self._alone_until):
            self._put_questions(now)
        overdue = deque(each for each in self._questions.values() if each.until <= now)
        while overdue:
            question = overdue.popleft()
            for neighbour in question.silent_routers():
                neighbour.link.counters["questions not answered"] += 1
            for asked in list(question.asked.values()):
                if asked.request.outcome is None:
                    self._lose(now, asked, asked.why_lost())
                self._forget(asked)
        self._routers.expire(now)
        self.witness.tick(now)

    def next_deadline(self) -> float:
        """The time at which a question is put or given up (monotonic seconds)."""
        due = min(max(self._ask_at, self._alone_until), self.witness.next_deadline())
        return min([due, *(question.until for question in self._questions.values())]) if self._questions else due


def _place_of(request: Request) -> PlaceKey:
    return place_key(request.destination.server or request.destination.topic)
