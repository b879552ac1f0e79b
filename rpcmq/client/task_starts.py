"""The handlers of delivered tasks are begun one after the other, in the loop, each until it first waits."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from time import monotonic

from rpcmq.core.process.task_table import TaskTable
from rpcmq.core.process.uplink import Uplink
from rpcmq.transport.connection import Connection
from rpcmq.transport.shell import ClientShell

__all__ = ["FLUSH_AFTER", "FLUSH_MESSAGES", "TaskStarts"]

#: While those who are woken run in one wake-up, what they send leaves when it is so many messages, or so old
#: (seconds), so that the other side can begin. Measured at W=64, with calls that take 25 us of CPU on
#: either end and with some that take 55: 24 messages are best for both; a time alone is right for one
#: of them only, and 0.5 ms makes batches too small for the slower.
FLUSH_MESSAGES = 24
FLUSH_AFTER = 0.0015
#: Time after which handlers that are begun one after the other have kept the loop from what the router has sent since
#: (seconds): it is received before the next one begins, for that may be cancelled.
_LOOK_AFTER = 0.005


class TaskStarts:
    """Begins the tasks of a process.

    Args:
        tasks: they come from here.
        connection: the one that they came by.
        switch: calls somebody who waits, from the loop; an exception does not affect later ones.
    """

    __slots__ = ("_connection", "_shell", "_switch", "_tasks", "_uplink")

    def __init__(
        self, tasks: TaskTable, uplink: Uplink, connection: Connection, shell: ClientShell,
        switch: Callable[[Callable[[], object]], None],
    ) -> None:  # fmt: skip
        self._tasks = tasks
        self._uplink = uplink
        self._connection = connection
        self._shell = shell
        self._switch = switch

    def start(self) -> bool:
        """Start the handlers of delivered tasks, and notify running ones of changes.

        Returns:
            Whether these have taken so long that more was received meanwhile.
        """
        changes, self._tasks.changed = self._tasks.changed, []
        for changed in changes:
            if changed.on_change is not None:
                self._switch(changed.on_change)
        tasks, self._tasks.delivered = self._tasks.delivered, []
        has_received = False
        now = monotonic()
        flush_at, look_at = now + FLUSH_AFTER, now + _LOOK_AFTER
        outbox, connection = self._uplink.outbox, self._connection
        for task in tasks:
            try:
                task.registration.on_task(task)
            except BaseException as error:
                self._shell.print_exception(task, error)
                self._switch(partial(task.registration.on_not_begun, task, error))
            if len(outbox) >= FLUSH_MESSAGES or monotonic() > flush_at:
                connection.flush()
                now = monotonic()
                flush_at = now + FLUSH_AFTER
                if now > look_at and task is not tasks[-1]:
                    connection.receive()
                    has_received = True
                    look_at = monotonic() + _LOOK_AFTER
        return has_received
