"""The memory that a plugged-in node holds, measured in small steps.

All objects that can be reached from the node, and from the names of its class and of its module, are counted once, but
for what is not its own: other modules, classes, functions, and the objects of the router that it was given. What it
holds may change meanwhile; the sum is about right then.
"""

from __future__ import annotations

import gc
import sys
from types import BuiltinFunctionType, CodeType, FrameType, FunctionType, ModuleType

__all__ = ["Measure"]

#: Objects that are counted in one step, about 0.1 ms.
_IN_ONE_STEP = 300
_SHARED = (BuiltinFunctionType, CodeType, FrameType, FunctionType, ModuleType, type)
#: Rooms of rpcmq whose objects are the router's.
_ROUTERS = (
    "rpcmq.config.", "rpcmq.core.", "rpcmq.nodes.context", "rpcmq.nodes.open_asks", "rpcmq.nodes.peer",
    "rpcmq.nodes.plug_in", "rpcmq.nodes.watches", "rpcmq.server.", "rpcmq.transport.", "rpcmq.wire.",
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


def _is_shared(each: object) -> bool:
    return isinstance(each, _SHARED) or (type(each).__module__ or "").startswith(_ROUTERS)
