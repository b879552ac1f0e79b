"""Consumers register, declare and leave; and consume again when they come back."""

from __future__ import annotations

from typing import Any

from rpcmq.core.common.text import shortened
from rpcmq.core.router.actions import Answer
from rpcmq.core.router.link import Link
from rpcmq.core.router.node_type import NodeContext
from rpcmq.core.router.roundrobin.dispatch import Dispatch
from rpcmq.core.router.topics import Consumer
from rpcmq.errors import ProtocolError
from rpcmq.wire import CONSUMER_AT, KEY, KIND_AT, Address, Kind, address_of, body_of, control, parse, size_of

__all__ = ["Registrations"]

_MAX_GROUP = 255
_MAX_CREDIT = 65_535


class Registrations:
    """The consumers of links."""

    def __init__(self, context: NodeContext, dispatch: Dispatch) -> None:
        self._context = context
        self._directory = context.directory
        self._dispatch = dispatch

    def register(self, now: float, link: Link, part: bytes) -> None:
        """REGISTER: a consumer begins, and gets what waits for it.

        Raises:
            ProtocolError: malformed, or too many of something.
        """
        body = body_of(part)
        header = parse(part)
        address = Address.decode(address_of(part))
        credit = body.get("credit")
        if type(credit) is not int or not 1 <= credit <= _MAX_CREDIT:
            raise ProtocolError(f"credit {credit!r} must be an integer from 1 to {_MAX_CREDIT}", "credit")
        group = _group(body, address)
        recent = body.get("recent", "")
        self._context.turns.spend(size_of(part) >> 5)
        if not isinstance(recent, str):
            raise ProtocolError("recent must be hexadecimal text", "body")
        try:
            self._dispatch.recovery.note_had(now, address, group, bytes.fromhex(recent))
        except ValueError:
            raise ProtocolError("recent must be hexadecimal text", "body") from None
        consumer = self._directory.register(now, link, header.consumer, address, credit, group)
        consumer.peer_url = str(body.get("peer_url", ""))[:255]
        link.send(control(Kind.REGISTERED, {"topic": str(address)}, key=part[KEY], consumer=header.consumer))
        self._dispatch.deliveries.feed(now, consumer)

    def declare(self, now: float, link: Link, part: bytes) -> None:
        """DECLARE: a topic or group is known from now on.

        Raises:
            ProtocolError: malformed, or too many of something.
        """
        body = body_of(part)
        address = Address.decode(address_of(part))
        self._directory.declare(now, address, _group(body, address))
        link.send(control(Kind.REGISTERED, {"topic": str(address)}, key=part[KEY]))

    def unregister(self, now: float, link: Link, part: bytes) -> None:
        """UNREGISTER: a consumer takes nothing more, and is gone when it has settled what it has.

        Raises:
            ProtocolError: there is no such consumer.
        """
        tag = part[CONSUMER_AT]
        consumer = link.consumers.get(tag)
        if consumer is None:
            raise ProtocolError(f"consumer tag {tag} is not registered", "tag")
        if not consumer.stopping:
            self._directory.unregister(now, consumer)
        if not consumer.in_flight:
            self.end(now, consumer, "unregistered")
        link.send(control(Kind.REGISTERED, {"topic": ""}, key=part[KEY], consumer=tag))

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
        lapsed, link.lapsed = link.lapsed, []
        # Deliveries to its consumers have gone to others since, or were declared lost.
        link.outbox[:] = [part for part in link.outbox if part[KIND_AT] not in (Kind.REQUEST, Kind.CAST)]
        try:
            for old in lapsed:
                address = old.topic.address._replace(server=old.server)
                consumer = self._directory.register(now, link, old.tag, address, old.granted, old.topic.group)
                consumer.peer_url = old.peer_url
        except ProtocolError as error:
            route = link.route
            self._context.links.end(now, link, f"cannot consume again: {error}")
            if route is not None:
                text = shortened(f"cannot consume again, start over: {error}")
                refusal = control(Kind.REFUSED, {"reason": "protocol", "text": text})
                self._context.act(Answer(route, refusal))


def _group(body: dict[str, Any], address: Address) -> str:
    group = body.get("group", "")
    if not isinstance(group, str) or len(group) > _MAX_GROUP or not group.isprintable():
        text = f"group {group!r:.40} must be a printable string of at most {_MAX_GROUP} characters"
        raise ProtocolError(text, "body")
    if group and address.server:
        raise ProtocolError(f"a group is one of a topic, not of the server {address.server!r}", "address")
    return group
