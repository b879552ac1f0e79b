"""The other half of a plan for several routers: all that is not a plain call or cast, and faults in good order.

It is drawn from random numbers of its own: a plan without it is the one that its seed has always had.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from tests.faults.plan import Fault, Operation, Step

__all__ = ["GRACEFUL_FAULTS", "PATTERNS", "events_of", "graceful_fault", "operations_of", "seconds_of"]

#: Those of routers that are drained, and of processes that leave in order.
GRACEFUL_FAULTS = ("drain router", "rolling restart", "leave")
PATTERNS = ("net", "net.*", "net.#", "#", "net.up", "*.up")
_TOPICS = ("net", "net.up", "net.down", "disk.up")
#: Of those that publish and subscribe, by their connections.
_EVENT_FAULTS = ("reset", "drop", "cut", "stop", "move")


def graceful_fault(rng: Random, routers: str, services: int, publishers: int) -> Fault:
    """Draw a fault of good order, or one of a process that publishes and subscribes."""
    kind = rng.choice((*GRACEFUL_FAULTS, *GRACEFUL_FAULTS, *_EVENT_FAULTS))
    if kind == "drain router":
        return Fault(kind, rng.choice(routers), rng.choice((0.5, 4.0, 12.0)), rng.choice((0.1, 1.0, 8.0)))
    if kind == "rolling restart":
        return Fault(kind, routers, rng.choice((0.5, 12.0)), rng.choice((0.1, 2.0)))
    if kind == "leave":
        return Fault(kind, f"s{rng.randrange(services)}", rng.choice((0.1, 2.0, 6.0)))
    return Fault(kind, f"e{rng.randrange(publishers)}", rng.choice((0.05, 0.3, 1.0, 2.0)))


def seconds_of(fault: Fault) -> float:
    """Return the seconds that ``fault`` lasts at most."""
    if fault.kind == "drain router":
        return fault.seconds + fault.amount
    if fault.kind == "rolling restart":
        return len(fault.target) * (fault.seconds + fault.amount + 3.0)
    if fault.kind == "leave":
        return fault.seconds + 20.0  # for what runs to its end before
    return fault.seconds


def operations_of(rng: Random, at: float, span: float, callers: int, services: int, first: int) -> Iterator[Step]:
    """Draw streams, fanouts, casts to a mailbox, and calls that end before their time, around a fault.

    Args:
        at, span: when the fault begins, and how long it lasts.
        first: number of the first one.
    """
    for number in range(first, first + rng.randint(3, 8)):
        caller = rng.randrange(callers)
        id, topic = f"c{caller}-x{number}", rng.choice(("compute", "network"))
        when = at + rng.uniform(-1.0, span + 3.0)
        verb = rng.choice(("stream", "stream", "fanout", "fanout", "mail", "late", "cancel"))
        seconds = rng.choice((0.0, 0.01, 0.2, 2.0))
        if verb == "stream":
            items, fails = rng.choice((1, 5, 16, 40)), rng.random() < 0.1
            pause = rng.choice((0.0, 0.05, 0.3))
            yield when, Operation("stream", id, caller, topic, "", pause, fails, timeout=60.0, items=items)
        elif verb == "fanout":
            yield when, Operation("fanout", id, caller, topic, seconds=seconds)
        elif verb == "mail":
            yield when, Operation("cast", id, caller, "mail", seconds=seconds, confirm=rng.random() < 0.4)
        elif verb == "late":
            timeout = rng.choice((0.3, 1.0, 3.0, 20.0))
            yield when, Operation("call", id, caller, topic, f"s{rng.randrange(services)}", 2.0, timeout=timeout)
        else:
            after = rng.uniform(0.0, 3.0)
            yield when, Operation("call", id, caller, topic, seconds=8.0, timeout=300.0, cancel_after=after)


def events_of(rng: Random, begin: float, end: float, publishers: int, first: int) -> Iterator[Step]:
    """Draw events between two times; the first one has the number ``first``."""
    for number in range(first, first + rng.randint(3, 8)):
        publisher = rng.randrange(publishers)
        when = rng.uniform(begin, end)
        yield when, Operation("event", f"e{publisher}-{number}", publisher, rng.choice(_TOPICS))
