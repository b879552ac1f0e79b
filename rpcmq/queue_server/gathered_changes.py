"""Changes that are sent to a store together: those that came up in one turn of the loop."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rpcmq.store.contract import Change, Verdict
from rpcmq.store.frames import decode_verdicts, encode_changes

__all__ = ["GatheredChanges"]

#: Requests and bytes that go together, at the most, if they are more than one: what the store's process reads at once.
_MOST, _MOST_BYTES = 256, 64 << 10

Then = Callable[[list[Verdict]], object]


class GatheredChanges:
    """Requests that become durable, and are answered, together."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._size = 0
        #: The number of changes of each, and who waits for the verdicts.
        self._waiting: list[tuple[int, Then]] = []

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, changes: Sequence[Change], then: Then) -> None:
        """One request more."""
        part = encode_changes(changes)
        self._parts.append(part)
        self._size += len(part)
        self._waiting.append((len(changes), then))

    @property
    def is_one(self) -> bool:
        """Whether it is one change."""
        return len(self._waiting) == 1 and self._waiting[0][0] == 1

    @property
    def is_full(self) -> bool:
        """True once it has as much as goes together: it is to be sent, and the next request goes with others."""
        return len(self._waiting) >= _MOST or self._size >= _MOST_BYTES

    @property
    def content(self) -> bytes:
        """The changes as bytes."""
        return b"".join(self._parts)

    def answer(self, content: bytes, failed: Callable[[Exception], object]) -> None:
        """Give each its verdicts; ``failed`` is called with what one of them raises."""
        verdicts = decode_verdicts(content)
        at = 0
        for count, then in self._waiting:
            try:
                then(verdicts[at : at + count])
            except Exception as error:
                # The answers of others must come.
                failed(error)
            at += count
