"""The caller's side: call, cast, fanout and multicall."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, TypeVar, Unpack, overload

from rpcmq.client.arguments import check_progress
from rpcmq.client.event_verbs import EventVerbs
from rpcmq.client.hedging import HedgeAfter, hedge_terms, refuse_hedge
from rpcmq.client.middleware import Middleware, OutgoingRequest, Pipeline
from rpcmq.client.node_verbs import NodeVerbs
from rpcmq.client.options import CallOptions, Defaults, check_hedge
from rpcmq.client.queue.verbs import QueueVerbs
from rpcmq.client.retry import Retry, RetryBudget
from rpcmq.client.router_verbs import RouterVerbs
from rpcmq.client.sender import Target
from rpcmq.client.shown_names import shown_as
from rpcmq.client.stubs import StubOptions, make_stub
from rpcmq.config import ClientConfig
from rpcmq.payload import Codec
from rpcmq.transport.current_hub import pause
from rpcmq.transport.home import at_home_here, run_at_home, run_at_home_here
from rpcmq.wire import Address, Flag

__all__ = ["ClientVerbs", "Target", "flags_of"]

S = TypeVar("S")

_IDEMPOTENT, _MANDATORY, _FANOUT = int(Flag.IDEMPOTENT), int(Flag.MANDATORY), int(Flag.FANOUT)


@shown_as("Client")
class ClientVerbs(EventVerbs, RouterVerbs, NodeVerbs, QueueVerbs):
    """The verbs of a client, wherever it lives.

    Args:
        config: router, identity, limits and times.
        codec: encodes and decodes payloads.
        options, topic_options, middleware: as for :class:`rpcmq.Client`.

    Raises:
        ConfigError: the ``key_file`` is missing, wrong, or readable by others.
        UsageError: something else is of the wrong type.
    """

    def __init__(
        self,
        config: ClientConfig,
        codec: Codec,
        options: CallOptions | None,
        topic_options: Mapping[Target, CallOptions] | None,
        middleware: Sequence[Middleware],
    ) -> None:
        super().__init__(config, codec)
        defaults = Defaults(options, topic_options, config.exchange)
        self.pipeline = Pipeline(middleware, defaults, RetryBudget(config.retry_budget_ratio), pause)
        self._layered = self.pipeline.used

    def call(
        self,
        ctx: Any,
        topic: Target,
        msg: Mapping[str, Any],
        timeout: float | None = None,
        *,
        idempotent: bool | None = None,
        mandatory: bool | None = None,
        sign_of_life: float | None = None,
        on_progress: Callable[[Any], None] | None = None,
        retry: Retry | int | bool | None = None,
        direct: bool | None = None,
        first_of: int | None = None,
        hedge_after: HedgeAfter | None = None,
        exception_wins: bool | None = None,
        traceparent: str | None = None,
    ) -> Any:
        """Ask one consumer of ``topic`` and wait for its answer.

        An option that is None is as the client's ``topic_options`` and ``options`` say, and otherwise off.

        Args:
            ctx: request context: None, a mapping, or an object with ``to_dict()``.
            topic: ``"compute"``, a server's own topic ``"compute.node-7"``, or an ``Address``.
            msg: ``{"method": name, "args": {name: value}}``. ``namespace``, ``version`` and keys that begin with
                ``_`` travel beside the args; a :class:`Service` ignores them. Any other key is a UsageError.
            timeout: seconds; default: what the request being handled has left, else the setting ``timeout``. One of
                ``topic_options`` or ``options`` comes before both, but is never longer than what that request has left.
            idempotent: may be run twice: it goes to another consumer if the first is lost.
            mandatory: fail at once with NoConsumer if nobody consumes the topic, or when the last who does goes
                before it was begun; of a router that has just started, or after the loss of one that had consumers,
                when ``router.recovery_seconds`` (2.5) are over.
            sign_of_life: give up when neither an answer nor a keep-alive has come for so many
                seconds; the service sends keep-alives while the handler runs.
            on_progress: called with each value that the handler reports.
            retry: try again after LinkLost or Overloaded, within ``timeout`` and the client's retry
                budget: True, a number of attempts, or a :class:`Retry`. Implies ``idempotent``.
            direct: straight to the consumer where possible, with no router in between.
            first_of: have so many consumers run it at once, 2 to 8; the first answer counts, and the others are
                cancelled. For idempotent calls, within the router's ``hedge.budget``.
            hedge_after: have a second consumer run it, too, when the first has had it for so many seconds, or for
                as long as the method usually takes: "p50", "p95" or "p99" of the router's latency policy. With
                ``first_of`` the next one each time, to so many in all.
            exception_wins: False: an exception of the method is dropped while another consumer has the call.
            traceparent: W3C Trace Context of the caller; default: that of the request being handled.

        Returns:
            What the method returned. One that yields its result, or returns an iterator, is asked with
            :meth:`multicall`: here it raises, and makes none of its items.

        Raises:
            CallError: one of CallTimeout, NoConsumer, Overloaded, LinkLost: why there is no answer.
            RemoteError: the method raised; a registered exception class is raised as itself.
            NestedCallError: a RemoteError: a call that the method made itself ended with a CallError.
            PayloadError: ``ctx`` or ``msg`` cannot be encoded.
            RouterUnreachable: there is no router.
            UsageError: a wrong argument.
        """
        if on_progress is not None:
            check_progress(on_progress)
        if retry or self._layered:
            options = CallOptions(
                timeout=timeout, idempotent=idempotent, mandatory=mandatory, retry=retry, sign_of_life=sign_of_life,
                direct=direct, first_of=first_of, hedge_after=hedge_after, exception_wins=exception_wins,
            )  # fmt: skip
            check_hedge(options, self.pipeline.defaults, topic)
            return self._through_pipeline(OutgoingRequest("call", ctx, topic, msg, options, on_progress, traceparent))
        links = self._links
        if links.process.connection.abandoned:
            links = self._reopened()
        if not links.shell.is_current and (direct or not links.process.posts):
            run = run_at_home if direct else run_at_home_here
            return run(
                ClientVerbs.call, self, ctx, topic, msg, timeout, idempotent=idempotent, mandatory=mandatory,
                sign_of_life=sign_of_life, on_progress=on_progress, retry=retry, direct=direct, first_of=first_of,
                hedge_after=hedge_after, exception_wins=exception_wins, traceparent=traceparent,
            )  # fmt: skip
        # `flags_of`, written out.
        flags = (_IDEMPOTENT if idempotent else 0) | (_MANDATORY if mandatory else 0)
        sender, hedge = links.sender, None
        if first_of is not None or hedge_after is not None:
            hedge = hedge_terms(first_of, hedge_after, exception_wins)
            if hedge is not None:
                refuse_hedge(idempotent, direct)
        if direct:
            return sender.call_directly(ctx, topic, msg, timeout, flags, sign_of_life, on_progress, traceparent)
        return sender.call(ctx, topic, msg, timeout, flags, sign_of_life, on_progress, traceparent, hedge)

    def cast(
        self,
        ctx: Any,
        topic: Target,
        msg: Mapping[str, Any],
        *,
        confirm: bool | None = None,
        idempotent: bool | None = None,
        mandatory: bool | None = None,
        ttl: float | None = None,
        timeout: float | None = None,
        traceparent: str | None = None,
    ) -> None:
        """Tell one consumer of ``topic``; no answer.

        The cast is on its way when this returns, and is kept until a consumer has it. When too many are on their way,
        this waits. Before ``os._exit``, use ``confirm``, or close the client.

        Args:
            ctx, topic, msg: as for :meth:`call`.
            confirm: return only when the router has it, or raise why it does not take it.
            idempotent: may be run twice: it goes to another consumer if the first is lost.
            mandatory: refuse it if nobody consumes the topic (raised with ``confirm``, logged without).
            ttl: seconds after which it is not worth delivering any more.
            timeout: seconds to wait for room, and for the confirmation.
            traceparent: as for :meth:`call`.

        Raises:
            Overloaded: no room within ``timeout``, or (``confirm``) the topic's queue is full.
            NoConsumer: (``confirm`` and ``mandatory``) nobody consumes the topic, and it never runs.
            LinkLost: (the same) nobody does any more, and a router that is lost may have given it to a consumer.
            PayloadError, RouterUnreachable, UsageError: as for :meth:`call`.
        """
        if self._layered:
            options = CallOptions(confirm=confirm, idempotent=idempotent, mandatory=mandatory, ttl=ttl, timeout=timeout)
            self._through_pipeline(OutgoingRequest("cast", ctx, topic, msg, options, None, traceparent))
            return
        links = self._links
        if links.process.connection.abandoned:
            links = self._reopened()
        if not links.shell.is_current and not (links.process.posts_confirmed if confirm else links.process.posts):
            run_at_home_here(
                ClientVerbs.cast, self, ctx, topic, msg, confirm=confirm, idempotent=idempotent, mandatory=mandatory,
                ttl=ttl, timeout=timeout, traceparent=traceparent,
            )  # fmt: skip
            return
        # `flags_of`, written out.
        flags = (_IDEMPOTENT if idempotent else 0) | (_MANDATORY if mandatory else 0)
        links.sender.cast(ctx, topic, msg, flags, confirm, ttl, timeout, traceparent)

    @overload
    def fanout_cast(
        self,
        ctx: Any,
        topic: Target,
        msg: Mapping[str, Any],
        *,
        confirm: Literal[True],
        timeout: float | None = None,
        traceparent: str | None = None,
    ) -> int: ...
    @overload
    def fanout_cast(
        self,
        ctx: Any,
        topic: Target,
        msg: Mapping[str, Any],
        *,
        confirm: bool | None = None,
        timeout: float | None = None,
        traceparent: str | None = None,
    ) -> int | None: ...
    def fanout_cast(
        self,
        ctx: Any,
        topic: Target,
        msg: Mapping[str, Any],
        *,
        confirm: bool | None = None,
        timeout: float | None = None,
        traceparent: str | None = None,
    ) -> int | None:
        """Tell all consumers of ``topic``; no answer.

        Args:
            ctx, topic, msg, confirm, timeout, traceparent: as for :meth:`cast`.

        Returns:
            With ``confirm``: how many consumers the router sends it to.

        Raises:
            Overloaded, PayloadError, RouterUnreachable, UsageError: as :meth:`cast`.
        """
        if self._layered:
            options = CallOptions(confirm=confirm, timeout=timeout)
            request = OutgoingRequest("fanout_cast", ctx, topic, msg, options, None, traceparent)
            return self._through_pipeline(request)  # type: ignore[no-any-return]
        links = self._links
        if links.process.connection.abandoned:
            links = self._reopened()
        if not links.shell.is_current and not (links.process.posts_confirmed if confirm else links.process.posts):
            return run_at_home_here(
                ClientVerbs.fanout_cast, self, ctx, topic, msg, confirm=confirm, timeout=timeout,
                traceparent=traceparent,
            )  # fmt: skip
        return links.sender.cast(ctx, topic, msg, _FANOUT, confirm, None, timeout, traceparent)

    def multicall(
        self,
        ctx: Any,
        topic: Target,
        msg: Mapping[str, Any],
        timeout: float | None = None,
        *,
        mandatory: bool | None = None,
    ) -> Iterator[Any]:
        """Ask one consumer and iterate over what its generator yields, as it is yielded.

        The request is sent when this is called. The service goes at most a few items ahead of the
        iteration. Closing the iterator cancels the call.

        Args:
            timeout: longest wait for each item (seconds).
            mandatory: as for :meth:`call`.

        Raises:
            CallError, RemoteError, PayloadError, RouterUnreachable, UsageError: as :meth:`call`, while iterating.
        """
        if self._layered:
            options = CallOptions(timeout=timeout, mandatory=mandatory)
            request = OutgoingRequest("multicall", ctx, topic, msg, options)
            return self._through_pipeline(request)  # type: ignore[no-any-return]
        links = self._links
        if links.process.connection.abandoned:
            links = self._reopened()
        if not links.shell.is_current:
            return run_at_home_here(ClientVerbs.multicall, self, ctx, topic, msg, timeout, mandatory=mandatory)
        return links.sender.multicall(self, ctx, topic, msg, timeout, _MANDATORY if mandatory else 0)

    def describe(self, topic: Target, timeout: float | None = None) -> dict[str, Any]:
        """Describe the service on ``topic``: its methods with signatures and docstrings.

        Raises:
            CallError, RouterUnreachable: as :meth:`call`; NoConsumer at once where nobody consumes it, rather than
                when the time is over.
        """
        message = {"method": "rpcmq.describe", "args": {}}
        answer: dict[str, Any] = self.call(None, topic, message, timeout, mandatory=True)
        return answer

    def stub(self, service: Callable[..., S], topic: Target, **options: Unpack[StubOptions]) -> S:
        """The methods of a service, to be called as if it were here: ``compute.reboot(ctx, instance_id="i-1")``.

        Each method goes out by :meth:`call`; one that yields, or is annotated to return an ``Iterator`` or
        ``Generator``, by :meth:`multicall`. :func:`rpcmq.as_cast` and :func:`rpcmq.as_fanout` send one otherwise.

        Args:
            service: the class that says which methods there are: that of the service, an abstract one, or a
                ``typing.Protocol``. It is not instantiated. For type checkers the stub is an instance of it.
            topic: as for :meth:`call`.
            options: fields of :class:`rpcmq.CallOptions`, and ``on_progress``; they come before those of the client.
                A ``timeout`` is never longer than what the request being handled has left.

        Returns:
            The stub. Positional arguments get the names of the class's parameters. An unknown method raises
            AttributeError, and arguments that the method does not take raise TypeError; then nothing is sent.

        Raises:
            UsageError: ``service`` is no class with public methods, or an option is wrong.
        """
        return make_stub(service, topic, lambda: self, options)

    def _call_queue(self, topic: Address, msg: Mapping[str, Any], timeout: float, *, mandatory: bool) -> Any:
        return self.call(None, topic, msg, timeout, mandatory=mandatory, retry=False)

    # --- through the pipeline ----------------------------------------------------------------

    def _through_pipeline(self, request: OutgoingRequest) -> Any:
        """Send ``request`` with default options, middleware and retries; these run where the verb was used."""
        return self.pipeline.run(
            request, self.sender.seconds, lambda sent: self._send(sent, on_progress=sent.on_progress)
        )

    @at_home_here
    def _send(self, request: OutgoingRequest, *, on_progress: Callable[[Any], object] | None) -> Any:
        """Send ``request``, which has passed the pipeline; return its result."""
        sender, options = self.sender, request.options
        message = request.ctx, request.topic, request.message
        trace = request.traceparent
        flags = flags_of(options.idempotent, options.mandatory)
        match request.verb:
            case "call" if options.direct:
                call = sender.call_directly
                return self.home.run(call, *message, options.timeout, flags, options.sign_of_life, on_progress, trace)
            case "call":
                hedge = options.hedge
                return sender.call(*message, options.timeout, flags, options.sign_of_life, on_progress, trace, hedge)
            case "multicall":
                return sender.multicall(self, *message, options.timeout, flags & _MANDATORY)
            case "cast":
                return sender.cast(*message, flags, bool(options.confirm), options.ttl, options.timeout, trace)
            case "fanout_cast":
                return sender.cast(*message, _FANOUT, bool(options.confirm), None, options.timeout, trace)


def flags_of(idempotent: bool | None, mandatory: bool | None) -> int:
    """The flags of a message with these options."""
    return (_IDEMPOTENT if idempotent else 0) | (_MANDATORY if mandatory else 0)
