"""The memory that a plugged-in node holds, measured in small steps.

All objects that can be reached from the node, and from the names of its class and of its module, are counted once, but
for what is not its own: other modules, classes, functions, and the objects of the router that it was given. What it
holds may change meanwhile; the sum is about right then.
"""

from __future__ import annotations

import gc
import sys
from types import BuiltinFunctionType, CodeType, FrameType, FunctionType, ModuleType

__all__ = ["Measure", "MemoryBound"]

#: Objects that are counted in one step, about 0.1 ms.
_IN_ONE_STEP = 300
#: Seconds between two steps of measuring, and after a measurement until the next one.
_PAUSE, _MEASURE_SECONDS = 0.002, 10.0
#: It is measured again when so many bytes were handed to the node at least.
_LEAST_BYTES = 256 << 10
_SHARED = (BuiltinFunctionType, CodeType, FrameType, FunctionType, ModuleType, type)
#: Rooms of rpcmq whose objects are the router's.
_ROUTERS = (
    "rpcmq.config.", "rpcmq.core.", "rpcmq.nodes.context", "rpcmq.nodes.guards", "rpcmq.nodes.open_asks",
    "rpcmq.nodes.other_routers", "rpcmq.nodes.peer", "rpcmq.nodes.plug_in", "rpcmq.nodes.watches", "rpcmq.server.",
    "rpcmq.transport.", "rpcmq.wire.",
)  # fmt: skip


class Measure:
    """Counts what can be reached from ``node``, at most ``max_bytes``: the rest makes no difference.

    Attributes:
        size_bytes: counted so far.
        is_done: whether that is all, or beyond ``max_bytes``.
    """

    __slots__ = ("_left", "_max_bytes", "_seen", "is_done", "size_bytes")

    def __init__(self, node: object, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        own = type(node)
        module = vars(sys.modules[own.__module__])
        # Not __builtins__ and the like, which are everybody's: an interpreter keeps its last value there.
        names = (*vars(own).values(), *(each for name, each in module.items() if not name.startswith("__")))
        self._left: list[object] = [node, *(each for each in names if not _is_shared(each))]
        self._seen = set(map(id, self._left))
        self.size_bytes = 0
        self.is_done = False

    def step(self) -> None:
        """Count a few objects more."""
        left, seen = self._left, self._seen
        for _ in range(_IN_ONE_STEP):
            if not left or self.size_bytes > self._max_bytes:
                self.is_done = True
                # The objects themselves are let go of, and so are their ids, which mean nothing later.
                self._left, self._seen = [], set()
                return
            each = left.pop()
            self.size_bytes += sys.getsizeof(each, 64)
            for other in gc.get_referents(each):
                if id(other) not in seen and not _is_shared(other):
                    seen.add(id(other))
                    left.append(other)


class MemoryBound:
    """The bound of what a node holds: measured every 10 s, and when much was handed to it.

    Attributes:
        size_bytes: as it was measured last.
        handed_bytes: handed to the node since.
        due: the time of the next step (monotonic seconds).
    """

    __slots__ = ("_max_bytes", "_measure", "due", "handed_bytes", "size_bytes")

    def __init__(self, max_bytes: int, now: float) -> None:
        self._max_bytes = max_bytes
        self.due = now + _MEASURE_SECONDS
        self.clear()

    def clear(self) -> None:
        """The node is gone."""
        self._measure: Measure | None = None
        self.size_bytes = self.handed_bytes = 0

    def look(self, now: float) -> None:
        """Measure soon if the node may hold more than it may."""
        if self.handed_bytes > max(_LEAST_BYTES, self._max_bytes - self.size_bytes):
            self.due = now

    def step(self, now: float, node: object) -> None:
        """Take a step of measuring ``node``.

        Raises:
            MemoryError: it holds more than it may.
        """
        if self._measure is None:
            self._measure = Measure(node, self._max_bytes)
            self.handed_bytes = 0
        measure = self._measure
        measure.step()
        self.due = now + _PAUSE
        if measure.is_done:
            self._measure, self.size_bytes = None, measure.size_bytes
            self.due = now + _MEASURE_SECONDS
            if measure.size_bytes > self._max_bytes:
                raise MemoryError(f"it holds more than max_bytes = {self._max_bytes}")


def _is_shared(each: object) -> bool:
    return isinstance(each, _SHARED) or (type(each).__module__ or "").startswith(_ROUTERS)
