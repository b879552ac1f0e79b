from collections import deque
from collections.abc import Callable

class HandoffLock:
    def acquire(self, wait: bool = True, seconds: float = -1.0, /) -> bool: ...
    def release(self) -> None: ...

def wake_next_and_acquire(
    waiting: deque[Callable[[], object]], lock: HandoffLock, seconds: float = -1.0, /
) -> bool: ...
