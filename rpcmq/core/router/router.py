"""The router engine: frames in, frames and rare actions out; no sockets, no clock.

The shell calls :meth:`Router.receive` with what came on a connection, :meth:`Router.lost` when a
connection is gone and :meth:`Router.tick` at :meth:`Router.next_deadline`. After each wake-up it
sends what ``dirty`` links have in their outboxes, one batch a link, and performs ``actions``. While
``turns.is_anybody_waiting`` it calls :meth:`Router.proceed` in each further wake-up, and while
``queries.is_anybody_waiting`` it calls :meth:`Router.make_views` now and then, for a small part of its time.
``now`` is monotonic seconds, never decreasing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from operator import length_hint
from struct import Struct
from struct import error as StructError
from typing import Any

from rpcmq.core.common.drops import drop_text
from rpcmq.core.common.session import Session
from rpcmq.core.common.text import shortened
from rpcmq.core.router.access_control import Guard
from rpcmq.core.router.actions import Action, Answer, Disconnect, Left, Note
from rpcmq.core.router.controls import CONTROLS
from rpcmq.core.router.directory import Directory
from rpcmq.core.router.dispatch_log import DispatchLog, Sink
from rpcmq.core.router.faults import Faults
from rpcmq.core.router.links import Handler, Link, LinkState, LinkTable
from rpcmq.core.router.memory import Memory
from rpcmq.core.router.peer2peer.node import introduce
from rpcmq.core.router.pubsub.node import PubSub
from rpcmq.core.router.queries import Queries
from rpcmq.core.router.rights import Key
from rpcmq.core.router.roundrobin.dispatch import Dispatch
from rpcmq.core.router.settings import Settings
from rpcmq.core.router.topics import Consumer
from rpcmq.core.router.turns import ERROR_STEPS, TURN_STEPS, Turns
from rpcmq.errors import Outcome, ProtocolError
from rpcmq.wire import SESSION_KINDS, Address, Flag, Kind, body_of, control, parse, payload_of, size_of, split

__all__ = ["Router"]

_MAX_GROUP = 255
#: Of a SENT: flags, sequence, and all lengths as one.
_unpack_sent = Struct(">7xB20xQI").unpack
_DETACHED = Flag.DETACHED
#: What ZMTP and CURVE put around a frame, at most.
_FRAME_BYTES = 42
#: Kinds whose ProtocolError is answered with an ERROR for that very message.
_ANSWERED = (
    Kind.REQUEST, Kind.CAST, Kind.REGISTER, Kind.DECLARE, Kind.SUBSCRIBE, Kind.PUBLISH, Kind.INTRODUCE, Kind.QUERY,
)  # fmt: skip


def _group(body: dict[str, Any], address: Address) -> str:
    group = body.get("group", "")
    if not isinstance(group, str) or len(group) > _MAX_GROUP or not group.isprintable():
        text = f"group {group!r:.40} must be a printable string of at most {_MAX_GROUP} characters"
        raise ProtocolError(text, "body")
    if group and address.server:
        raise ProtocolError(f"a group is one of a topic, not of the server {address.server!r}", "address")
    return group


def _not_for_a_router(now: float, link: Link, part: bytes) -> None:
    raise ProtocolError(f"kind {part[5]:#04x} is unknown or not for a router", "kind")


def _note_sent(now: float, link: Link, part: bytes) -> None:
    """The process's clock as it sends the answers that follow."""
    try:
        flags, sent_us, lengths = _unpack_sent(part)
        if flags & _DETACHED or lengths:
            raise StructError
    except StructError:
        raise ProtocolError("SENT is a header and nothing else", "length") from None
    link.sent_us = sent_us


