"""Reports on runs: the home of a request's consumer tells an owner that has a dispatch log who had it, and how long.

So the owner's log can name the process, and tell the time between the routers from that at the home. An owner without
a log is told nothing, which costs nothing. A name is told once (RUNNER); reports then give its number.
"""

from __future__ import annotations

from rpcmq.core.router.base_link import BaseLink
from rpcmq.core.router.forwarded import Forwarded
from rpcmq.core.router.mesh.neighbours import Neighbour
from rpcmq.core.router.mesh.part import MeshContext, MeshPart
from rpcmq.core.router.model import Consumer, Delivery, Link
from rpcmq.errors import ProtocolError
from rpcmq.wire import KIND_AT, Kind, method_of, pack, payload_of, sequence_of
from rpcmq.wire.run_report import MAX_RUNNERS, REPORT, with_report

__all__ = ["RunReports"]

#: Server and identity of a consumer.
Runner = tuple[str, str]
_ANSWERS = frozenset(map(int, (Kind.REPLY, Kind.FAULT, Kind.END)))
_MOST_MICROSECONDS = (1 << 32) - 2
#: Longest server name or identity (bytes).
_MOST_NAME = 255


class RunReports(MeshPart):
    """Tells owners of the runs of their requests, and knows what this router was told."""

    def __init__(self, context: MeshContext) -> None:
        context.report, context.runner = self._report, self._runner
        #: Owner that has a log -> the numbers of the consumers that it was told.
        self._numbers: dict[Link, dict[Runner, int]] = {}
        #: Neighbour -> the consumers that it has told, by number.
        self._runners: dict[BaseLink, dict[int, Runner]] = {}
        self._dispatch = context.roundrobin.dispatch
        self.kinds = {Kind.RUNNER: self._note_runner}

    def neighbour_up(self, now: float, neighbour: Neighbour, resumed: bool) -> None:
        """Return whether it has a log is known from now on."""
        if not resumed and neighbour.identity.logs:
            self._numbers[neighbour.link] = {}
            self._dispatch.on_forwarded_answered = self._answered

    def neighbour_gone(self, now: float, neighbour: Neighbour, reason: str) -> None:
        """Neither side knows a name any more."""
        self._numbers.pop(neighbour.link, None)
        if not self._numbers:
            self._dispatch.on_forwarded_answered = None
        self._runners.pop(neighbour.link, None)

    # --- of requests that ran here -----------------------------------------------------------

    def _report(self, now: float, request: Forwarded, consumer: Consumer | None) -> bytes | None:
        """The report of ``request``, whose name was told before; None if its owner wants none.

        Args:
            consumer: it ran there; None: nobody had it.
        """
        numbers = self._numbers.get(request.owner)
        if numbers is None:
            return None
        microseconds = min(max(1, round((now - request.received_at) * 1e6)), _MOST_MICROSECONDS)
        return REPORT.pack(microseconds, self._number(numbers, request.owner, consumer) if consumer else 0)

    def _number(self, numbers: dict[Runner, int], owner: Link, consumer: Consumer) -> int:
        runner = (consumer.server, consumer.link.identity)
        number = numbers.get(runner)
        if number is None:
            server, identity = (name.encode()[:_MOST_NAME] for name in runner)
            if len(numbers) == MAX_RUNNERS:
                numbers.clear()  # each is told again, with another number
            numbers[runner] = number = len(numbers) + 1
            owner.send(pack(Kind.RUNNER, identity, sequence=number, method=server))
        return number

    def _answered(self, now: float, request: Forwarded, delivery: Delivery) -> None:
        """The last message to its owner is the answer to ``request``: it gets the report."""
        outbox = request.owner.outbox
        if request.owner not in self._numbers or outbox[-1][KIND_AT] not in _ANSWERS:
            return
        message = outbox.pop()
        report = self._report(now, request, delivery.consumer)
        outbox.append(with_report(message, report) if report else message)

    # --- of requests that ran elsewhere ------------------------------------------------------

    def _runner(self, link: BaseLink, number: int) -> Runner | None:
        """The consumer that the neighbour at ``link`` means with ``number``; None: it has not told."""
        return self._runners.get(link, {}).get(number)

    def _note_runner(self, now: float, link: Link, message: bytes) -> None:
        """RUNNER: reports of ``link`` name a consumer by a number.

        Raises:
            ProtocolError: malformed.
        """
        number, identity = sequence_of(message), bytes(payload_of(message))
        if not 0 < number <= MAX_RUNNERS or not 0 < len(identity) <= _MOST_NAME:
            raise ProtocolError(f"RUNNER {number} with a name of {len(identity)} bytes", "length")
        self._runners.setdefault(link, {})[number] = (method_of(message), identity.decode("utf-8", "replace"))
