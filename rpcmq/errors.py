"""The exceptions of rpcmq, grouped by cause.

``RpcError`` is the root. Below it:

* ``UsageError``: the caller or the configuration is wrong; nothing was sent.
* ``ProtocolError``: the peer sent something that the protocol does not allow.
* ``CallError``: a call ended without a result. Each subclass is one of the closed set of ends
  (``Outcome``) and says *why*, as text and as ``details``.
* ``RequestStreamError``: the stream of a request has ended early, in the method that reads it.
* ``QueueError``: about an item of a work queue.
* ``RemoteError``: the endpoint's method raised; ``NestedCallError``: because of a call that it made itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Any, NamedTuple

__all__ = [
    "AccessDenied",
    "CallCancelled",
    "CallError",
    "CallQuarantined",
    "CallTimeout",
    "CallerFailed",
    "CallerGone",
    "ConfigError",
    "Hop",
    "IdentityTaken",
    "ItemDead",
    "LeaseLost",
    "LinkLost",
    "NestedCallError",
    "NoConsumer",
    "NoResult",
    "NotInstalled",
    "Outcome",
    "Overloaded",
    "PayloadError",
    "PayloadRefused",
    "ProtocolError",
    "PutRefused",
    "PutUnknown",
    "QueueError",
    "RemoteError",
    "RequestStreamError",
    "RouterUnreachable",
    "RpcError",
    "UnknownMethod",
    "UsageError",
    "error_for",
]


class Outcome(IntEnum):
    """Outcomes of a message. The numbers are on the wire and in the logs: never reuse one."""

    OK = 0
    REMOTE_ERROR = 1
    TIMEOUT = 2
    NO_CONSUMER = 3
    OVERLOADED = 4
    LINK_LOST = 5
    CANCELLED = 6
    PROTOCOL = 7
    DRAINING = 8
    DENIED = 9


class RpcError(Exception):
    """Root of all errors that rpcmq raises."""


class UsageError(RpcError):
    """The caller passed something that rpcmq cannot take; nothing was sent."""


class ConfigError(UsageError):
    """A configuration value is unknown or wrong; names source, key, value and what is expected."""


class NotInstalled(RpcError):
    """An optional part of rpcmq is not installed; the text says what to install."""


class PayloadError(UsageError):
    """A value could not be encoded; names the object and its path within the message."""


class PayloadRefused(RpcError):
    """A received payload was not decoded: malformed, a format not accepted, or a global not allowed."""


class ProtocolError(RpcError):
    """The peer broke the protocol. ``reason`` is the counter's label, ``text`` says what was seen.

    ``details`` are told to the peer beside the reason.
    """

    def __init__(self, text: str, reason: str = "malformed", **details: str) -> None:
        super().__init__(text)
        self.reason = reason
        self.details = details


class IdentityTaken(RpcError):
    """Another live process has this identity; choose another or stop that one."""


class RouterUnreachable(RpcError, ConnectionError):
    """No router is reachable at the url, or it refuses this process; the text says which.

    Attributes:
        is_about_keys: whether each router is there, and the handshake fails: the key of this process, or that it has
            none, is to be mended, and to wait is of little use.
    """

    is_about_keys = False


class UnknownMethod(RpcError):
    """The endpoint has no such public method."""


class CallError(RpcError):
    """A call ended without a result.

    Args:
        text: one sentence that says why.
        details: the same as fields (for example ``queued_seconds``, ``topic``, ``server``).
    """

    outcome = Outcome.PROTOCOL

    def __init__(self, text: str, details: Mapping[str, Any] | None = None) -> None:
        super().__init__(text)
        self.details: dict[str, Any] = dict(details or {})


class CallTimeout(CallError, TimeoutError):
    """The deadline passed. The text says where the call was at that moment."""

    outcome = Outcome.TIMEOUT


class NoConsumer(CallError):
    """Nobody consumes the topic, and the caller asked not to wait (or could not be queued)."""

    outcome = Outcome.NO_CONSUMER


class Overloaded(CallError):
    """A bounded queue is full; the message was not accepted."""

    outcome = Outcome.OVERLOADED


class LinkLost(CallError, ConnectionError):
    """The consumer, or the router, went away while the call was in flight; it may have run."""

    outcome = Outcome.LINK_LOST


class AccessDenied(CallError):
    """The key of this process has no right to that; ``details`` name ``key``, ``verb`` and ``topic``."""

    outcome = Outcome.DENIED


class CallCancelled(CallError):
    """The call was cancelled by its caller."""

    outcome = Outcome.CANCELLED


class CallQuarantined(CallCancelled):
    """Such a call has killed consumers, and is given to no further one until an operator releases it.

    The text says which consumers died when, and how to release it; ``details`` have the same: ``quarantine`` (the
    fingerprint of the call), ``kills``, and ``started``: "unknown" if this very call was given to one of them.
    """


class RequestStreamError(RpcError):
    """The stream that comes with a request has ended early: what has come of it is not all."""


class CallerGone(RequestStreamError):
    """The caller has given up, has timed out, or is lost: nobody waits for the result."""


class CallerFailed(RequestStreamError):
    """The iterable or file that the caller sends has raised an exception; ``__cause__`` is that, as far as it came."""


class QueueError(RpcError):
    """Root of the errors about items of work queues."""


class PutRefused(QueueError):
    """The item was not put, and the text says why."""


class PutUnknown(QueueError):
    """The item may have been put, or not: the answer did not come in time, however often the same item was offered.

    To put it again with the same ``id`` is safe.
    """


class LeaseLost(QueueError):
    """Another worker may have the item: what this one says of it counts no more."""


class ItemDead(QueueError):
    """The item has ended without being done; the text has the reason, and a traceback where there is one."""


class NoResult(QueueError):
    """The item has ended, and there is no result of it to give; the text says why."""


class Hop(NamedTuple):
    """One call of a chain of nested calls.

    Attributes:
        topic, method: what was called; empty where that is not known.
        server: identity of the process that ran it; empty where none is known.
        error: qualified name of the class of the exception that ended it.
        text: its text; empty where a later hop of the chain has it.
        details: of the error that ended the call without a result.
    """

    topic: str
    method: str
    server: str
    error: str
    text: str
    details: Mapping[str, Any]

    def __str__(self) -> str:
        return f"{self.topic!r} {self.method}".rstrip() + (f" on {self.server}" if self.server else "")


class RemoteError(RpcError):
    """The endpoint raised an exception that is not rebuilt here.

    Args:
        exc_type: qualified name of the remote exception's class.
        value: its text.
        traceback: the remote traceback as text.
        host: identity of the process that raised it.
        args: the remote exception's args, as far as they could be carried.

    Attributes:
        remote_traceback, remote_host: as ``traceback`` and ``host``; other exceptions from elsewhere have them, too.
        remote_causes: ``("module:Name", text)`` of what it was raised from, nearest first.
        remote_hops: the calls, the caller's own first, the one that failed first last (:class:`Hop`).
        reason: why it is not raised as its own class, and what to write for that.
    """

    reason: str = ""
    remote_traceback: str = ""
    remote_host: str = ""
    remote_causes: tuple[tuple[str, str], ...] = ()
    remote_hops: tuple[Hop, ...] = ()

    def __init__(
        self,
        exc_type: str = "",
        value: str = "",
        traceback: str = "",
        host: str = "",
        args: tuple[Any, ...] = (),
    ) -> None:
        super().__init__(f"{exc_type}: {value}" + (f" (on {host})" if host else ""))
        self.exc_type = exc_type
        self.value = value
        self.traceback = traceback
        self.host = host
        self.remote_args = args


class NestedCallError(RemoteError):
    """The method ran, and ended with the ``CallError`` of a call: one that it made itself, as a rule.

    So it is no ``NoConsumer``, ``Overloaded``, ``LinkLost`` or ``CallTimeout``, which are about the caller's own call.
    ``exc_type`` and ``value`` are those of the call that failed first, the last of ``remote_hops``.
    """

    @property
    def details(self) -> Mapping[str, Any]:
        """The details of the call that failed first."""
        return self.remote_hops[-1].details if self.remote_hops else {}

    def __str__(self) -> str:
        chain = " -> ".join(str(hop) for hop in self.remote_hops if hop.topic)
        return f"{self.exc_type}: {self.value}" + (f" (in the chain of calls {chain})" if chain else "")


_ERRORS: dict[Outcome, type[CallError]] = {
    cls.outcome: cls for cls in (CallTimeout, NoConsumer, Overloaded, LinkLost, AccessDenied, CallCancelled)
}


def error_for(outcome: int, text: str, details: Mapping[str, Any] | None = None) -> CallError:
    """Return the exception for ``outcome``."""
    try:
        cls = _ERRORS.get(Outcome(outcome), CallError)
        if cls is CallCancelled and details and "quarantine" in details:
            cls = CallQuarantined  # no outcome of its own: for who does not know it, it is cancelled
    except ValueError:
        cls = CallError
    return cls(text, details)
