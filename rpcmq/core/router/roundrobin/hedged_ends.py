"""The ends of calls that several consumers have, and of each delivery: the first answer that can be used counts.

A delivery that fails while another one is under way never ends the call: neither a consumer that is gone, nor a
malformed answer; what the handler raises does, unless the caller has said otherwise. When the call has ended, its other
consumers are told (CANCEL), and their answers are dropped.

Some are let finish, one of ``1 / hedge.sample`` calls: their results are compared with the one that was used, as bytes,
so that back ends that disagree are noticed. Not those that are signed, for no signature is like another.

The dispatch log has a record of each delivery that did not answer the call, of kind HEDGE, beside that of the call. Of
one whose result differs from the one that was used, the class of what was raised says so (``DIFFERS``).
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b

from rpcmq.core.router.hedge import Hedge, HedgeCounts
from rpcmq.core.router.model import Delivery, Request
from rpcmq.core.router.roundrobin.request_table import RequestTable
from rpcmq.core.router.settings import Settings
from rpcmq.errors import Outcome
from rpcmq.log_format import DIFFERS, NOT_REPORTED
from rpcmq.wire import FORMAT_AT, Flag, Kind, flags_of, payload_of, size_of, with_flag, with_kind, without_flag

__all__ = ["HedgedEnds"]

_OK, _REMOTE_ERROR = int(Outcome.OK), int(Outcome.REMOTE_ERROR)
#: Deliveries that are let finish at a time; the largest result that is compared (bytes); and for how long one is waited
#: for (seconds).
_MOST_SAMPLES, _MOST_BYTES, _LONGEST = 100, 1 << 20, 10.0


class HedgedEnds:
    """Ends deliveries that others of the same call have overtaken, and counts them.

    Attributes:
        on_disagreement: called with (request, winner, other): their results differ.
        samples: deliveries that are let finish, and until when they are waited for (monotonic seconds).
    """

    __slots__ = ("_requests", "_settings", "_turn", "on_disagreement", "samples")

    def __init__(self, settings: Settings, requests: RequestTable) -> None:
        self._settings = settings
        self._requests = requests
        self.samples: dict[Delivery, float] = {}
        #: The part of a sample that has come together: one is taken at 1.
        self._turn = 0.0
        self.on_disagreement: Callable[[Request, str, str], None] = lambda request, winner, other: None

    def outlives(self, request: Request, delivery: Delivery, outcome: int) -> bool:
        """Return whether ``request`` goes on though ``delivery`` failed with ``outcome``: another consumer has it."""
        if delivery.earlier is None and request.delivery is delivery:
            return False
        hedge = request.hedged
        return hedge is not None and not (outcome == _REMOTE_ERROR and hedge.exception_wins)

    def won(self, now: float, request: Request, delivery: Delivery, answer: bytes, outcome: int) -> None:
        """``delivery`` has ended ``request``: its other consumers need not go on."""
        request.slot = None
        request.take_back(delivery)
        hedge, spared = request.hedged, None
        if hedge is not None:
            counts = _counts(request)
            counts.won += delivery.consumer is not hedge.first
            if outcome == _OK:
                spared = self._sampled(now, request, hedge, delivery, answer)
            counts.cancelled += sum(each is not spared for each in request.deliveries())
        self._requests.withdraw(request, spared)

    def unused(
        self, now: float, request: Request, delivery: Delivery, answer: bytes, outcome: int, handler_us: int, error: str
    ) -> None:
        """``delivery`` was answered, which has ended nothing: the call has ended before, or others have it."""
        hedge = request.hedged
        if hedge is None:
            request.settled_by(delivery)
            return
        is_told = self._is_told_of(request, hedge, delivery)
        _let_go(request, delivery)
        if request.outcome is None:
            _counts(request).failed += 1
        elif hedge.sample is delivery:
            if self._differs(request, hedge, delivery, answer, outcome):
                error = f"{DIFFERS}: {error}" if error else DIFFERS
        else:
            outcome, error = int(Outcome.CANCELLED), ""
        if not is_told:
            self._record(now, request, hedge, delivery, outcome, size_of(answer), handler_us, error)

    def lost(self, now: float, delivery: Delivery, outcome: Outcome = Outcome.LINK_LOST) -> None:
        """``delivery``, of a request that has ended or that others have, ends without an answer.

        Args:
            outcome: ``LINK_LOST``: its consumer is gone; ``CANCELLED``: another router has ended it there.
        """
        request = delivery.request
        hedge = request.hedged
        is_told = hedge is None or self._is_told_of(request, hedge, delivery)
        _let_go(request, delivery)
        if hedge is None:
            return
        if request.outcome is None:
            _counts(request).failed += 1
        self.samples.pop(delivery, None)
        if not is_told:
            self._record(now, request, hedge, delivery, int(outcome))

    def _is_told_of(self, request: Request, hedge: Hedge, delivery: Delivery) -> bool:
        """Return whether the record of the call itself is about ``delivery``."""
        if request.outcome is None or request.outcome in (_OK, _REMOTE_ERROR):
            return False
        if hedge.last is None:
            hedge.last = request.delivery  # none has been let go since the end
        return hedge.last is delivery

    def _record(
        self, now: float, request: Request, hedge: Hedge, delivery: Delivery, outcome: int, size: int = 0,
        handler_us: int = NOT_REPORTED, error: str = "",
    ) -> None:  # fmt: skip
        log = self._requests.log
        if log is None:
            return
        row = self._requests.copy(request)
        message = with_kind(request.message, Kind.HEDGE)
        # Whether it was given to this consumer beside another one, or to this one first.
        is_first = delivery.consumer is hedge.first
        row.message = without_flag(message, Flag.HEDGED) if is_first else with_flag(message, Flag.HEDGED)
        if error:
            log.failed(now, row, delivery, outcome, size, handler_us, error)
        else:
            log.ended(now, row, delivery, outcome, size, handler_us)

    # --- results that are compared -----------------------------------------------------------

    def _sampled(
        self, now: float, request: Request, hedge: Hedge, delivery: Delivery, answer: bytes
    ) -> Delivery | None:
        """The delivery that is let finish, to compare its result with ``answer``; None: none is."""
        self._turn += self._settings.hedge_sample
        other = request.delivery
        if self._turn < 1.0 or other is None or not _is_comparable(answer) or len(self.samples) >= _MOST_SAMPLES:
            return None
        self._turn -= 1.0
        hedge.sample, hedge.digest = other, _digest(answer)
        hedge.winner = delivery.consumer.link.identity
        self.samples[other] = now + _LONGEST
        return other

    def _differs(self, request: Request, hedge: Hedge, delivery: Delivery, answer: bytes, outcome: int) -> bool:
        """Count whether ``answer`` is another one than the call has ended with, and return that."""
        if self.samples.pop(delivery, None) is None:
            return False  # it was told after all
        counts = _counts(request)
        if outcome == _OK and not _is_comparable(answer):
            return False
        counts.compared += 1
        if outcome == _OK and _digest(answer) == hedge.digest:
            return False
        other = delivery.consumer.link.identity
        counts.note_difference(hedge.winner, other)
        self.on_disagreement(request, hedge.winner, other)
        return True

    def tick(self, now: float) -> None:
        """Tell consumers that were let finish, and have not, that nobody waits."""
        for delivery in [each for each, until in self.samples.items() if until <= now]:
            del self.samples[delivery]
            self._requests.tell_cancelled(delivery)


def _counts(request: Request) -> HedgeCounts:
    counts = request.destination.statistics.hedges
    assert counts is not None
    return counts


def _let_go(request: Request, delivery: Delivery) -> None:
    if any(each is delivery for each in request.deliveries()):
        request.take_back(delivery)


def _is_comparable(answer: bytes) -> bool:
    return not flags_of(answer) & Flag.SEALED and size_of(answer) <= _MOST_BYTES


def _digest(answer: bytes) -> bytes:
    """The result in ``answer``, and its format."""
    return blake2b(bytes((answer[FORMAT_AT],)) + bytes(payload_of(answer)), digest_size=16).digest()
