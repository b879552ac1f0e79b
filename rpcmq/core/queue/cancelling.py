"""An item that nobody wants any more ends, unless a worker has it."""

from __future__ import annotations

from collections.abc import Callable

from rpcmq.core.queue.queues import Queues
from rpcmq.core.queue.tally import size_of
from rpcmq.store.contract import Done, Found, Lane, Verdict

__all__ = ["CANCELLED", "DEAD", "ENDED", "RUNNING", "cancel"]

#: The answers of :func:`cancel`: it has ended by that; a worker has it, or may have it since the queue server's death;
#: it is dead; it had ended before, was never there, or is in another queue now.
CANCELLED, RUNNING, DEAD, ENDED = "cancelled", "running", "dead", "ended"


def cancel(
    queues: Queues, now: float, name: str, priority: int, number: int, then: Callable[[str], object]
) -> None:  # fmt: skip
    """End an item that no worker has; ``then`` gets one of the answers, once that is durable."""
    queue, lane, key = queues.queue(name), Lane(name, priority), (priority, number)
    held = queue.hold(now, [key])

    def found(item: Found | None) -> None:
        if item is None or item.state == "dead":
            queue.let_go(held, set())
            then(ENDED if item is None else DEAD)
        elif not held or queue.may_run(now, item.item):
            queue.let_go(held, set())
            then(RUNNING)
        else:
            queues.store.apply([Done(lane, number, size_of(item.item))], lambda verdicts: ended(item, verdicts))

    def ended(item: Found, verdicts: list[Verdict]) -> None:
        queue.tally.left(item.item)
        queue.counters["cancelled"] += 1
        queue.let_go(held, held)
        then(CANCELLED)

    queues.store.find(lane, number, found)
