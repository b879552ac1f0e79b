"""The topics that may pass a link to another router, in and out: as its key's file and the table ``[[mesh.peer]]`` say.

*In* is what the other router may bring here: requests and events, of whichever process. A request that it may not
bring is answered with ERROR, outcome DENIED, and its owner offers it to others; an event is dropped and counted. *Out*
is what it may get from here: it is offered no request beside that, and sent no event. A router that is limited in any
way does not go on with calls and casts that this router's consumers have of others: its questions are not answered.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rpcmq.config.peers import EVERY_TOPIC, Peer
from rpcmq.core.router.mesh.places import Tag
from rpcmq.core.router.model import Handler, Link
from rpcmq.core.router.rights import MESH_VERB, Key, Right
from rpcmq.errors import Outcome
from rpcmq.wire import CONSUMER_AT, KEY, LOW_FLAGS_AT, Address, Flag, Kind, address_of
from rpcmq.wire.bodies import ErrorBody, IntroductionBody

__all__ = ["DENIED", "LinkLimits", "limits_of"]

#: Addresses whose decision one link remembers.
_MAX_DECISIONS = 10_000
#: Counts at a link the messages that it may not bring.
DENIED = "denied to bring"


class LinkLimits:
    """The limits of one link.

    Args:
        link: to the other router.
        allow_in: patterns of topics that it may bring here, beside those of its key.
        allow_out: patterns of topics that it may get from here.
    """

    def __init__(self, link: Link, allow_in: Sequence[str], allow_out: Sequence[str]) -> None:
        self._link = link
        key = link.key
        of_key = key.rights if key is not None else ()
        self._in = [_any_of(map(_right, allow_in)), *([_any_of(of_key)] if key is not None else [])]
        self._out = [_any_of(map(_right, allow_out))]
        self._known: dict[tuple[bytes, bool, bool], bool] = {}

    def may_bring(self, block: bytes, is_group: bool = False) -> bool:
        """Return whether the other router may bring messages to the address ``block``.

        Raises:
            ProtocolError: the address is malformed.
        """
        return self._decide(block, is_group, True)

    def may_get(self, block: bytes, is_group: bool = False) -> bool:
        """Return whether messages to the address ``block`` may go to the other router."""
        return self._decide(block, is_group, False)

    def _decide(self, block: bytes, is_group: bool, is_in: bool) -> bool:
        known = self._known.get((block, is_group, is_in))
        if known is None:
            address = Address.decode(block)
            name = address.topic if is_group or not address.server else f"{address.topic}.{address.server}"
            known = all(allow(address.exchange, name) for allow in (self._in if is_in else self._out))
            if len(self._known) >= _MAX_DECISIONS:
                self._known.clear()
            self._known[block, is_group, is_in] = known
        return known

    # --- messages of the other router --------------------------------------------------------

    def handlers(self, handlers: Sequence[Handler]) -> list[Handler]:
        """Return the handlers of the link: ``handlers``, for what it may bring."""
        table = list(handlers)
        deny = {Kind.REQUEST: _deny, Kind.CAST: _deny, Kind.WANT: _ignore, Kind.INTRODUCE: _not_introduced}
        for kind, denied in deny.items():
            table[kind] = self._checked(table[kind], denied)
        table[Kind.LOST] = self._checked_if_named(table[Kind.LOST])
        # Who asks for a message owns it from then on, whatever its address.
        table[Kind.WHERE] = table[Kind.FENCES] = _ignore
        return table

    def _checked(self, handler: Handler, denied: Handler) -> Handler:
        def check(now: float, link: Link, message: bytes) -> None:
            if self.may_bring(address_of(message), message[CONSUMER_AT] == Tag.GROUP):
                handler(now, link, message)
            else:
                link.counters[DENIED] += 1
                denied(now, link, message)

        return check

    def _checked_if_named(self, handler: Handler) -> Handler:
        """Handle events that were lost: of topics that it may bring; without a topic they may be of any."""
        checked = self._checked(handler, _ignore)
        return lambda now, link, message: (checked if address_of(message) else _ignore)(now, link, message)


def limits_of(link: Link, peers: Sequence[Peer]) -> LinkLimits | None:
    """Return the limits of ``link``; None if everything may pass.

    Args:
        peers: the tables ``[[mesh.peer]]``; that of the router is found by its key, and without keys there is none.
    """
    key = link.key
    if key is None:
        return None
    peer = next((each for each in peers if each.server_key == key.public), None)
    allow_in, allow_out = (peer.allow_in, peer.allow_out) if peer is not None else (EVERY_TOPIC, EVERY_TOPIC)
    if _is_unlimited(key) and allow_in == EVERY_TOPIC == allow_out:
        return None
    return LinkLimits(link, allow_in, allow_out)


def _is_unlimited(key: Key) -> bool:
    return any("#" in right.topics and "*" in right.exchanges for right in key.rights)


def _right(pattern: str) -> Right:
    exchange, _, topics = pattern.rpartition("/")
    return Right(frozenset([MESH_VERB]), (topics,), (exchange,))


def _any_of(rights: Sequence[Right] | map[Right]) -> Callable[[str, str], bool]:
    rights = tuple(rights)
    return lambda exchange, name: any(right.allows(MESH_VERB, exchange, name) for right in rights)


def _text(message: bytes) -> str:
    address = Address.decode(address_of(message))
    return f"this router may not bring {str(address)!r}: it is not in allow_in, or in the rights of its key"


def _deny(now: float, link: Link, message: bytes) -> None:
    if message[LOW_FLAGS_AT] & Flag.FANOUT:
        return  # nobody waits for an answer
    error = ErrorBody(outcome=Outcome.DENIED, text=_text(message))
    link.send(error.message(key=message[KEY], consumer=message[CONSUMER_AT], address=address_of(message)))


def _not_introduced(now: float, link: Link, message: bytes) -> None:
    link.send(IntroductionBody(text=_text(message)).message(key=message[KEY]))


def _ignore(now: float, link: Link, message: bytes) -> None:
    """Make no room, and tell nothing."""
