"""The failure log of a service: one line for each method that raises, rate-limited by kind.

Arguments are never logged. The text of an exception is: what it quotes is the application's to decide.
"""

from __future__ import annotations

import logging
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple

from rpcmq.core.common.log_limit import LineLimit
from rpcmq.core.process.call import Call
from rpcmq.core.process.direct_links import DirectLink
from rpcmq.errors import PayloadError, ProtocolError
from rpcmq.payload.bounded_text import exception_text, printable_exception
from rpcmq.payload.seal import NotTrusted
from rpcmq.printable import printable
from rpcmq.wire import MAX_ERROR_BYTES, Address, Kind, error_name
from rpcmq.wire.query_bodies import CallerAnswer, CallerQuery

if TYPE_CHECKING:
    from rpcmq.client.process import Process
    from rpcmq.core.process.task import Task

__all__ = ["FailedItem", "FailureLog", "ToldFailure"]

log = logging.getLogger("rpcmq.service")

#: Exceptions that end a program if nobody catches them.
_ENDS_PROGRAMS = (SystemExit.__name__, KeyboardInterrupt.__name__)
#: Characters of an exception's text.
_TEXT = 300
#: Longest wait for the router to name the caller (seconds).
_PATIENCE = 2.0


class FailedItem(NamedTuple):
    """The item of a queue that an attempt was about; ``attempt`` counts from 1.

    Its failure is its end if ``is_dead``.
    """

    queue: str
    id: str
    attempt: int
    is_dead: bool


class ToldFailure(Exception):
    """The failure ``cause`` as its caller is told it: as ``args`` that both understand. Logs have it by its own name.

    Args:
        told: plain values.
        cause: was raised.
        is_expected: it is an answer, rather than a failure: it is not logged here.
        item: of a queue that was worked at.
    """

    def __init__(self, told: tuple[Any, ...], cause: BaseException, is_expected: bool, item: FailedItem) -> None:
        super().__init__(*told)
        self._cause = cause
        self.is_expected = is_expected
        self.item = item

    def __str__(self) -> str:
        return "told by its arguments"

    @property
    def cause(self) -> BaseException:
        """The exception that was raised."""
        return self._cause

    @property
    def name(self) -> bytes:
        """Its class as a FAULT names it, which says so where an item is not tried again."""
        name = error_name(self._cause)
        return b"dead: " + name[: MAX_ERROR_BYTES - 6] if name and self.item.is_dead else name


class _Line(NamedTuple):
    #: ``call``, ``cast`` or ``item``.
    kind: str
    fields: dict[str, Any]
    #: Log arguments that carry the traceback.
    raised: BaseException | None


class FailureLog:
    """Logs what the methods of ``address`` raise.

    A call's failure is a warning; its caller has the traceback, so the log has it at level DEBUG only. So has the queue
    that of an item. A cast's is an error with its traceback: nobody else sees it.
    """

    def __init__(self, address: Address) -> None:
        self._address = address
        self._limit: LineLimit[tuple[str, type[BaseException]]] = LineLimit()

    def report(self, process: Process, task: Task, error: BaseException) -> None:
        """Log that ``task`` raised ``error``. Call before answering, while the router still knows its caller."""
        item: FailedItem | None = None
        if type(error) is ToldFailure:
            if error.is_expected:
                return
            item, error = error.item, error.cause
        # Untrusted payloads are counted and logged where they are refused, with a rate limit.
        if isinstance(error, NotTrusted):
            return
        suppressed = self._limit.passes(monotonic(), (task.method, type(error)))
        if suppressed is None:
            return
        fields: dict[str, Any] = {
            "topic": str(self._address),
            "method": _printable(task.method),
            "error": type(error).__qualname__,
            "text": _printable(" ".join(exception_text(error, _TEXT).split())),
            "suppressed": suppressed,
        }
        trace = not task.is_call or log.isEnabledFor(logging.DEBUG)
        kind = "item" if item is not None else "call" if task.is_call else "cast"
        line = _Line(kind, fields, printable_exception(error) if trace else None)
        if item is not None:
            fields |= {"queue": _printable(item.queue), "item": _printable(item.id), "attempt": item.attempt}
            fields["is_dead"] = item.is_dead
        elif isinstance(error, PayloadError) and task.is_call:
            fields["text"] = f"the result cannot be encoded: {fields['text']}"
        if isinstance(task.sender, DirectLink):
            _write(task.sender.identity, line)
        elif process.connection.connected:
            call = Call("router", 0, _PATIENCE)
            process.calls.start(monotonic(), call, Kind.QUERY, CallerQuery(key=task.key).payload())
            process.connection.schedule()
            process.shell.spawn(_write_when_known, process, call, line)
        else:
            _write("", line)


def _printable(text: str) -> str:
    """Return ``text``, which a caller may control, safe for logs and terminals."""
    return printable(text, "?")


def _write_when_known(process: Process, call: Call, line: _Line) -> None:
    process.wait(call)
    try:
        identity = "" if call.answer is None else CallerAnswer.of(call.answer).identity
    except ProtocolError:
        identity = ""  # the line says what failed; that nobody knows who called must not suppress it
    _write(_printable(identity), line)


def _write(caller: str, line: _Line) -> None:
    fields, kind = line.fields, line.kind
    if kind == "item":
        about = f"item {fields['item']} of queue {fields['queue']}, attempt {fields['attempt']}, {fields['method']}"
    else:
        about = f"{kind} {fields['method']} to {fields['topic']}"
    text = f"{about} failed: {fields['error']}: {fields['text']}"
    text += f" (from {caller})" if caller else ""
    if fields.get("is_dead"):
        text += "; it is dead now, and not tried again"
    if fields["error"] in _ENDS_PROGRAMS:
        text += "; that ends this request and not the service"
    if fields["suppressed"]:
        text += f"; {fields['suppressed']} more like it were not logged"
    level = logging.ERROR if kind == "cast" else logging.WARNING
    event = {"event": f"{kind} failed", "fields": {**fields, "caller": caller}}
    log.log(level, "%s", text, exc_info=line.raised, extra=event)
