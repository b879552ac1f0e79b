"""Workers that several consumers share: all together run no more tasks at once than one of them may."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from rpcmq.core.process.task import Task
from rpcmq.transport.shell import ClientShell, Workers

__all__ = ["SharedWorkers"]

_Run = Callable[[Task], None]


class SharedWorkers:
    """Runs at most ``most`` tasks at once. Those beyond wait, and are begun in the order in which they came.

    Each router delivers as many as may run, for it does not know how many the others deliver. So whichever of them has
    work can keep all workers busy, and where all have, each gets as many workers as it delivers.

    Args:
        shell: the loop.
    """

    def __init__(self, shell: ClientShell, most: int) -> None:
        self._shell = shell
        self._workers: Workers[tuple[_Run, Task]] = shell.workers(self._work, most)
        self._free = most
        self._waiting: deque[tuple[_Run, Task]] = deque()

    def share(self, run: _Run) -> Workers[Task]:
        """The workers for one of the consumers: they run its tasks with ``run``."""
        return _Share(self, run)

    def start(self, run: _Run, task: Task) -> None:
        """Call ``run(task)`` beside the loop, now or when a worker is free. From the loop."""
        if self._free > 0 and not self._waiting:
            self._workers.start((run, task))
            return
        self._waiting.append((run, task))
        if self._free > 0:
            # A worker has ended in this turn: those that came before are begun first.
            self._begin_waiting()

    def close(self) -> None:
        """See :meth:`rpcmq.transport.shell.Workers.close`."""
        self._workers.close()

    def _work(self, item: tuple[_Run, Task]) -> None:
        run, task = item
        self._free -= 1
        try:
            run(task)
        finally:
            self._free += 1
            if self._waiting:
                # In the loop, and by a worker that nobody knows.
                self._shell.call_soon(self._begin_waiting)

    def _begin_waiting(self) -> None:
        while self._waiting and self._free > 0:
            run, task = self._waiting.popleft()
            try:
                self._workers.start((run, task))
            except BaseException as error:
                # As where it is begun at once: there is no thread for it, for example.
                self._shell.print_exception(task, error)
                task.registration.on_not_begun(task, error)


class _Share(Workers[Task]):
    __slots__ = ("_pool", "_run")

    def __init__(self, pool: SharedWorkers, run: _Run) -> None:
        self._pool = pool
        self._run = run

    def start(self, item: Task) -> None:
        self._pool.start(self._run, item)

    def close(self) -> None:
        pass  # the others use them still
