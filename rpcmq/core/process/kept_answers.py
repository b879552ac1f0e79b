"""The calls that this process has ended, and their answers until the callers have them (rule ``keep``).

In a mesh the router of a caller may die with an answer that it was given. The caller's next router asks the consumers,
and only the one that has run the call can answer, once more. What is kept is bounded; beyond that a call that is asked
for has been had, and is lost.
"""

from __future__ import annotations

from collections import Counter
from itertools import islice

from rpcmq.wire import size_of

__all__ = ["KeptAnswers"]

#: Most answers that are kept, and most calls without one that are remembered.
_MAX_CALLS = 4096
#: Finding the oldest gets slower with each removal: remove this share at once.
_SHARE = 100


class KeptAnswers:
    """Answers by the keys of their calls, each with the stamp of the owner that it is for.

    Args:
        counters: counts answers that are lost.
        max_bytes: most bytes of all.

    Attributes:
        answers: those that are kept.
        had: calls without one: whether the caller has it; else it is lost.
        size_bytes: of all that are kept.
    """

    __slots__ = ("_counters", "_max_bytes", "answers", "had", "size_bytes")

    def __init__(self, counters: Counter[str], max_bytes: int) -> None:
        self._counters = counters
        self._max_bytes = max_bytes
        self.answers: dict[bytes, bytes] = {}
        self.had: dict[bytes, bool] = {}
        self.size_bytes = 0

    def __len__(self) -> int:
        return len(self.answers)

    def keep(self, key: bytes, message: bytes) -> None:
        """Keep ``message``, the answer to a call that had none; the oldest are lost if there is no room for all."""
        self.answers[key] = message
        self.size_bytes += len(message) if type(message) is bytes else size_of(message)
        if self.size_bytes > self._max_bytes or len(self.answers) > _MAX_CALLS:
            self._make_room()

    def _make_room(self) -> None:
        while self.size_bytes > self._max_bytes or len(self.answers) > _MAX_CALLS:
            for key in list(islice(self.answers, 1 + _MAX_CALLS // _SHARE)):
                if self.size_bytes <= self._max_bytes and len(self.answers) <= _MAX_CALLS:
                    return
                self._counters["answers dropped"] += 1
                self.forget(key, was_taken=False)

    def replace(self, key: bytes, message: bytes) -> None:
        """Keep ``message``, the same answer for a later owner."""
        self.answers[key] = message

    def forget(self, key: bytes, *, was_taken: bool) -> None:
        """Keep no answer to the call with ``key``, and remember that there was one."""
        message = self.answers.pop(key, None)
        if message is not None:
            self.size_bytes -= size_of(message)
        had = self.had
        had[key] = was_taken
        if len(had) > _MAX_CALLS:
            for oldest in list(islice(had, 1 + _MAX_CALLS // _SHARE)):
                del had[oldest]
