"""The calls that this process has ended, and their answers until the callers have them (rule ``keep``).

In a mesh the router of a caller may die with an answer that it was given. The caller's next router asks the consumers,
and only the one that has run the call can answer, once more. What is kept is bounded; beyond that a call that is asked
for has been had, and is lost.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from typing import NamedTuple

from rpcmq.wire import size_of

__all__ = ["KeptAnswer", "KeptAnswers"]

#: Most answers that are kept, and most calls without one that are remembered.
_MAX_CALLS = 4096


class KeptAnswer(NamedTuple):
    """The answer to a call, and the stamp of the owner that it was for."""

    stamp: bytes
    message: bytes


class KeptAnswers:
    """Answers, by the keys of their calls.

    Args:
        counters: counts answers that are lost.
        max_bytes: most bytes of all.

    Attributes:
        size_bytes: of all.
    """

    __slots__ = ("_answers", "_counters", "_had", "_max_bytes", "size_bytes")

    def __init__(self, counters: Counter[str], max_bytes: int) -> None:
        self._counters = counters
        self._max_bytes = max_bytes
        self._answers: OrderedDict[bytes, KeptAnswer] = OrderedDict()
        #: Calls whose answer was taken (true), or is lost.
        self._had: OrderedDict[bytes, bool] = OrderedDict()
        self.size_bytes = 0

    def __len__(self) -> int:
        return len(self._answers)

    def get(self, key: bytes) -> KeptAnswer | None:
        """Return the answer to the call with ``key``, or None."""
        return self._answers.get(key)

    def was_taken(self, key: bytes) -> bool | None:
        """Whether the caller has the answer to the call with ``key``; False: it is lost; None: there was no such call.

        To be asked where :meth:`get` has none.
        """
        return self._had.get(key)

    def keep(self, key: bytes, answer: KeptAnswer) -> None:
        """Keep ``answer``; the oldest are lost if there is no room for all."""
        self._drop(key)
        self._answers[key] = answer
        self.size_bytes += size_of(answer.message)
        while self.size_bytes > self._max_bytes or len(self._answers) > _MAX_CALLS:
            oldest = next(iter(self._answers))
            self._counters["answers dropped"] += 1
            self.forget(oldest, was_taken=False)

    def retag(self, key: bytes, stamp: bytes) -> None:
        """Note that the owner with ``stamp`` has asked for the answer to the call with ``key``."""
        self._answers[key] = self._answers[key]._replace(stamp=stamp)

    def forget(self, key: bytes, *, was_taken: bool) -> None:
        """Keep no answer to the call with ``key``, and remember that there was one."""
        self._drop(key)
        self._had.pop(key, None)
        self._had[key] = was_taken
        if len(self._had) > _MAX_CALLS:
            self._had.popitem(last=False)

    def _drop(self, key: bytes) -> None:
        answer = self._answers.pop(key, None)
        if answer is not None:
            self.size_bytes -= size_of(answer.message)
