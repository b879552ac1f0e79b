"""An item that nobody wants any more ends, unless a worker has it."""

from __future__ import annotations

from collections.abc import Callable

from rpcmq.core.queue import results
from rpcmq.core.queue.envelope import Envelope
from rpcmq.core.queue.item_ids import id_of
from rpcmq.core.queue.queues import Queues
from rpcmq.core.queue.results import Outcome
from rpcmq.core.queue.tally import size_of
from rpcmq.core.queue.work_queue import WorkQueue
from rpcmq.store.contract import Change, Done, Found, Lane, Release, Stored, Verdict

__all__ = ["CANCELLED", "DEAD", "ENDED", "RUNNING", "cancel"]

#: The answers of :func:`cancel`: it has ended by that; a worker has it, or may have it since the queue server's death;
#: it is dead; it had ended before, was never there, or is in another queue now.
CANCELLED, RUNNING, DEAD, ENDED = results.CANCELLED, results.RUNNING, results.DEAD, "ended"


def cancel(
    queues: Queues, now: float, name: str, priority: int, number: int, then: Callable[[str], object],
    id: str = "",
) -> None:  # fmt: skip
    """End an item that no worker has; ``then`` gets one of the answers, once that is durable.

    Args:
        id: of the item; another one that is in its place stays, and a damaged one, whose id is not known. Empty: any.
    """
    queue, lane, key = queues.queue(name), Lane(name, priority), (priority, number)
    held = queue.hold(now, [key])

    def found(item: Found | None) -> None:
        if item is None or (id and id_of(item.item) != id):
            queue.let_go(held, set())
            then(ENDED)
        elif item.state == "dead":
            queue.let_go(held, set())
            then(DEAD)
        elif not held or queue.may_run(now, item.item):
            queue.let_go(held, set())
            then(RUNNING)
        else:
            changes: list[Change] = [Done(lane, number, size_of(item.item))]
            if isinstance(item.item, Stored):
                changes += _beside(queue, queues.wall(now), item.item)
            queues.store.apply(changes, lambda verdicts: ended(item, verdicts))

    def ended(item: Found, verdicts: list[Verdict]) -> None:
        queue.tally.left(item.item)
        queue.counters["cancelled"] += 1
        queue.let_go(held, held)
        queue.results.ended(item.item, Outcome(CANCELLED))
        then(CANCELLED)

    queues.store.find(lane, number, found)


def _beside(queue: WorkQueue, at: int, item: Stored) -> list[Change]:
    """Changes to what is kept beside an item that is cancelled."""
    try:
        envelope = Envelope.from_bytes(item.body)
    except ValueError:
        return []  # another version has written it: nobody is told, and nothing else depends on it
    changes: list[Change] = []
    if envelope.unique:
        changes.append(Release(item.lane, item.number, envelope.unique))
    if envelope.keep_result:
        until, most = at + envelope.keep_result, queue.policy.max_result_bytes
        changes += queue.results.keep(item, until, CANCELLED, b"", most)
    return changes
