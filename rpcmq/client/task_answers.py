"""Answers to the calls that this process runs: results, progress, exceptions; items: ``stream_answers``."""

from __future__ import annotations

from time import monotonic
from typing import Any

from rpcmq.client.failures import FailureLog, ToldFailure
from rpcmq.client.interrupts import is_interrupt
from rpcmq.client.process import Process
from rpcmq.client.router_links import ServingLink
from rpcmq.core.process.task import Task
from rpcmq.errors import LinkLost, Outcome
from rpcmq.payload import Format
from rpcmq.transport.shell import WaitableEvent
from rpcmq.wire import Address, Flag, Kind, error_name

__all__ = ["TaskAnswers", "accepted_by", "is_done"]


_JSON = Format.JSON.bit
_PICKLE = Format.PICKLE.bit
_DILL = Format.DILL.bit
# Looking up a member of an enum costs a call as much as a few of its steps.
_REPLY = int(Kind.REPLY)
_ACCEPTS_DILL = int(Flag.ACCEPTS_DILL)


class TaskAnswers:
    """Sends the answers to the calls of one address. To be used in the client's home.

    Args:
        link: the connection to answer over.
        address: what is consumed, for logs.
    """

    def __init__(self, link: ServingLink, address: Address) -> None:
        self._link = link
        self._failures = FailureLog(address)
        #: Tasks that somebody waits for, each with what is set when it is cancelled, may send more items, or is done.
        self.waited_for: dict[Task, WaitableEvent] = {}

    def reply(self, task: Task, value: Any) -> None:
        """End a call with its result.

        Raises:
            PayloadError: ``value`` cannot be encoded.
        """
        process = self._link.process
        form, payload = process.encode(value, accepted_by(task))
        self.answer(process, task, _REPLY, form, payload)

    def fail(self, task: Task, error: BaseException) -> None:
        """End ``task`` with ``error``: the caller of a call is told, a cast's is not. ``error`` may be hostile."""
        try:
            self._fail(task, error)
        except BaseException as worse:
            text = f"{type(error).__name__}, which cannot be described: that raised {type(worse).__name__}"
            self._fail(task, RuntimeError(text))
            if is_interrupt(worse):
                raise

    def _fail(self, task: Task, error: BaseException) -> None:
        process = self._link.process
        self._failures.report(process, task, error)
        if task.has_ended:
            return
        if not task.is_call:
            process.tasks.settle(monotonic(), task, Outcome.REMOTE_ERROR)
            return
        form, payload = process.codec.encode_exception(error, process.identity)
        name = error.name if type(error) is ToldFailure else error_name(error)
        self.answer(process, task, Kind.FAULT, form, payload, name)

    def decline(self, task: Task) -> None:
        """End a call that was not begun, because its caller does not wait any more."""
        task.seal = None
        error = LinkLost("its caller had gone before it was begun", {"started": "no"})
        process = self._link.process
        form, payload = process.codec.encode_exception(error, process.identity)
        self.answer(process, task, Kind.FAULT, form, payload, is_begun=False)

    def changed(self, task: Task) -> WaitableEvent:
        """Return what is set when ``task`` is cancelled, may send more items, or is done."""
        changed = self.waited_for.get(task)
        if changed is None:
            changed = self.waited_for[task] = self._link.process.shell.event()
            task.on_change = changed.set
        return changed

    def wait(self, task: Task) -> None:
        """Wait until ``task`` is done, or its caller has given up."""
        changed = self.changed(task)
        while task.is_wanted:
            changed.clear()
            changed.wait(1.0)  # a task is lost without notice when the router has restarted

    def progress(self, task: Task, value: Any) -> None:
        """Tell the caller how far ``task`` is.

        Raises:
            PayloadError: ``value`` cannot be encoded.
        """
        if not task.is_call:
            return
        form, payload = self._link.process.encode(value, accepted_by(task))
        self.send_encoded(task, Kind.ALIVE, form, payload)

    def answer(
        self, process: Process, task: Task, kind: int, form: int, payload: bytes, error: bytes = b"",
        is_begun: bool = True,
    ) -> None:  # fmt: skip
        """Send the last message of a call."""
        flags = 0
        if task.seal is not None:
            flags, payload = process.payloads.sign_answer(task, kind, form, payload)
        process.tasks.answer(monotonic(), task, kind, form, payload, error, flags, is_begun)
        process.schedule()
        if self.waited_for and task in self.waited_for:
            self.waited_for[task].set()

    def send_encoded(self, task: Task, kind: int, form: int, payload: bytes) -> None:
        """Send a message after which others of the call follow."""
        process = self._link.process
        flags = 0
        if task.seal is not None:
            flags, payload = process.payloads.sign_answer(task, kind, form, payload)
        process.tasks.send_item(task, kind, form, payload, flags)
        process.schedule()


def accepted_by(task: Task) -> int:
    """Return the mask of formats that the caller of ``task`` decodes: its own, JSON, and dill if it says so."""
    accepted = _JSON | 1 << task.format
    # Who loads dill loads pickle.
    return accepted | _DILL | _PICKLE if task.flags & _ACCEPTS_DILL else accepted


def is_done(task: Task) -> bool:
    """Return whether ``task`` has ended: answered, settled, or lost with the router that it came from."""
    return task.registration.running.get(task.key) is not task
