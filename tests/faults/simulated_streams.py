"""Streams of the simulation: a handler that sends items as they are granted, and a caller that reads them."""

from __future__ import annotations

from collections.abc import Callable

from rpcmq.core.process.call import Call, taken_of
from rpcmq.core.process.calls import Calls
from rpcmq.core.process.task import Task
from rpcmq.core.process.task_table import TaskTable
from rpcmq.wire import Kind, payload_of

__all__ = ["read_items", "stream_items"]

#: A producer looks so often whether its task was lost, of which nobody tells it when the router has gone (seconds).
_LOOK_AGAIN = 1.0
#: A window of items has more than may be sent unasked.
_ITEM_BYTES = 9_000


def stream_items(
    task: Task,
    id: str,
    items: int,
    seconds: float,
    tasks: TaskTable,
    later: Callable[[float, Callable[[], None]], None],
    finish: Callable[[], None],
) -> None:
    """Send ``items`` of the stream ``id``, as they are granted and ``seconds`` apart, and then ``finish``.

    A task that nobody wants any more finishes at once.
    """
    sent, is_pausing = 0, False

    def go_on() -> None:
        nonlocal sent, is_pausing
        while not is_pausing and not task.has_ended:
            if not task.is_wanted or sent == items:
                finish()
            elif not tasks.answered_streams.credit_of(task).may_send:
                later(_LOOK_AGAIN, go_on)
                return
            else:
                tasks.send_item(task, Kind.ITEM, 1, f"{id} {sent}".ljust(_ITEM_BYTES).encode())
                sent += 1
                if seconds:
                    is_pausing = True
                    later(seconds, wake)

    def wake() -> None:
        nonlocal is_pausing
        is_pausing = False
        go_on()

    task.on_change = go_on
    go_on()


def read_items(now: float, call: Call, calls: Calls) -> list[tuple[str, int]]:
    """Take the items that ``call`` has, and grant as many more.

    Returns:
        The stream that each says it is of, and its number there.
    """
    read = []
    for message in call.items:
        id, number = bytes(payload_of(message)).decode().split()
        read.append((id, int(number)))
        calls.read_streams.take(call, message)
    call.items.clear()
    if read and not call.done:
        calls.grant(now, call, *taken_of(call))
    return read
