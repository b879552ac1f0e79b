"""Messages that have ended here, and whose senders have not heard so: they are not started again elsewhere.

A sender that is linked here, and cut off, goes on at another router and sends again what it has heard nothing of. That
router asks all consumers; one that has ended the message and is gone since is on nobody's roll. What a sender has not
acknowledged is still to be sent to it here: that says what has ended, and who has made each answer, so that nothing
needs to be noted when a message ends. It is noted when the sender's link ends.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterator
from itertools import chain
from math import inf

from rpcmq.core.router.base_link import BaseLink
from rpcmq.core.router.link_table import SAID_GOODBYE
from rpcmq.core.router.mesh.part import MeshContext, MeshPart
from rpcmq.core.router.model import Link
from rpcmq.wire import KEY, KIND_AT, ORIGIN_OF_KEY, SEQUENCE_OF_KEY, Kind, origin_of, payload_of
from rpcmq.wire.bodies import MESH_TYPE, ErrorBody
from rpcmq.wire.consumer_name import ConsumerName

__all__ = ["UntoldEnds"]

_ANSWERS = frozenset(map(int, (Kind.REPLY, Kind.FAULT, Kind.END)))
_ERROR, _DELIVERED = int(Kind.ERROR), int(Kind.DELIVERED)
_SEQUENCE_BYTES = SEQUENCE_OF_KEY.stop - SEQUENCE_OF_KEY.start
#: The ends of a link that has ended are noted for so long (seconds); most messages of one link, and of all. Each takes
#: some 150 bytes.
_NOTED_SECONDS = 600.0
_MOST_OF_ONE, _MOST = 8_192, 65_536
#: Messages that are looked at for one of turns' steps.
_LOOKED_AT = 16

#: By key.
Ends = dict[bytes, ConsumerName]


class UntoldEnds(MeshPart):
    """Knows who has ended the messages of processes here that have not been told so.

    Of a cast, and of what a consumer of another router has ended, it is not known who. So a name stands for them that
    nobody has: whoever has had the message, and lives, says so; else it is given up.
    """

    def __init__(self, context: MeshContext) -> None:
        self._own = context.own
        self._links = context.node.links
        self._requests = context.roundrobin.dispatch.requests
        #: Of links that have ended, by their origins, and when.
        self._noted: OrderedDict[bytes, tuple[float, Ends]] = OrderedDict()
        self._count = 0
        context.untold, context.untold_before = self.untold, self.untold_before

    def untold(self, keys: Collection[bytes]) -> Ends:
        """Return who has ended the messages with ``keys``, as far as the senders have not acknowledged that."""
        found: Ends = {}
        for origin in {key[ORIGIN_OF_KEY] for key in keys}:
            link = self._links.by_origin(origin)
            if link is not None and link.queue_type != MESH_TYPE:
                found |= self._of(link)
        found = {key: found[key] for key in keys if key in found}
        return found | {key: name for key in keys if (name := self.untold_before(key)) is not None}

    def untold_before(self, key: bytes) -> ConsumerName | None:
        """Return the same of the message with ``key``, whose sender's link ended before that acknowledged it."""
        _, ends = self._noted.get(key[ORIGIN_OF_KEY], (0.0, {}))
        return ends.get(key)

    def _of(self, link: Link) -> Ends:
        ends: Ends = {}
        names: dict[BaseLink | None, ConsumerName] = {}
        messages = [*link.sent, *link.outbox]
        self._requests.turns.spend(len(messages) // _LOOKED_AT)
        pending = self._requests.receipts.pending(link.origin)
        somebody = self._somebody(self._own.name)
        for key in chain(_delivered(link, messages), (link.origin + sequence for sequence in pending)):
            ends[key] = somebody
        for message in messages:
            key = message[KEY]
            if message[KIND_AT] in _ANSWERS:
                maker = link.owed.get(key, link.maker)
            elif _says_started(message):
                maker = link.owed.get(key)
            else:
                continue
            if maker not in names:
                names[maker] = self._name(maker)
            ends[key] = names[maker]
        return ends

    def _name(self, maker: BaseLink | None) -> ConsumerName:
        if maker is None or maker.queue_type == MESH_TYPE:
            return self._somebody(self._own.name if maker is None else maker.identity)
        return ConsumerName(maker.origin, maker.identity)

    def _somebody(self, router: str) -> ConsumerName:
        return ConsumerName(origin_of(self._own.id, 0), f"a consumer that got it by way of router {router}")

    # --- links that end ----------------------------------------------------------------------

    def process_ended(self, now: float, link: Link, reason: str) -> None:
        """Note what it was not told: it may ask at another router, or come back as a new link."""
        if reason == SAID_GOODBYE or not link.follows_mesh or not self._requests.owes_answers:
            return
        ends = self._of(link)
        if not ends:
            return
        _, former = self._noted.pop(link.origin, (now, {}))
        latest = former | ends
        for key in list(latest)[: max(0, len(latest) - _MOST_OF_ONE)]:
            del latest[key]
        self._noted[link.origin] = now, latest
        self._count += len(latest) - len(former)
        while self._count > _MOST:
            self._forget_oldest()

    def _forget_oldest(self) -> None:
        _, (_, ends) = self._noted.popitem(last=False)
        self._count -= len(ends)

    def tick(self, now: float) -> None:
        """Forget what is old."""
        while self._noted and now >= self.next_deadline():
            self._forget_oldest()

    def next_deadline(self) -> float:
        """The time of the next :meth:`tick` (monotonic seconds)."""
        return next(iter(self._noted.values()))[0] + _NOTED_SECONDS if self._noted else inf


def _says_started(message: bytes) -> bool:
    """Return whether ``message`` tells that a consumer has ended a call whose answer could not be passed on."""
    return message[KIND_AT] == _ERROR and ErrorBody.of(message).details.get("started") == "yes"


def _delivered(link: Link, messages: Collection[bytes]) -> Iterator[bytes]:
    """The keys of the casts of ``link`` that need not be kept, as ``messages`` say."""
    for message in messages:
        if message[KIND_AT] == _DELIVERED:
            sequences = payload_of(message)
            for at in range(0, len(sequences), _SEQUENCE_BYTES):
                yield link.origin + sequences[at : at + _SEQUENCE_BYTES]
