"""Log records of the router: one line each on standard error, as text or as JSON."""

from __future__ import annotations

import errno
import json
import logging
import sys
from collections import Counter
from datetime import UTC, datetime
from operator import itemgetter
from time import monotonic
from types import TracebackType
from typing import Any, TextIO

from gevent import get_hub

from rpcmq.core.common.token_bucket import TokenBucket
from rpcmq.core.router.actions import LogEvent
from rpcmq.printable import printable

__all__ = ["EventLog", "JsonFormatter", "TextFormatter", "log_event", "log_hub_errors", "start_logging"]

#: Most lines about one identity's protocol errors between two sweeps.
OFFENCES = 5
#: Most lines of one event in a burst after a pause, and a second afterwards.
BURST, PER_SECOND = 1000, 10.0
#: Most identities whose protocol errors are counted individually between two sweeps; others share one count.
_IDENTITIES = 1000
_OTHERS = "(others)"
#: Most identities in a sweep's report: those with the most further protocol errors.
_SUMMARIES = 10

_MINUTE = 60.0
_WARNINGS = (
    "offence", "denied", "dropped", "key file", "latency policy refused", "link unresponsive", "mesh problem",
    "not passed on",
)  # fmt: skip
_LEVELS = dict.fromkeys(_WARNINGS, logging.WARNING)
_ERRORS = ("internal error", "node file damaged", "node file not written", "node file refused", "node out")
_LEVELS |= dict.fromkeys(_ERRORS, logging.ERROR)
#: Events that a peer can cause without bound.
_LIMITED = ("offence", "denied", "internal error")


def log_event(log: logging.Logger, level: int, event: str, text: str, /, **fields: Any) -> None:
    """Write a record: what kind of event, the sentence, and the same as ``fields``, of any names, for machines."""
    log.log(level, "%s", text, extra={"event": event, "fields": fields})


def _time_of(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class TextFormatter(logging.Formatter):
    """``<time> <level> <sentence>``; what would break the line is escaped."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as one line."""
        text = record.getMessage()
        if record.exc_info:
            text += " | " + self.formatException(record.exc_info)
        text = printable(text.replace("\n", " | "))
        return f"{_time_of(record)} {record.levelname:<7} {text}"


class JsonFormatter(logging.Formatter):
    """An object with ``time``, ``level``, ``logger``, ``event``, ``message`` and the event's own fields."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as one line."""
        entry = {
            "time": _time_of(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": getattr(record, "event", record.name),
            "message": record.getMessage(),
        }
        # A field never takes the place of what each record has.
        entry |= {name: value for name, value in getattr(record, "fields", {}).items() if name not in entry}
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return json.dumps(entry, default=str)


def start_logging(log_format: str, level: str, stream: TextIO | None = None) -> None:
    """Send the records of all loggers to ``stream`` (default: standard error).

    Args:
        log_format: ``"text"`` or ``"json"``.
        level: the least severe that is written: ``"debug"``, ``"info"``, ``"warning"``, ``"error"``.
    """
    # A full disk or a closed pipe behind standard error must not become more output there.
    logging.raiseExceptions = False
    handler = logging.StreamHandler(sys.stderr if stream is None else stream)
    handler.setFormatter(JsonFormatter() if log_format == "json" else TextFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())


class EventLog:
    """Logs the engine's notes, and keeps a peer that offends without end from filling the log.

    Of the offences of one identity the first few are written, and of each event a burst and then a few a second,
    whoever they are about; :meth:`sweep` says how many more there were and starts anew.

    Args:
        log: where to.
        offences: lines for each identity between two sweeps.
    """

    def __init__(self, log: logging.Logger, offences: int = OFFENCES) -> None:
        self._log = log
        self._most = offences
        self._seen: Counter[str] = Counter()
        self._buckets: dict[str, TokenBucket] = {}
        #: Lines of each event that were not written because there were too many.
        self._left_out: Counter[str] = Counter()

    def __call__(self, note: LogEvent) -> None:
        """Log ``note``, or only count it."""
        if note.event in _LIMITED:
            known = note.identity in self._seen or len(self._seen) < _IDENTITIES
            identity = note.identity if known else _OTHERS
            self._seen[identity] += 1
            if self._seen[identity] > self._most:
                return
        now = monotonic()
        bucket = self._buckets.get(note.event)
        if bucket is None:
            bucket = self._buckets[note.event] = TokenBucket(PER_SECOND, now, BURST)
        if bucket.take(now):
            self._left_out[note.event] += 1
            return
        level = _LEVELS.get(note.event, logging.INFO)
        about = {"identity": note.identity} if note.identity else {}
        log_event(self._log, level, note.event, note.text, **about, **note.fields)

    def sweep(self) -> None:
        """Report events that were only counted. To be called about once a second."""
        for event, count in self._left_out.items():
            text = f"{event}: {count} more, not written one by one"
            log_event(self._log, _LEVELS.get(event, logging.INFO), "left out", text, of=event, count=count)
        self._left_out.clear()
        # As many as an event has lines of: each identity could have one a second.
        most = sorted(self._seen.items(), key=itemgetter(1), reverse=True)[:_SUMMARIES]
        for identity, count in most:
            if more := max(0, count - self._most):
                text = f"{identity}: {more} more protocol errors, not logged one by one"
                log_event(self._log, logging.WARNING, "offences", text, identity=identity, count=more)
        self._seen.clear()


def log_hub_errors(log: logging.Logger) -> Counter[str]:
    """Log uncaught exceptions of this thread's hub, rather than have gevent print them.

    That there are no more files to be had is no error of ours: a connection waits until there are. It is said once a
    minute.

    Returns:
        A counter of the errors by type, which grows as they happen.
    """
    errors: Counter[str] = Counter()
    silent_until = 0.0

    def print_exception(
        context: object, kind: type[BaseException], error: BaseException, traceback: TracebackType | None
    ) -> None:
        nonlocal silent_until
        if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
            if monotonic() >= silent_until:
                silent_until = monotonic() + _MINUTE
                text = f"cannot accept a connection: {error.strerror}; raise LimitNOFILE= (or ulimit -n)"
                log_event(log, logging.WARNING, "no more files", text)
            return
        errors[kind.__qualname__] += 1
        fields = {"context": repr(context)}
        log.error(
            "internal error in %s",
            fields["context"],
            exc_info=(kind, error, traceback),
            extra={"event": "internal error", "fields": fields},
        )

    hub: Any = get_hub()
    hub.print_exception = print_exception
    return errors
