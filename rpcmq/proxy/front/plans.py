"""Bodies cut into what a client is to get of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise

from rpcmq.proxy.caching import BodyPlan
from rpcmq.proxy.http.errors import HttpError

__all__ = ["cut", "cut_passing"]

#: Bytes that are held for a plan that goes back in a body that passes.
_MOST_HELD = 64 * 1024 * 1024


def cut(plan: BodyPlan, body: bytes) -> bytes:
    """Return what ``plan`` takes of ``body``."""
    if len(plan) == 1 and not isinstance(plan[0], bytes) and plan[0].start == 0 and plan[0].stop == len(body):
        return body
    return b"".join(piece if isinstance(piece, bytes) else body[piece.start : piece.stop] for piece in plan)


def cut_passing(plan: BodyPlan, chunks: Iterable[bytes]) -> Iterator[list[bytes]]:
    """Yield, for each chunk of a body that passes, what ``plan`` takes of it; in the end what is left of the plan.

    Every chunk is taken, so that whoever iterates can store all of them.

    Raises:
        HttpError: the plan goes back in a body that is too long to be held.
    """
    spans = [piece for piece in plan if not isinstance(piece, bytes)]
    if any(later.start < earlier.stop for earlier, later in pairwise(spans)):
        yield from _cut_held(plan, chunks)
        return
    pieces = list(plan)
    at = 0
    for chunk in chunks:
        end = at + len(chunk)
        taken: list[bytes] = []
        while pieces:
            piece = pieces[0]
            if isinstance(piece, bytes):
                taken.append(piece)
                pieces.pop(0)
                continue
            if piece.start >= end:
                break
            taken.append(chunk[max(piece.start - at, 0) : piece.stop - at])
            if piece.stop > end:
                break
            pieces.pop(0)
        at = end
        yield taken
    yield [piece for piece in pieces if isinstance(piece, bytes)]


def _cut_held(plan: BodyPlan, chunks: Iterable[bytes]) -> Iterator[list[bytes]]:
    held: list[bytes] = []
    size = 0
    for chunk in chunks:
        size += len(chunk)
        if size > _MOST_HELD:
            raise HttpError("ranges of a body out of their order, too far apart")
        held.append(chunk)
        yield []
    yield [cut(plan, b"".join(held))]
