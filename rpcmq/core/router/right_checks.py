"""Checks of messages: has the link's key the right to send this there, in this format, and so many of them?

Each message that a key needs a right for is checked before anything is queued. The decision is remembered for each
link and address, so that the next message to it costs one look-up.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Mapping
from types import MappingProxyType
from typing import TypeVar

from rpcmq.core.common.text import shorten
from rpcmq.core.router.actions import Action, LogEvent
from rpcmq.core.router.key_formats import restrict_formats
from rpcmq.core.router.kick import FREE
from rpcmq.core.router.model import Destination, Handler, Link
from rpcmq.core.router.permissions import KeyUsage, Permissions
from rpcmq.core.router.turns import ERROR_STEPS, Turns
from rpcmq.errors import Outcome
from rpcmq.payload.format import has_stream, with_streams
from rpcmq.wire import (
    FIRST_NODE_KIND,
    FORMAT_AT,
    KEY,
    KIND_AT,
    LOW_FLAGS_AT,
    Address,
    Flag,
    Kind,
    address_of,
    parse,
    sequence_of,
)
from rpcmq.wire.bodies import ErrorBody
from rpcmq.wire.query_bodies import QueryBody

__all__ = ["RightChecks", "registered_names"]

#: Addresses whose decision one link remembers.
_MAX_DECISIONS = 10_000
#: Kinds that count towards the rate: an introduction costs both sides more than a call.
_METERED = (Kind.REQUEST, Kind.CAST, Kind.PUBLISH, Kind.INTRODUCE)
_REQUEST = int(Kind.REQUEST)
#: Kinds that are refused beyond the rate, and that the sender does not offer again.
_NOT_REOFFERED = (_REQUEST, int(Kind.INTRODUCE))
S = TypeVar("S", bound=Hashable)


class RightChecks:
    """Decides about the messages of links that belong to keys.

    Args:
        refused: counts refusals by what was refused.
        act: takes notes for the log.
        turns: counts the work of refusing.
        handlers: by kind, without checks.
        node_rights: of kinds of nodes that are plugged in: what a key needs the right ``node`` on; empty: nothing.
    """

    def __init__(
        self, refused: Counter[str], act: Callable[[Action], None], turns: Turns, handlers: list[Handler],
        node_rights: Mapping[int, str] = MappingProxyType({}),
    ) -> None:  # fmt: skip
        self._refused = refused
        self._act = act
        self._turns = turns
        self._node_rights = node_rights
        if node_rights:
            handlers = self._with_node_checks(handlers)
        checked = self._checked_handlers(handlers)
        #: (whether rights are checked, whether the rate is limited) -> handlers, by kind.
        self._tables = {
            (False, False): handlers,
            (False, True): self._metered_handlers(handlers),
            (True, False): checked,
            (True, True): self._metered_handlers(checked),
        }

    def handlers(self, usage: KeyUsage, is_checked: bool) -> list[Handler]:
        """Return the handlers of a link of this key; without ``is_checked`` it may do everything."""
        table = self._tables[is_checked, usage.bucket is not None]
        formats = usage.key.formats
        return table if formats is None else restrict_formats(table, formats, self._deny_format)

    def _checked_handlers(self, handlers: list[Handler]) -> list[Handler]:
        table = list(handlers)
        table[Kind.PUBLISH] = self._with_publish_check(handlers[Kind.PUBLISH])
        rare = {Kind.REGISTER: "serve", Kind.DECLARE: "serve", Kind.SUBSCRIBE: "subscribe", Kind.INTRODUCE: "call"}
        for kind, verb in rare.items():
            table[kind] = self._with_right_check(verb, handlers[kind])
        table[Kind.QUERY] = self._with_admin_check(handlers[Kind.QUERY])
        return table

    def _with_node_checks(self, handlers: list[Handler]) -> list[Handler]:
        """The handlers, those of nodes that are plugged in with checks: also keys with all other rights need these."""
        table = list(handlers)
        for kind, name in self._node_rights.items():
            if name:
                table[kind] = self._with_node_check(name, handlers[kind])
        return table

    def _metered_handlers(self, handlers: list[Handler]) -> list[Handler]:
        table = list(handlers)
        for kind in (*_METERED, *self._node_rights):
            table[kind] = self._with_rate_check(handlers[kind])
        return table

    # --- rights ------------------------------------------------------------------------------

    def may_send(self, link: Link, message: bytes, destination: Destination | None) -> bool:
        """Return whether the link's key may send the call or cast ``message``; the link remembers a yes."""
        permissions = _permissions(link)
        if message[KIND_AT] == _REQUEST:
            verb, allowed = "call", link.allowed_calls
        elif message[LOW_FLAGS_AT] & Flag.FANOUT:
            verb, allowed = "fanout", None
            if (block := address_of(message)) in permissions.fanout:
                return True
        else:
            verb, allowed = "cast", link.allowed_casts
        if not self._decide(link, message, verb):
            return False
        if allowed is None:
            _remember(permissions.fanout, block)
        elif destination is not None:
            _remember(allowed, destination)
        return True

    def _with_publish_check(self, accept: Handler) -> Handler:
        def publish(now: float, link: Link, message: bytes) -> None:
            known = _permissions(link).publish
            block = address_of(message)
            if block not in known:
                if not self._decide(link, message, "publish"):
                    return
                _remember(known, block)
            accept(now, link, message)

        return publish

    def _with_right_check(self, verb: str, handler: Handler) -> Handler:
        def rare(now: float, link: Link, message: bytes) -> None:
            if self._decide(link, message, verb):
                handler(now, link, message)

        return rare

    def _with_admin_check(self, handler: Handler) -> Handler:
        def query(now: float, link: Link, message: bytes) -> None:
            view = QueryBody.of(message).what
            if view in FREE or self._is_allowed(link, message, "admin", "", (view,)):
                handler(now, link, message)

        return query

    def _with_node_check(self, name: str, handler: Handler) -> Handler:
        def take(now: float, link: Link, message: bytes) -> None:
            if self._is_allowed(link, message, "node", "", (name,)):
                handler(now, link, message)

        return take

    def _decide(self, link: Link, message: bytes, verb: str) -> bool:
        """Return whether the link's key has the right; its process is told if not.

        Raises:
            ProtocolError: the address is malformed.
        """
        parse(message)
        address = Address.decode(address_of(message))
        names = registered_names(address) if verb == "serve" else (_name(address),)
        if verb in ("publish", "subscribe"):
            # The server in an event's address is ignored.
            names = (address.topic,)
        return self._is_allowed(link, message, verb, address.exchange, names)

    def _is_allowed(self, link: Link, message: bytes, verb: str, exchange: str, names: tuple[str, ...]) -> bool:
        usage = _permissions(link).usage
        key = usage.key
        for name in names:
            right = key.right_for(verb, exchange, name)
            if right is None:
                self._deny(link, message, usage, verb, exchange, name)
                return False
            usage.used[key.rights.index(right)] += 1
        return True

    def _deny(self, link: Link, message: bytes, usage: KeyUsage, verb: str, exchange: str, name: str) -> None:
        self._count(link, usage, f"denied {verb}")
        name = shorten(name)
        shown = f"{exchange}/{name}" if exchange else name
        text = f"key {usage.key.name!r} has no right to {verb} {shown!r}"
        self._act(LogEvent("denied", f"{link.identity}: {text}", link.identity))
        details = {"verb": verb, "topic": name, "exchange": exchange, "key": usage.key.name}
        link.send(ErrorBody(outcome=Outcome.DENIED, text=text, details=details).message(key=message[KEY]))

    def _deny_format(self, link: Link, message: bytes, form: str, what: str) -> str:
        usage = _permissions(link).usage
        self._count(link, usage, f"denied {form}")
        text = f"key {usage.key.name!r} {what}; its key file says which formats it may send (formats)"
        self._act(LogEvent("denied", f"{link.identity}: {text}", link.identity))
        if message[KIND_AT] in (Kind.REQUEST, Kind.CAST, Kind.PUBLISH):
            # As where a consumer does not accept it: the sender encodes it in another format, if it can.
            formats = usage.key.formats or 0
            accepts = with_streams(formats) if has_stream(message[FORMAT_AT]) else formats
            details = {"accepts": accepts, "key": usage.key.name}
            link.send(ErrorBody(outcome=Outcome.PROTOCOL, text=text, details=details).message(key=message[KEY]))
        elif message[KIND_AT] in (Kind.REQUEST_ITEM, Kind.REQUEST_END):
            details = {"key": usage.key.name}
            link.send(ErrorBody(outcome=Outcome.DENIED, text=text, details=details).message(key=message[KEY]))
        return text

    def _count(self, link: Link, usage: KeyUsage, what: str) -> None:
        self._turns.spent += ERROR_STEPS
        self._refused[what] += 1
        link.counters[what] += 1
        usage.refused[what] += 1

    # --- rate --------------------------------------------------------------------------------

    def _with_rate_check(self, accept: Handler) -> Handler:
        def metered(now: float, link: Link, message: bytes) -> None:
            if self._is_within_rate(now, link, message):
                accept(now, link, message)

        return metered

    def _is_within_rate(self, now: float, link: Link, message: bytes) -> bool:
        permissions = _permissions(link)
        usage = permissions.usage
        bucket = usage.bucket
        assert bucket is not None
        kind = message[KIND_AT]
        if kind in _NOT_REOFFERED or kind >= FIRST_NODE_KIND or message[LOW_FLAGS_AT] & Flag.CONFIRM:
            wait = bucket.take(now)
            if wait:
                self._refuse_rate(link, message, usage, wait)
            return not wait
        block = address_of(message)
        first = permissions.throttled.get(block)
        if first is not None:
            if sequence_of(message) != first or not message[LOW_FLAGS_AT] & Flag.RESENT:
                self._refuse_rate(link, message, usage, 1.0 / bucket.rate)
                return False
            del permissions.throttled[block]
        wait = bucket.take(now)
        if not wait:
            return True
        if len(permissions.throttled) < _MAX_DECISIONS:
            # Order is not kept for casts to more addresses at a time than this.
            permissions.throttled[block] = sequence_of(message)
        self._refuse_rate(link, message, usage, wait)
        return False

    def _refuse_rate(self, link: Link, message: bytes, usage: KeyUsage, wait: float) -> None:
        self._count(link, usage, "too fast")
        assert usage.bucket is not None
        rate = f"{usage.bucket.rate:g}"
        text = f"key {usage.key.name!r} sends more than {rate} messages a second (messages_per_second = {rate})"
        details = {"limit": "messages_per_second", "retry_after": round(wait, 3), "key": usage.key.name}
        link.send(ErrorBody(outcome=Outcome.OVERLOADED, text=text, details=details).message(key=message[KEY]))


def registered_names(address: Address) -> tuple[str, ...]:
    """Return the topics that a registration consumes: a server's own one, and the one that it shares with others."""
    return (address.topic, _name(address)) if address.server else (address.topic,)


def _permissions(link: Link) -> Permissions:
    permissions = link.permissions
    assert permissions is not None, "the link belongs to no key"
    return permissions


def _remember(known: set[S], what: S) -> None:
    """Remember a yes, within a bound."""
    if len(known) >= _MAX_DECISIONS:
        known.clear()
    known.add(what)


def _name(address: Address) -> str:
    return f"{address.topic}.{address.server}" if address.server else address.topic
