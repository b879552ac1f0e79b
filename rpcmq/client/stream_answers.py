"""Answers to calls of streams: items, each sent when the caller takes it; the producer waits (back-pressure)."""

from __future__ import annotations

from typing import Any

from rpcmq.client.router_links import ServingLink
from rpcmq.client.task_answers import TaskAnswers, accepted_by
from rpcmq.core.process.task import Task
from rpcmq.payload import Format
from rpcmq.wire import Flag, Kind

__all__ = ["StreamAnswers", "streams"]

#: Longest wait before a producer looks whether its task was lost, which is not told when the router has restarted.
_LOOK_AGAIN = 1.0


class StreamAnswers:
    """Sends the items of streams, as many as their callers have asked for. To be used in the client's home.

    Args:
        link: the connection to answer over.
        answers: sends the messages.
    """

    def __init__(self, link: ServingLink, answers: TaskAnswers) -> None:
        self._link = link
        self._answers = answers

    def send_item(self, task: Task, item: Any) -> bool:
        """Send one item, after waiting until the caller takes it; return False if the call has ended.

        Raises:
            PayloadError: the item cannot be encoded.
        """
        if not self._link.process.tasks.answered_streams.credit_of(task).may_send and not self._wait_for_grant(task):
            return False
        if not task.is_wanted:
            return False
        form, payload = self._link.process.encode(item, accepted_by(task))
        self._answers.send_encoded(task, Kind.ITEM, form, payload)
        return True

    def _wait_for_grant(self, task: Task) -> bool:
        changed = self._answers.changed(task)
        credit = self._link.process.tasks.answered_streams.credit_of(task)
        while not credit.may_send and task.is_wanted:
            changed.clear()
            changed.wait(_LOOK_AGAIN)
        return credit.may_send

    def end(self, task: Task) -> None:
        """End the stream."""
        self._answers.answer(self._link.process, task, Kind.END, Format.JSON, b"")


def streams(task: Task) -> bool:
    """Return whether the caller takes items one by one."""
    return task.is_call and bool(task.flags & Flag.STREAM)
