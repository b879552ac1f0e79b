"""Bodies cut into what a client is to get of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rpcmq.proxy.caching import BodyPlan

__all__ = ["cut", "cut_passing"]


def cut(plan: BodyPlan, body: bytes) -> bytes:
    """Return what ``plan`` takes of ``body``."""
    if len(plan) == 1 and not isinstance(plan[0], bytes) and plan[0].start == 0 and plan[0].stop == len(body):
        return body
    return b"".join(piece if isinstance(piece, bytes) else body[piece.start : piece.stop] for piece in plan)


def cut_passing(plan: BodyPlan, chunks: Iterable[bytes]) -> Iterator[list[bytes]]:
    """Yield, for each chunk of a body that passes, what ``plan`` takes of it; in the end what is left of the plan.

    Every chunk is taken, so that whoever iterates can store all of them.

    Args:
        plan: one that does not go back in the body (:func:`rpcmq.proxy.caching.decisions.goes_back`).
    """
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