class Router:
    """The whole of a router but its sockets.

    Args:
        settings: bounds and times; may be changed while it runs.
        boot: wall-clock milliseconds at start; names this life of the router.
        now: monotonic seconds.
        new_token: makes an unguessable string.
        sink: where the dispatch log goes; None: there is none.
    """

    #: What tracks the calls and casts.
    dispatch_type: type[Dispatch] = Dispatch

    def __init__(
        self, settings: Settings, boot: int, now: float, new_token: Callable[[], str], sink: Sink | None = None
    ) -> None:
        self.settings = settings
        self.boot = boot
        self.started = now
        self.links = LinkTable(settings, boot, new_token, self._link_ended, self._link_changed)
        self.directory = Directory(settings)
        self.dispatch = self.dispatch_type(settings, self.links, self.directory, now)
        self.log: DispatchLog | None = None
        if sink is not None:
            self.log = self.dispatch.requests.log = DispatchLog(settings, sink, self.links, now, self._progress)
            self.links.stamps = True
        self.turns = self.dispatch.requests.turns = Turns()
        self.pubsub = PubSub(settings, self.dispatch.requests.drops, self.turns, self.links, now)
        self.actions: list[Action] = []
        #: Messages not used because their sender broke the protocol, by reason.
        self.refused: Counter[str] = Counter()
        self.memory = Memory(settings, self.links, now)
        self.faults = Faults(self.refused, self._act, now)
        self.links.on_fault = self.dispatch.requests.on_fault = self.faults.report
        #: Who may connect and do what; None: everybody anything.
        self.guard: Guard | None = None
        #: What an operator must know of how it is set up.
        self.warnings: list[str] = []
        self.queries = Queries(self)
        self._new_token = new_token
        dispatch = self.dispatch
        self._handlers: list[Handler] = [_not_for_a_router] * 256
        table: dict[Kind, Handler] = {
            Kind.REQUEST: dispatch.accept,
            Kind.CAST: dispatch.accept,
            Kind.REPLY: dispatch.reply,
            Kind.FAULT: dispatch.reply,
            Kind.END: dispatch.reply,
            Kind.ITEM: dispatch.streams.item,
            Kind.ALIVE: dispatch.streams.item,
            Kind.GRANT: dispatch.streams.grant,
            Kind.CANCEL: dispatch.cancel,
            Kind.SETTLE: dispatch.settle,
            Kind.SENT: _note_sent,
            Kind.REGISTER: self._register,
            Kind.UNREGISTER: self._unregister,
            Kind.DECLARE: self._declare,
            Kind.SUBSCRIBE: self.pubsub.subscribe,
            Kind.UNSUBSCRIBE: self.pubsub.unsubscribe,
            Kind.PUBLISH: self.pubsub.publish,
            Kind.TAKEN: self.pubsub.taken,
            Kind.INTRODUCE: self._introduce,
            Kind.QUERY: self._query,
        }
        for kind, handler in table.items():
            self._handlers[kind] = handler
        self.links.handlers = self._handlers
        self.links.on_taken = dispatch.taken
        self.links.on_room = self._has_room
        dispatch.deliveries.on_offence = self._offence_of
        self.links.on_left = lambda route: self._act(Left(route))

    @property
    def dirty(self) -> list[Session]:
        """The links that have something to send."""
        return self.links.dirty

    # --- inputs ------------------------------------------------------------------------------

    def authorise(self, now: float, keys: Iterable[Key], secret: bytes = b"") -> None:
        """From now on only connections with these keys are taken; links of others end at once.

        Args:
            secret: looked at the first time: known to this router in all its lives, and to nobody else.
        """
        if self.guard is None:
            self.guard = self.links.guard = Guard(
                self.settings, self.links, self.refused, self._act, self._handlers, secret
            )
            self.guard.turns = self.turns
            self.dispatch.allows = self.guard.may_send
        self.guard.authorise(now, keys)

    def receive(
        self, now: float, route: bytes, batch: bytes, payloads: Sequence[bytes | memoryview] = (), user: str = ""
    ) -> None:
        """What came in one ZeroMQ message on the connection ``route``. Never raises on bad input.

        Args:
            user: the public key that the connection was authenticated with; looked at for HELLO only.
        """
        link = self.links.routes.get(route)
        if link is not None:
            link.read_bytes += len(batch) + _FRAME_BYTES
            if payloads:
                link.read_bytes += sum(map(len, payloads)) + _FRAME_BYTES * len(payloads)
        try:
            parts = split(batch, payloads)
            if link is None or parts[0][5] < SESSION_KINDS:
                self._about_link(now, route, link, parts, user)
                return
            link.heard = now
            if not link.answering:
                self.links.answers_again(now, link)
            if payloads and max(map(len, payloads)) > self.settings.message_max_bytes:
                parts = self._without_too_large(now, link, parts)
            if link.inbox:
                self._put_off(now, link, parts)
                return
            size_bytes = len(batch)
            if payloads:
                size_bytes += sum(map(len, payloads))
            if self.memory.received(size_bytes):
                self._count_memory(now)
                if link.route is None:
                    return
            handled = self._handle(now, link, parts, self._handlers_of(link))
            if handled < len(parts):
                self.turns.put_off(link, parts[handled:])
                size_bytes = sum(map(size_of, parts[:handled]))
            self.turns.spent += handled
            link.note_received(handled, size_bytes)
        except ProtocolError as error:
            self._offence(now, route, link, None, error)
        except Exception:
            self._turn_away(now, route)

    def _handle(self, now: float, link: Link, parts: Sequence[bytes], handlers: list[Handler]) -> int:
        """How many of ``parts`` were handled before the turn was over; at least one."""
        turns, steps = self.turns, TURN_STEPS
        rest = iter(parts)
        for part in rest:
            try:
                handlers[part[5]](now, link, part)
            except ProtocolError as error:
                self._offence(now, link.route or b"", link, part, error)
            except Exception:
                # A fault of ours must cost this message only: the batch and its counts go on.
                self.faults.report(now, link.identity)
            if turns.spent > steps:
                # To count them in the loop would cost each message.
                return len(parts) - length_hint(rest)
        return len(parts)

    def _handlers_of(self, link: Link) -> list[Handler]:
        """What the messages of ``link`` are given to: its calls and casts are refused while too much is held for it."""
        if not link.overdrawn and link.usage.size_bytes <= self.settings.link_max_bytes:
            return link.handlers
        handlers = link.handlers[:]
        handlers[Kind.REQUEST] = handlers[Kind.CAST] = self.dispatch.refuse
        return handlers

    def _count_memory(self, now: float) -> None:
        for link, why in self.memory.count(now):
            route = link.route
            self.refused["out of memory"] += 1
            self.links.end_safely(now, link, why)
            if route is not None:
                body = {"reason": "overloaded", "text": shortened(why)}
                self.actions += Answer(route, control(Kind.REFUSED, body)), Disconnect(route)

    def make_views(self, now: float) -> int:
        """Take a step of some 0.1 ms towards the views that were asked for. Never raises.

        Returns:
            Bytes of the view that was sent by it.
        """
        try:
            return self.queries.step(now)
        except Exception:
            self.faults.report(now)
            return 0

    def proceed(self, now: float) -> None:
        """Give the link that has waited longest its next turn, and begin a new one for what comes. Never raises."""
        turns = self.turns
        if turns.waiting and (link := turns.next_link()) is not None:
            self._guarded(now, self._take_turn, link)
        turns.spent = 0

    def _take_turn(self, now: float, link: Link) -> None:
        turns = self.turns
        handled: list[bytes] = []
        try:
            while link.inbox and not turns.is_over:
                part = turns.take(link)
                handled.append(part)
                self._handle(now, link, (part,), self._handlers_of(link))
        finally:
            turns.end(link, handled)
        if link.leaves and not link.inbox:
            self.links.end(now, link, "said goodbye")

    def _put_off(self, now: float, link: Link, parts: list[bytes]) -> None:
        """``parts`` come after messages that still wait for their turn."""
        self.turns.put_off(link, parts)
        self.turns.spent += len(parts)
        most = self.settings.inbox_max_bytes
        if link.inbox_bytes > most and (route := link.route) is not None:
            text = f"{link.inbox_bytes} bytes came and wait for their turn; link.inbox_max_bytes = {most}"
            self.links.end(now, link, text)
            self.actions.append(Answer(route, control(Kind.REFUSED, {"reason": "protocol", "text": text})))
            self.actions.append(Disconnect(route))

    def _without_too_large(self, now: float, link: Link, parts: list[bytes]) -> list[bytes]:
        """Refuse the messages whose payload is larger than any may be; returns the others."""
        most = self.settings.message_max_bytes
        fitting: list[bytes] = []
        for part in parts:
            if part[7] & _DETACHED and (size := len(payload_of(part))) > most:
                text = f"payload of {size} bytes exceeds message.max_bytes = {most}"
                self._offence(now, link.route or b"", link, part, ProtocolError(text, "size"))
            else:
                fitting.append(part)
        link.note_received(len(parts) - len(fitting), 0)
        return fitting

    def _turn_away(self, now: float, route: bytes) -> None:
        """End the link on ``route`` and its connection: handling what came there raised an exception."""
        link = self.links.routes.get(route)
        self.faults.report(now, link.identity if link is not None else "")
        text = "the router failed to handle what this connection sent; its log has the error"
        self.actions.append(Answer(route, control(Kind.REFUSED, {"reason": "protocol", "text": text})))
        self.actions.append(Disconnect(route))
        if link is None:
            return
        try:
            self.links.end(now, link, "internal error")
        except Exception:
            self.faults.report(now, link.identity)

    def lost(self, now: float, route: bytes) -> None:
        """The connection ``route`` is gone. Never raises."""
        self._guarded(now, self.links.lost, route)

    def tick(self, now: float) -> None:
        """Do what is due. Never raises: what fails keeps nothing else from being done."""
        self._guarded(now, self.dispatch.tick)
        self._guarded(now, self.directory.tick)
        # First of all who is silent: nothing of what follows is for them.
        self._guarded(now, self._tick_links)
        self._guarded(now, self._release_held)
        self.turns.spent = 0
        self._guarded(now, self.pubsub.release)
        self._guarded(now, self._log_drops)
        if self.memory.is_due(now):
            self._guarded(now, self._count_memory)
        if self.log is not None:
            self._guarded(now, self.log.tick)

    def _guarded(self, now: float, step: Callable[..., None], *args: Any) -> None:
        try:
            step(now, *args)
        except Exception:
            self.faults.report(now)

    def _tick_links(self, now: float) -> None:
        for link in self.links.tick(now):
            link.lapsed = [c for c in link.consumers.values() if not c.stopping]
            for consumer in list(link.consumers.values()):
                self._guarded(now, self._consumer_gone, consumer, "connection lost")

    def _release_held(self, now: float) -> None:
        try:
            for link, held in self.dispatch.recovery.release_held(now):
                # Looked at when they came, and acknowledged.
                while held := held[self._handle(now, link, held, self._handlers) :]:
                    self.turns.spent = 0
        finally:
            self.dispatch.recovery.released()

    def _log_drops(self, now: float) -> None:
        for drop, count in self.dispatch.requests.drops.due(now):
            fields = {**drop._asdict(), "count": count} if drop is not None else {"count": count}
            self.actions.append(Note("dropped", drop_text(drop, count), "", fields))

    def next_deadline(self) -> float:
        """When :meth:`tick` is to be called."""
        due = min(self.links.next_deadline(), self.directory.next_deadline(), self.pubsub.next_deadline())
        if self.log is not None:
            due = min(due, self.log.next_deadline())
        if (count_at := self.memory.next_deadline()) is not None:
            due = min(due, count_at)
        calls = self.dispatch.next_deadline()
        return due if calls is None else min(due, calls)

    def drain(self, now: float) -> None:
        """Take nothing more and tell everyone; what runs may finish."""
        self.dispatch.drain(now)
        self.pubsub.drain()
        self.links.drain()

    def end_drain(self) -> None:
        """From now on also what handlers ask for is given back: nobody waits for its end any more."""
        self.dispatch.ending = True

    def dismiss(self, now: float) -> None:
        """The end of a drain: the callers of what still runs are told, and each process what was read of it.

        Nothing may be received after this.
        """
        self.dispatch.give_up(now)
        self.dispatch.requests.receipts.tell_all()
        self.links.dismiss()

    def close(self, now: float) -> None:
        """The end: write down in the dispatch log what is left."""
        if self.log is not None:
            self.log.close(now, self.dispatch.unsettled())
            self.log = self.dispatch.requests.log = None

    def _act(self, action: Action) -> None:
        self.actions.append(action)

    def _progress(self) -> tuple[int, int]:
        return self.dispatch.requests.last_number, self.dispatch.requests.calls_in_flight

    @property
    def in_flight(self) -> int:
        """Calls that have not ended."""
        return self.dispatch.requests.calls_in_flight

    # --- links -------------------------------------------------------------------------------

    def _about_link(self, now: float, route: bytes, link: Link | None, parts: list[bytes], user: str) -> None:
        part = parts[0]
        if len(parts) > 1 and link is not None:
            self._offence(now, route, link, None, ProtocolError("a message about the link must stand alone", "batch"))
            return
        try:
            parse(part)
            if part[5] == Kind.HELLO:
                refusal = self.links.hello(now, route, part, user)
                if refusal is not None:
                    self.actions.append(Answer(route, refusal))
            elif link is None:
                self.actions.extend(Answer(route, answer) for answer in self.links.stranger(route, part))
            else:
                link.heard = now
                if not link.answering:
                    self.links.answers_again(now, link)
                if link.inbox and part[5] == Kind.GOODBYE:
                    link.leaves = True
                else:
                    self.links.about_link(now, link, part)
        except ProtocolError as error:
            self._offence(now, route, link, None, error)

    def _offence(self, now: float, route: bytes, link: Link | None, part: bytes | None, error: ProtocolError) -> None:
        """Count and attribute what a peer did wrong, and tell it."""
        self.refused[error.reason] += 1
        self.turns.spent += ERROR_STEPS
        text = shortened(str(error))
        refusal = control(Kind.REFUSED, {"reason": "protocol", "text": text})
        if link is None:
            self.actions.append(Answer(route, refusal))
            return
        link.counters[f"refused {error.reason}"] += 1
        self.actions.append(Note("offence", f"{link.identity}: {text}", link.identity))
        if part is None:
            link.close_with(refusal)
        elif part[5] in _ANSWERED:
            body = {"outcome": Outcome.PROTOCOL, "text": text, "details": {"reason": error.reason}}
            link.send(control(Kind.ERROR, body, key=part[16:36]))

    def _offence_of(self, now: float, link: Link, part: bytes, error: ProtocolError) -> None:
        self._offence(now, link.route or b"", link, part, error)

    def _link_ended(self, now: float, link: Link, reason: str) -> None:
        for consumer in list(link.consumers.values()):
            self._guarded(now, self._consumer_gone, consumer, reason)
        self._guarded(now, self.dispatch.departures.caller_gone, link)
        self._guarded(now, self.pubsub.forget, link)
        self.queries.forget(link)
        if self.log is not None:
            self.log.caller_gone(link)
        self.actions.append(Note("link ended", f"{link.identity} ({link.queue_type}): {reason}", link.identity))

    def _link_changed(self, now: float, link: Link) -> None:
        self.queries.connected(link)
        if link.lapsed and link.answering:
            self._restore(now, link)
        if link.state not in (LinkState.ANSWERING, LinkState.QUIET):
            text = f"{link.identity} ({link.queue_type}) is {link.state.value}"
            self.actions.append(Note(f"link {link.state.value}", text, link.identity))
        for consumer in link.consumers.values():
            self.dispatch.deliveries.feed(now, consumer)
        self.pubsub.changed(link)

    def _has_room(self, now: float, link: Link) -> None:
        self.dispatch.has_room(now, link)
        self.pubsub.changed(link)

    def _restore(self, now: float, link: Link) -> None:
        """Let a link that resumes consume again: its process does not know that it was given up."""
        lapsed, link.lapsed = link.lapsed, []
        # What was on its way to its consumers has gone to others since, or was declared lost.
        link.outbox[:] = [part for part in link.outbox if part[5] not in (Kind.REQUEST, Kind.CAST)]
        try:
            for old in lapsed:
                address = old.topic.address._replace(server=old.server)
                consumer = self.directory.register(now, link, old.tag, address, old.granted, old.topic.group)
                consumer.peer_url = old.peer_url
        except ProtocolError as error:
            route = link.route
            self.links.end(now, link, f"cannot consume again: {error}")
            if route is not None:
                text = shortened(f"cannot consume again, start over: {error}")
                self.actions.append(Answer(route, control(Kind.REFUSED, {"reason": "protocol", "text": text})))

    # --- consumers ---------------------------------------------------------------------------

    def _register(self, now: float, link: Link, part: bytes) -> None:
        body = body_of(part)
        header = parse(part)
        address = Address.decode(part[40 : 40 + header.address_length])
        credit = body.get("credit")
        if type(credit) is not int or not 1 <= credit <= 65535:
            raise ProtocolError(f"credit {credit!r} must be an integer from 1 to 65535", "credit")
        group = _group(body, address)
        recent = body.get("recent", "")
        self.turns.spend(size_of(part) >> 5)
        if not isinstance(recent, str):
            raise ProtocolError("recent must be hexadecimal text", "body")
        try:
            self.dispatch.recovery.note_had(now, address, group, bytes.fromhex(recent))
        except ValueError:
            raise ProtocolError("recent must be hexadecimal text", "body") from None
        consumer = self.directory.register(now, link, header.consumer, address, credit, group)
        consumer.peer_url = str(body.get("peer_url", ""))[:255]
        link.send(control(Kind.REGISTERED, {"topic": str(address)}, key=part[16:36], consumer=header.consumer))
        self.dispatch.deliveries.feed(now, consumer)

    def _declare(self, now: float, link: Link, part: bytes) -> None:
        body = body_of(part)
        address = Address.decode(part[40 : 40 + parse(part).address_length])
        self.directory.declare(now, address, _group(body, address))
        link.send(control(Kind.REGISTERED, {"topic": str(address)}, key=part[16:36]))

    def _unregister(self, now: float, link: Link, part: bytes) -> None:
        consumer = link.consumers.get(part[11])
        if consumer is None:
            raise ProtocolError(f"consumer tag {part[11]} is not registered", "tag")
        if not consumer.stopping:
            self.directory.unregister(now, consumer)
        if not consumer.in_flight:
            self._consumer_gone(now, consumer, "unregistered")
        link.send(control(Kind.REGISTERED, {"topic": ""}, key=part[16:36], consumer=part[11]))

    def _consumer_gone(self, now: float, consumer: Consumer, reason: str) -> None:
        if not consumer.stopping:
            self.directory.unregister(now, consumer)
        consumer.link.consumers.pop(consumer.tag, None)
        self.dispatch.departures.consumer_gone(now, consumer, reason)

    # --- the rest ----------------------------------------------------------------------------

    def _introduce(self, now: float, link: Link, part: bytes) -> None:
        destination = self.directory.resolve(now, part)
        self.turns.spend(len(destination.consumers))
        target = introduce(link, part[16:36], destination, self._new_token())
        if target is not None and self.guard is not None:
            self.guard.introduced(link, target)

    def _query(self, now: float, link: Link, part: bytes) -> None:
        body = body_of(part)
        what = str(body.get("what", "overview"))
        change = CONTROLS.get(what)
        if change is None:
            self.queries.ask(now, link, part[16:36], what)
            return
        answer = change(self, now, link, body)
        self.turns.spend(TURN_STEPS + 1)
        link.send(control(Kind.ANSWER, answer, key=part[16:36]))
