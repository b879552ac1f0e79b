"""Consumers register with their credit (``consumer_credit``), declare, leave, and consume again when they are back."""

from __future__ import annotations

from collections.abc import Callable

from rpcmq.core.common.text import shorten
from rpcmq.core.router.actions import Answer
from rpcmq.core.router.model import Consumer, Link
from rpcmq.core.router.node_type import NodeContext
from rpcmq.core.router.roundrobin.dispatch import Dispatch
from rpcmq.errors import ProtocolError
from rpcmq.wire import CONSUMER_AT, KEY, KIND_AT, Address, Kind, address_of, parse, size_of
from rpcmq.wire.bodies import DeclareBody, RefusedBody, RegisterBody, RegisteredBody

__all__ = ["Registrations"]


class Registrations:
    """The consumers of links."""

    def __init__(self, context: NodeContext, dispatch: Dispatch) -> None:
        self._context = context
        self._directory = context.directory
        self._dispatch = dispatch
        #: Called with (link, topic) before one begins; they may raise ProtocolError.
        self.checks: list[Callable[[Link, str], None]] = []
        #: Called with (now, consumer) for each that begins, or consumes again.
        self.on_registered: Callable[[float, Consumer], None] = lambda now, consumer: None

    def register(self, now: float, link: Link, message: bytes) -> None:
        """REGISTER: a consumer begins, and gets what waits for it.

        Raises:
            ProtocolError: malformed, or too many of something.
        """
        self._context.turns.spend(size_of(message) >> 5)
        body = RegisterBody.of(message)
        header = parse(message)
        address = Address.decode(address_of(message))
        _check_group(body.group, address)
        for check in self.checks:
            check(link, address.topic)
        self._dispatch.recovery.record_delivered(now, address, body.group, body.recent)
        consumer = self._directory.register(now, link, header.consumer, address, body.credit, body.group)
        consumer.peer_url = body.peer_url
        _occupy(consumer, body.occupied)
        link.send(RegisteredBody(topic=str(address)).message(key=message[KEY], consumer=header.consumer))
        self.on_registered(now, consumer)
        self._dispatch.deliveries.deliver_waiting(now, consumer)

    def declare(self, now: float, link: Link, message: bytes) -> None:
        """DECLARE: a topic or group is known from now on.

        Raises:
            ProtocolError: malformed, or too many of something.
        """
        group = DeclareBody.of(message).group
        address = Address.decode(address_of(message))
        _check_group(group, address)
        self._directory.declare(now, address, group)
        link.send(RegisteredBody(topic=str(address)).message(key=message[KEY]))

    def unregister(self, now: float, link: Link, message: bytes) -> None:
        """UNREGISTER: a consumer takes nothing more, and is gone when it has settled what it has.

        Raises:
            ProtocolError: there is no such consumer.
        """
        tag = message[CONSUMER_AT]
        consumer = link.consumers.get(tag)
        if consumer is None:
            raise ProtocolError(f"consumer tag {tag} is not registered", "tag")
        if not consumer.stopping:
            self._directory.unregister(now, consumer)
        if consumer.in_flight:
            self._dispatch.departures.left(now, consumer)
        else:
            self.end(now, consumer, "unregistered")
        link.send(RegisteredBody(topic="").message(key=message[KEY], consumer=tag))

    def end(self, now: float, consumer: Consumer, reason: str) -> None:
        """``consumer`` is gone, with what it had."""
        if not consumer.stopping:
            self._directory.unregister(now, consumer)
        consumer.link.consumers.pop(consumer.tag, None)
        self._dispatch.departures.consumer_gone(now, consumer, reason)

    def end_all(self, now: float, link: Link, reason: str) -> None:
        """All consumers of ``link`` are gone."""
        for consumer in list(link.consumers.values()):
            self._context.guarded(now, self.end, consumer, reason)

    def restore(self, now: float, link: Link) -> None:
        """Restore the consumers of a resumed link: its process does not know that they were removed."""
        lapsed_consumers, link.lapsed_consumers = link.lapsed_consumers, []
        # Deliveries to its consumers have gone to others since, or were declared lost.
        link.outbox[:] = [message for message in link.outbox if message[KIND_AT] not in (Kind.REQUEST, Kind.CAST)]
        try:
            for old in lapsed_consumers:
                address = old.topic.address._replace(server=old.server)
                consumer = self._directory.register(now, link, old.tag, address, old.granted, old.topic.group)
                consumer.peer_url = old.peer_url
                _occupy(consumer, old.occupied)
                # In front of what it is given from now on.
                link.send(RegisteredBody(topic=str(address)).message(consumer=old.tag))
                self.on_registered(now, consumer)
        except ProtocolError as error:
            route = link.route
            self._context.links.end(now, link, f"cannot consume again: {error}")
            if route is not None:
                text = shorten(f"cannot consume again, start over: {error}")
                refusal = RefusedBody(reason="protocol", text=text).message()
                self._context.act(Answer(route, refusal))


def _occupy(consumer: Consumer, count: int) -> None:
    if count:
        consumer.occupy(count)
        consumer.topic.ready.move(consumer)


def _check_group(group: str, address: Address) -> None:
    if group and address.server:
        raise ProtocolError(f"a group is one of a topic, not of the server {address.server!r}", "address")
