"""The latest messages of other routers that consumers here have ended, for those who ask when a consumer is gone.

A sender that has not heard of an end sends its message again by way of another router, which asks all consumers for it.
One that has ended it and is gone since, or serves that address no more, is on nobody's roll; its router, which has seen
the end, says its name. So it is waited for, and what it has done is not done again by another one.
"""

from __future__ import annotations

from rpcmq.core.router.base_link import BaseLink
from rpcmq.core.router.forwarded import Forwarded
from rpcmq.core.router.link_states import LinkState
from rpcmq.core.router.mesh.fences import name_of
from rpcmq.core.router.mesh.neighbours import Neighbour
from rpcmq.core.router.mesh.part import MeshContext, MeshPart
from rpcmq.core.router.model import Link
from rpcmq.wire import Flag
from rpcmq.wire.consumer_name import ConsumerName

__all__ = ["EndedRuns"]

#: Messages that are remembered of all owners, who share that evenly, but for the least and the most of one. It may be
#: twice as many; each takes some 150 bytes.
_OF_ALL, _LEAST_OF_ONE, _MOST_OF_ONE = 65_536, 1_024, 8_192
_NOT_ADOPTED = Flag.IDEMPOTENT | Flag.FANOUT | Flag.STREAM
#: Messages of an owner are remembered for so long after its link has ended (seconds).
_REMEMBERED_SECONDS = 600.0
#: Most owners whose link has ended.
_MOST_GONE = 20

#: By name of the message.
Runs = dict[bytes, ConsumerName]


class EndedRuns(MeshPart):
    """Remembers which consumer of this router has ended each of the latest messages of other routers.

    A message whose sender knows the end is never asked for. So what is remembered need not be deleted; but for each
    owner of its own: others go on when one dies, and what they send does not displace what it has sent.
    """

    def __init__(self, context: MeshContext) -> None:
        self._latest: dict[BaseLink, Runs] = {}
        self._most = _MOST_OF_ONE
        #: The ones before the latest; they go all at once.
        self._before: dict[BaseLink, Runs] = {}
        #: Owners whose link has ended, and when.
        self._gone: dict[BaseLink, float] = {}
        #: Of those who are linked here: one object for all that they end.
        self._names: dict[BaseLink, ConsumerName] = {}
        context.roundrobin.dispatch.requests.on_forwarded_run = self._note
        context.ended_by = self.ended_by

    def _note(self, now: float, request: Forwarded, link: Link) -> None:
        """The consumer at ``link`` has ended ``request``."""
        if request.flags & _NOT_ADOPTED:
            return
        runs = self._latest.get(request.owner)
        if runs is None or len(runs) >= self._most:
            runs = self._begin(now, request.owner)
        name = self._names.get(link)
        if name is None:
            name = self._names[link] = ConsumerName(link.origin, link.identity)
        runs[name_of(request.key, request.destination.topic.group)] = name

    def _begin(self, now: float, owner: BaseLink) -> Runs:
        if (former := self._latest.get(owner)) is not None:
            self._before[owner] = former
        elif owner.state is LinkState.ENDED:
            self._forget_later(now, owner)
        runs = self._latest[owner] = Runs()
        self._most = min(_MOST_OF_ONE, max(_LEAST_OF_ONE, _OF_ALL // len(self._latest)))
        return runs

    def ended_by(self, name: bytes) -> ConsumerName | None:
        """The consumer that has ended the message called ``name``; None: none here, as far as is remembered."""
        for runs in (*self._latest.values(), *self._before.values()):
            if (who := runs.get(name)) is not None:
                return who
        return None

    def neighbour_gone(self, now: float, neighbour: Neighbour, reason: str) -> None:
        """Its messages will be asked for soon."""
        if neighbour.link in self._latest:
            self._forget_later(now, neighbour.link)

    def _forget_later(self, now: float, owner: BaseLink) -> None:
        for other, since in list(self._gone.items()):
            if now - since >= _REMEMBERED_SECONDS or len(self._gone) >= _MOST_GONE:
                del self._gone[other]
                self._latest.pop(other, None)
                self._before.pop(other, None)
        self._gone[owner] = now

    def process_ended(self, now: float, link: Link, reason: str) -> None:
        """It ends nothing more."""
        self._names.pop(link, None)
