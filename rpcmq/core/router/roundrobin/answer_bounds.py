"""The bounds of large answers, and the errors that callers get in place of those beyond them."""

from __future__ import annotations

from rpcmq.core.router.model import Link, Request
from rpcmq.errors import Outcome
from rpcmq.wire import size_of
from rpcmq.wire.bodies import ErrorBody

__all__ = ["MOST_WORK_BYTES", "is_too_large", "is_work", "no_room", "too_large"]

#: The exchange of those who work at items of queues. Their answers all go to queue servers, by which others put.
_WORK = "rpcmq.work"
#: Bytes of such an answer: a result of 1 MiB, which is the largest that is kept, and what is said beside it.
MOST_WORK_BYTES = (1 << 20) + (64 << 10)


def is_work(request: Request) -> bool:
    """Return whether a queue server has asked, for an item."""
    return request.destination.topic.address.exchange == _WORK


def is_too_large(request: Request, answer: bytes) -> bool:
    """Return whether its caller is not to be given an answer of that size, whatever there is room for."""
    return size_of(answer) > MOST_WORK_BYTES and is_work(request)


def too_large(worker: Link, request: Request, answer: bytes) -> tuple[bytes, int]:
    """An error in place of an answer that :func:`is_too_large`, and its outcome."""
    text = (
        f"{worker.identity} answered with {size_of(answer)} bytes, and {MOST_WORK_BYTES} are the most for the answer "
        "of a worker of a queue, which no setting changes: have it return less"
    )
    return _error(request, Outcome.PROTOCOL, text, str(MOST_WORK_BYTES))


def no_room(request: Request, answer: bytes, waiting: int, most: int) -> tuple[bytes, int]:
    """An error in place of an answer to a caller for whom ``waiting`` bytes wait already, and its outcome."""
    text = f"answer of {size_of(answer)} bytes dropped: {waiting} bytes wait for this caller already"
    text += f" (link.outbox_max_bytes = {most})"
    return _error(request, Outcome.LINK_LOST, text, "link.outbox_max_bytes")


def _error(request: Request, outcome: Outcome, text: str, limit: str) -> tuple[bytes, int]:
    details = {"topic": request.destination.name, "started": "yes", "limit": limit}
    return ErrorBody(outcome=outcome, text=text, details=details).message(key=request.key), int(outcome)
