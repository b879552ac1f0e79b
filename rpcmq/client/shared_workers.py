"""Workers that several consumers share: all together run no more tasks at once than one of them may."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from rpcmq.core.process.task import Task
from rpcmq.transport.shell import ClientShell, Workers

__all__ = ["SharedWorkers"]

_Run = Callable[[Task], None]


class SharedWorkers:
    """Runs at most ``most`` tasks at once. Of those beyond, each consumer's are begun in the order in which they came.

    Each router delivers as many as may run, for it does not know how many the others deliver. So whichever of them has
    work can keep all workers busy. Where tasks of several wait, the consumers take turns: a router that delivers more
    than it may, or what takes long, does not keep the others from theirs.

    Args:
        shell: the loop.
    """

    def __init__(self, shell: ClientShell, most: int) -> None:
        self._shell = shell
        self._workers: Workers[_Item] = shell.workers(self._work, most)
        self._free = most
        #: The consumers whose tasks wait; the first one is next.
        self._turns: deque[_Share] = deque()

    def share(self, run: _Run) -> Workers[Task]:
        """The workers for one of the consumers: they run its tasks with ``run``."""
        return _Share(self, run)

    def start(self, share: _Share, task: Task) -> None:
        """Run ``task`` beside the loop, now or when a worker is free and it is its turn. From the loop."""
        if self._free > 0 and not self._turns:
            self._begin(share, task)
            return
        share.waiting.append(task)
        if len(share.waiting) == 1:
            self._turns.append(share)
        if self._free > 0:
            # A worker has ended in this turn: those that came before are begun first.
            self._begin_waiting()

    def close(self) -> None:
        """See :meth:`rpcmq.transport.shell.Workers.close`."""
        self._workers.close()

    def _begin(self, share: _Share, task: Task) -> None:
        item = _Item(share.run, task)
        self._free -= 1
        try:
            self._workers.start(item)
        except BaseException:
            if not item.is_begun:
                self._free += 1
            raise

    def _work(self, item: _Item) -> None:
        item.is_begun = True
        try:
            item.run(item.task)
        finally:
            self._free += 1
            if self._turns:
                # In the loop, and by a worker that nobody knows.
                self._shell.call_soon(self._begin_waiting)

    def _begin_waiting(self) -> None:
        while self._turns and self._free > 0:
            share = self._turns.popleft()
            task = share.waiting.popleft()
            if share.waiting:
                self._turns.append(share)
            try:
                self._begin(share, task)
            except BaseException as error:
                # As where it is begun at once: there is no thread for it, for example.
                self._shell.print_exception(task, error)
                task.registration.on_not_begun(task, error)


class _Item:
    __slots__ = ("is_begun", "run", "task")

    def __init__(self, run: _Run, task: Task) -> None:
        self.run = run
        self.task = task
        self.is_begun = False


class _Share(Workers[Task]):
    __slots__ = ("_pool", "run", "waiting")

    def __init__(self, pool: SharedWorkers, run: _Run) -> None:
        self._pool = pool
        self.run = run
        self.waiting: deque[Task] = deque()

    def start(self, item: Task) -> None:
        self._pool.start(self, item)

    def close(self) -> None:
        pass  # the others use them still
