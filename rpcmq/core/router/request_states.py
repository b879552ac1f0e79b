"""The states of a request in the router, and of each delivery of it; and the events that change them.

**A request** is made of a call or cast that has come, and is in the router's hands (*routing*) while it is decided
where it goes: *waiting* in a queue, or *delivered* to a consumer, of which there may be several. It is back in hand
for a moment when it is taken out of a queue, or when nobody has it any more and it may run again. It ends exactly
once, with an outcome; then it is charged to nobody, and is written to the dispatch log.

What is refused before it has a number (malformed, not allowed, the router drains) never becomes one: the object is
dropped. A cast that came before the consumers of a lost router could return is *held*: of it only the message is
retained, with its link, and comes again as a new request when they are back, or their time is over. A mandatory
call that hopes for such a consumer simply waits. What a *sender* retains is the sender's
(:mod:`rpcmq.core.process.retained_casts`).

The end is an event of its outcome's name. A delivered request may end with any, for a consumer settles casts with any
outcome; numbers that have no name count as ``ok``. One that waits is never ended by a consumer: it is withdrawn, or
times out, or is returned to its caller when the router drains, or when it is mandatory and the last consumer has left.
One in hand is refused, or ends as what waited: a cast is taken out of its queue before it ends, a call after. It ends
with ``link_lost`` where it is refused as mandatory, and a router that had it before may have given it to a consumer.

**A delivery** is *open* while its consumer has it. If the request ends meanwhile, because time is up, the caller gave
up or another consumer was faster, it is *abandoned*: the consumer was told, and what it still says of it changes
nothing but its credit. It is *closed* when the consumer has answered, settled or gone. A message of the consumer that
names another attempt is no event.

**Where this is checked.** The state is not stored: it follows from where the request is, which the tables must know
anyway, so that the two cannot disagree; only the outcome is written down. In tests, in the simulation and under the
fuzzer each change is checked: they watch those fields (:mod:`rpcmq.testing.checked_states`). In production a check is
made where a call ends other than by an answer, and where anything ends twice
(:mod:`rpcmq.core.router.roundrobin.request_table`). A check at each delivery and each answer, too, was measured to add
half to the engine's time for a call (1.1 us to 2.1 us), and a fifth to that for a cast; and it could find there only
what those few lines have just written.
"""

from __future__ import annotations

from enum import Enum

from rpcmq.errors import Outcome

__all__ = ["DELIVERY_TRANSITIONS", "TRANSITIONS", "DeliveryState", "RequestState", "end_event"]


class RequestState(Enum):
    """The place of a request."""

    #: In hand: neither waiting nor with anybody.
    ROUTING = "routing"
    WAITING = "waiting"
    DELIVERED = "delivered"
    #: Retained as a message, until consumers are back.
    HELD = "held"
    #: For good.
    ENDED = "ended"


class DeliveryState(Enum):
    """Whether a consumer has a request, and anybody waits for what it does with it."""

    OPEN = "open"
    ABANDONED = "abandoned"
    CLOSED = "closed"


_ROUTING, _WAITING, _DELIVERED, _HELD, _ENDED = RequestState
_OPEN, _ABANDONED, _CLOSED = DeliveryState

#: (state, event) -> state: all that is legal.
TRANSITIONS = {
    (_ROUTING, "queued"): _WAITING,
    (_ROUTING, "delivered"): _DELIVERED,
    (_ROUTING, "held"): _HELD,
    (_ROUTING, "timeout"): _ENDED,
    (_ROUTING, "no_consumer"): _ENDED,
    (_ROUTING, "link_lost"): _ENDED,
    (_ROUTING, "overloaded"): _ENDED,
    (_ROUTING, "cancelled"): _ENDED,
    (_ROUTING, "protocol"): _ENDED,
    (_WAITING, "taken"): _ROUTING,
    (_WAITING, "timeout"): _ENDED,
    (_WAITING, "no_consumer"): _ENDED,
    (_WAITING, "link_lost"): _ENDED,
    (_WAITING, "cancelled"): _ENDED,
    (_WAITING, "draining"): _ENDED,
    (_DELIVERED, "delivered"): _DELIVERED,
    (_DELIVERED, "one returned"): _DELIVERED,
    (_DELIVERED, "returned"): _ROUTING,
    **{(_DELIVERED, outcome.name.lower()): _ENDED for outcome in Outcome},
}

#: (state, event) -> state: all that is legal. A delivery begins open.
DELIVERY_TRANSITIONS = {
    (_OPEN, "request ended"): _ABANDONED,
    (_OPEN, "closed"): _CLOSED,
    (_ABANDONED, "closed"): _CLOSED,
}

_EVENTS = {int(outcome): outcome.name.lower() for outcome in Outcome}


def end_event(outcome: int) -> str:
    """Return the event by which a request ends with ``outcome``."""
    return _EVENTS.get(outcome, "ok")
