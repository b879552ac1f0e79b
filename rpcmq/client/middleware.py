"""The pipeline between a client's verbs and the wire: middleware of the application's own, and retries.

The order is fixed. A call or cast passes, from the outside in:

1. middleware around the whole of it, in the order in which the client was given it;
2. retries (``retry=``): what is further in happens once for each attempt;
3. middleware whose ``each_attempt`` is true, in the order in which the client was given it;
4. what encodes and sends the message, and waits for its end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from time import monotonic
from typing import Any, ClassVar, Literal

from rpcmq.client.options import CallOptions, Defaults
from rpcmq.client.request import current_request
from rpcmq.client.retry import Retry, RetryBudget, guarded
from rpcmq.client.stream_argument import stream_in
from rpcmq.errors import UsageError
from rpcmq.payload.bounded_text import short_repr
from rpcmq.wire import Address

__all__ = ["Middleware", "OutgoingRequest", "Pipeline", "Send", "Tracing", "one_attempt", "with_defaults"]


@dataclass(frozen=True, slots=True)
class OutgoingRequest:
    """A call or cast on its way out, as middleware sees it. To change it, pass on a ``dataclasses.replace`` of it.

    Attributes:
        verb: which verb of the client was used.
        ctx, topic, message: what it was given; ``message`` is ``{"method": ..., "args": ...}``.
        options: of this call, with the defaults of the topic and of the client; ``timeout`` is always there.
        on_progress: called with each value that the handler reports.
        traceparent: W3C Trace Context; None: that of the request being handled.
    """

    verb: Literal["call", "multicall", "cast", "fanout_cast"]
    ctx: Any
    topic: str | Address
    message: Mapping[str, Any]
    options: CallOptions
    on_progress: Callable[[Any], object] | None = None
    traceparent: str | None = None


#: Sends a request further in, and returns or raises what comes of it.
Send = Callable[[OutgoingRequest], Any]


class Middleware:
    """Stands around the calls and casts of a client. To be derived from; this one only passes on.

    It runs in the greenlet or thread that uses the verb. What it raises is what the verb raises: nothing catches it.
    """

    #: Whether it stands within the retries of a call, around each attempt, rather than around the whole.
    each_attempt: ClassVar[bool] = False

    def __call__(self, request: OutgoingRequest, send: Send) -> Any:
        """Pass on ``request``, or another one, with ``send``, any number of times.

        Returns:
            The result of the verb, as ``send`` returns it (the result of a call, the iterator of a multicall, the count
            of a confirmed fanout, else None), or another one.
        """
        return send(request)


class Tracing(Middleware):
    """Gives each attempt that names no ``traceparent`` the one of the application's tracer.

    Args:
        current: returns the W3C traceparent of what the application is doing; None: as without this.
    """

    each_attempt = True

    def __init__(self, current: Callable[[], str | None]) -> None:
        self._current = current

    def __call__(self, request: OutgoingRequest, send: Send) -> Any:
        """See :class:`Middleware`."""
        return send(self.traced(request))

    def traced(self, request: OutgoingRequest) -> OutgoingRequest:
        """``request`` with a traceparent."""
        return request if request.traceparent is not None else replace(request, traceparent=self._current())


class _Retries(Middleware):
    """Sends calls with ``retry`` again; see :class:`Retry`."""

    def __init__(self, budget: RetryBudget, pause: Callable[[float], None]) -> None:
        self._budget = budget
        self._pause = pause

    def __call__(self, request: OutgoingRequest, send: Send) -> Any:
        if request.verb != "call" or not request.options.retry or stream_in(request.message) is not None:
            return send(request)  # a stream can be read once
        on_progress = None if request.on_progress is None else guarded(request.on_progress)
        deadline = monotonic() + (request.options.timeout or 0.0)

        def attempt() -> Any:
            return send(replace(one_attempt(request, deadline), on_progress=on_progress))

        return Retry.of(request.options.retry).run(attempt, deadline, self._budget, self._pause)


def with_defaults(
    request: OutgoingRequest, defaults: Defaults, seconds: Callable[[float | None], float]
) -> OutgoingRequest:
    """``request`` with the options that its caller has left to ``defaults``, and a timeout.

    Args:
        seconds: the time that a call without a timeout may take.
    """
    options, given = request.options, request.options.timeout
    if defaults.said:
        options = options.or_else(defaults.of(request.topic))
    timeout = seconds(options.timeout)
    if given is None and options.timeout is not None:
        current = current_request()
        if current is not None and current.remaining is not None:
            # A default is not a reason to wait longer than the caller of ours does.
            timeout = max(0.001, min(timeout, current.remaining))
    return replace(request, options=replace(options, timeout=timeout))


def one_attempt(request: OutgoingRequest, deadline: float) -> OutgoingRequest:
    """One attempt of ``request``, whose retries end at ``deadline`` (monotonic seconds)."""
    left = max(0.001, deadline - monotonic())
    return replace(request, options=replace(request.options, timeout=left, idempotent=True, retry=None))


class Pipeline:
    """The middleware, the retries and the default options of a client.

    Args:
        middleware: of the application.
        defaults: of options.
        budget: of retries.
        pause: waits for so many seconds before a retry.

    Attributes:
        middleware, defaults, budget: as given.
        used: whether there is anything but retries: if not, a call without ``retry`` need not pass through here.

    Raises:
        UsageError: something in ``middleware`` is none.
    """

    def __init__(
        self,
        middleware: Iterable[Middleware],
        defaults: Defaults,
        budget: RetryBudget,
        pause: Callable[[float], None],
    ) -> None:
        given = tuple(middleware)
        for each in given:
            if not isinstance(each, Middleware):
                raise UsageError(f"middleware must derive from rpcmq.Middleware; {short_repr(each)} does not")
        self.middleware = given
        self.defaults = defaults
        self.budget = budget
        around = [each for each in given if not each.each_attempt]
        within = [each for each in given if each.each_attempt]
        self._layers: tuple[Middleware, ...] = (*around, _Retries(budget, pause), *within)
        self.used = bool(given) or defaults.said

    def run(self, request: OutgoingRequest, seconds: Callable[[float | None], float], send: Send) -> Any:
        """Send ``request`` through all layers, and return what comes of it.

        Args:
            seconds: the time that a call without a timeout may take.
            send: the innermost layer.
        """
        return self._pass(0, send, with_defaults(request, self.defaults, seconds))

    def _pass(self, layer: int, send: Send, request: OutgoingRequest) -> Any:
        if layer == len(self._layers):
            return send(request)
        return self._layers[layer](request, lambda further: self._pass(layer + 1, send, further))
