"""The caller's side: call, cast, fanout, multicall, notify, publish and subscribe."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from time import monotonic, time
from typing import Any, Self
from uuid import uuid4
from weakref import finalize

import gevent
from gevent._hub_local import get_hub_if_exists

from rpcmq.client.answers import Stream, result_of
from rpcmq.client.arguments import check_seconds, context_dict, request_body, trace_context
from rpcmq.client.process import Process, codec_for
from rpcmq.client.request import current_request, handling
from rpcmq.client.retry import Retry, RetryBudget, guarded
from rpcmq.client.subscription import Subscription, Subscriptions
from rpcmq.config import ClientConfig, load_client_config
from rpcmq.core.process.calls import Call
from rpcmq.errors import CallTimeout, Outcome, UsageError
from rpcmq.payload import Codec, ExceptionRegistry, Format
from rpcmq.payload.bounded_text import brief
from rpcmq.transport.home import Home, allocate_lock, at_home, home_for, run_at_home
from rpcmq.transport.key_files import curve_for
from rpcmq.wire import MAX_VIEW_BYTES, Address, Flag, Kind, address_of, body_of, json_bytes, message, payload_of

__all__ = ["Client", "Target"]

#: How a destination may be given: a topic's name, or an address.
Target = str | Address

_ANY_FORMAT = Format.JSON.bit | Format.PICKLE.bit | Format.DILL.bit
_DILL = Format.DILL.bit
# Looking up a member of an enum costs a call as much as a few of its steps.
_REQUEST, _CAST = int(Kind.REQUEST), int(Kind.CAST)
_PRIORITIES = ("DEBUG", "INFO", "WARN", "WARNING", "ERROR", "CRITICAL", "AUDIT", "SAMPLE")


class _Links:
    """The links of a client, and the hub that they live in."""

    def __init__(self, home: Home, process: Process) -> None:
        self.home = home
        self.process = process
        self.subscriptions: Subscriptions | None = None

    def close(self, linger_seconds: float | None = None) -> None:
        """See :meth:`Client.close`; at home."""
        if self.subscriptions is None:
            self.process.close(linger_seconds)
        elif gevent.getcurrent() is self.home.hub:
            self.subscriptions.close(linger_seconds)
            self.process.close(linger_seconds)
        else:
            # Both wait for the router, and at the same time.
            other = gevent.spawn(self.subscriptions.close, linger_seconds)
            self.process.close(linger_seconds)
            other.join()

    def close_soon(self) -> None:
        """The client was collected as garbage, in whichever thread."""
        connection = self.process.connection
        if not connection.closed and not connection.abandoned and self.home.alive:
            self.home.post(self.close)


class Client:
    """A connection to a router under one identity.

    Args:
        router: url of the router; default: ``RPCMQ_ROUTER`` or ``tcp://127.0.0.1:7700``.
        identity: name of this process in the system; default: host, program, pid and a random part, after
            the name of its key if there is a ``key_file``.
        exceptions: exception classes of the application that are rebuilt when a method raises them.
        codec: encodes and decodes payloads; default: from the configuration.
        settings: any field of :class:`rpcmq.config.ClientConfig`, for example ``timeout=10``, or ``key_file``: the
            keys of this process and of a router with CURVE (default: ``RPCMQ_KEY_FILE``), or ``shell``.

    Greenlets and OS threads share a client freely. Where it lives is the setting ``shell`` (``RPCMQ_SHELL``): in a
    program that gevent has patched, or where a gevent hub is in use already, in the hub of the thread that makes it;
    in any other program in a background thread, so that what it sends leaves and heartbeats go on whatever the program
    does. There handlers of events run in threads of their own, and ``on_progress`` in the thread that calls. After a
    fork the child's first use connects anew, under an identity of its own. A client that is dropped is closed.

    Raises:
        ConfigError: a setting is unknown or wrong, or the ``key_file`` is: missing, wrong, readable by others.
    """

    def __init__(
        self,
        router: str | None = None,
        identity: str | None = None,
        *,
        exceptions: ExceptionRegistry | None = None,
        codec: Codec | None = None,
        **settings: Any,
    ) -> None:
        arguments = {k: v for k, v in {"router": router, "identity": identity, **settings}.items() if v is not None}
        self.config: ClientConfig = load_client_config(os.environ, arguments)
        self._codec = codec or codec_for(self.config, exceptions)
        self._budget = RetryBudget(self.config.retry_budget_ratio)
        self._addresses: dict[Target, tuple[bytes, str]] = {}
        self._given_identity = self.config.identity
        self._opening = allocate_lock()
        self._links = self._open()
        self.hub = self._links.home.hub

    def _open(self) -> _Links:
        home = home_for(self.config.shell)
        links = _Links(home, home.run(Process, self.config, self._codec))
        finalize(self, links.close_soon).atexit = False
        home.when_the_thread_ends(partial(links.close, 0.0))
        return links

    def _reopened(self) -> _Links:
        """What a forked child has instead of what is its parent's."""
        if self._given_identity:
            self.config = replace(self.config, identity=f"{self._given_identity}/{os.getpid()}")
        links = self._open()
        # Nobody may wait in here: the greenlet that goes on meanwhile would be of the same thread.
        with self._opening:
            if self._links.process.connection.abandoned:
                self._links = links
                self.hub = links.home.hub
            return self._links

    @property
    def home(self) -> Home:
        """The gevent hub that this client lives in."""
        links = self._links
        return links.home if not links.process.connection.abandoned else self._reopened().home

    @property
    def usable(self) -> bool:
        """Whether the thread whose hub this client lives in has not ended."""
        home = self.home
        return home.background or home.here or home.alive

    @property
    def process(self) -> Process:
        """The engines under this client, to be used in its home only. After a fork: new ones."""
        links = self._links
        return links.process if not links.process.connection.abandoned else self._reopened().process

    @property
    def identity(self) -> str:
        """The name under which the router knows this process."""
        return self.process.identity

    @property
    def closed(self) -> bool:
        """Whether :meth:`close` was called."""
        return self.process.connection.closed

    @at_home
    def connect(self, timeout: float | None = None) -> None:
        """Wait until the router has welcomed this process.

        Args:
            timeout: seconds; default: ``connect_timeout``.

        Raises:
            RouterUnreachable: it has not.
            IdentityTaken: another live process has this identity.
        """
        self.process.connection.wait_ready(self.config.connect_timeout if timeout is None else timeout)

    def close(self, linger_seconds: float | None = None) -> None:
        """Say goodbye. Calls in flight end with LinkLost; casts and events are handed to the router first.

        Args:
            linger_seconds: how long to wait at most until the router has them; default: the setting of that name,
                1 second. It is logged how many it has not, as far as it has said, because it is away or silent, or
                their queue is full.

        A client that was not closed is closed when the interpreter exits. ``os._exit``, a signal that
        is not handled and the end of a ``multiprocessing`` child skip that, so close before them.
        """
        links = self._links
        if not links.process.connection.abandoned and links.home.alive:
            links.home.run(links.close, linger_seconds)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    # --- verbs -------------------------------------------------------------------------------

    def call(
        self,
        ctx: Any,
        topic: Target,
        msg: Mapping[str, Any],
        timeout: float | None = None,
        *,
        idempotent: bool = False,
        mandatory: bool = False,
        sign_of_life: float | None = None,
        on_progress: Callable[[Any], None] | None = None,
        retry: Retry | int | bool | None = None,
        direct: bool = False,
        traceparent: str | None = None,
    ) -> Any:
        """Ask one consumer of ``topic`` and wait for its answer.

        Args:
            ctx: request context: None, a mapping, or an object with ``to_dict()``.
            topic: ``"compute"``, a server's own topic ``"compute.node-7"``, or an ``Address``.
            msg: ``{"method": name, "args": {name: value}}``. ``namespace``, ``version`` and keys that begin with
                ``_`` travel beside the args; a :class:`Service` ignores them. Any other key is a UsageError.
            timeout: seconds; default: what the request being handled has left, else the client's.
            idempotent: may be run twice: it goes to another consumer if the first is lost.
            mandatory: fail at once with NoConsumer if nobody consumes the topic; of a router that has just
                started, when its ``router.recovery_seconds`` (2.5) are over.
            sign_of_life: give up when neither an answer nor a keep-alive has come for so many
                seconds; the service sends keep-alives while the handler runs.
            on_progress: called with each value that the handler reports.
            retry: try again after LinkLost or Overloaded, within ``timeout`` and the client's retry
                budget: True, a number of attempts, or a :class:`Retry`. Implies ``idempotent``.
            direct: straight to the consumer where possible, with no router in between.
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
        if get_hub_if_exists() is not self.hub:
            return run_at_home(
                Client.call, self, ctx, topic, msg, timeout, idempotent=idempotent, mandatory=mandatory,
                sign_of_life=sign_of_life, on_progress=on_progress, retry=retry, direct=direct, traceparent=traceparent,
            )  # fmt: skip
        if retry:
            return self._call_again(ctx, topic, msg, timeout, retry, mandatory, sign_of_life, on_progress, traceparent)
        if direct and sign_of_life is not None:
            raise UsageError("sign_of_life is watched for calls through the router; leave out direct or sign_of_life")
        if direct:
            deadline = monotonic() + self._timeout(timeout)
            ended = self._call_directly(ctx, topic, msg, deadline, on_progress)
            if ended is not None:
                return result_of(self.process.payloads, ended)
            timeout = max(0.001, deadline - monotonic())
        flags = (Flag.IDEMPOTENT if idempotent else 0) | (Flag.MANDATORY if mandatory else 0)
        process = self.process
        progress = None if on_progress is None else self._progress(on_progress)
        seconds = self._timeout(timeout)
        deadline = monotonic() + seconds
        call = self._start(process, _REQUEST, ctx, topic, msg, seconds, flags, sign_of_life, traceparent)
        process.wait(call, False, progress)
        if call.error is not None and self._learn_format(call):
            left = max(0.001, deadline - monotonic())
            call = self._start(process, _REQUEST, ctx, topic, msg, left, flags, sign_of_life, traceparent)
            process.wait(call, False, progress)
        return result_of(process.payloads, call)

    def cast(
        self,
        ctx: Any,
        topic: Target,
        msg: Mapping[str, Any],
        *,
        confirm: bool = False,
        idempotent: bool = False,
        mandatory: bool = False,
        ttl: float | None = None,
        timeout: float | None = None,
        traceparent: str | None = None,
    ) -> None:
        """Tell one consumer of ``topic``; no answer.

        The cast is on its way when this returns, and is kept until a consumer has it. When too many are on their way,
        this waits.

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
            NoConsumer: (``confirm`` and ``mandatory``) nobody consumes the topic.
            PayloadError, RouterUnreachable, UsageError: as for :meth:`call`.
        """
        if get_hub_if_exists() is not self.hub:
            return run_at_home(
                Client.cast, self, ctx, topic, msg, confirm=confirm, idempotent=idempotent, mandatory=mandatory,
                ttl=ttl, timeout=timeout, traceparent=traceparent,
            )  # fmt: skip
        flags = (Flag.IDEMPOTENT if idempotent else 0) | (Flag.MANDATORY if mandatory else 0)
        self._cast(ctx, topic, msg, flags, confirm, ttl, timeout, traceparent)

    @at_home
    def fanout_cast(
        self,
        ctx: Any,
        topic: Target,
        msg: Mapping[str, Any],
        *,
        confirm: bool = False,
        timeout: float | None = None,
        traceparent: str | None = None,
    ) -> int | None:
        """Tell all consumers of ``topic``; no answer.

        Args:
            ctx, topic, msg, confirm, timeout, traceparent: as for :meth:`cast`.

        Returns:
            With ``confirm``: how many consumers the router sends it to.

        Raises:
            As :meth:`cast`.
        """
        return self._cast(ctx, topic, msg, Flag.FANOUT, confirm, None, timeout, traceparent)

    @at_home
    def multicall(self, ctx: Any, topic: Target, msg: Mapping[str, Any], timeout: float | None = None) -> Iterator[Any]:
        """Ask one consumer and iterate over what its generator yields, as it is yielded.

        The request is sent when this is called. The service goes at most a few items ahead of the
        iteration. Closing the iterator cancels the call.

        Args:
            timeout: longest wait for each item (seconds).

        Raises:
            As :meth:`call`, while iterating.
        """
        process = self.process
        call = self._start(process, _REQUEST, ctx, topic, msg, self._timeout(timeout), Flag.STREAM)

        def again(refused: Call) -> Call | None:
            if not self._learn_format(refused):
                return None
            return self._start(process, _REQUEST, ctx, topic, msg, self._timeout(timeout), Flag.STREAM)

        return Stream(self, process, call, again)

    @at_home
    def notify(
        self,
        ctx: Any,
        event_type: str,
        payload: Any,
        priority: str = "INFO",
        *,
        publisher_id: str | None = None,
        confirm: bool = False,
    ) -> int | None:
        """Publish an event, to topic ``notifications.<priority>.<event type>``.

        So ``notify(ctx, "compute.x", ...)`` goes to ``notifications.info.compute.x``: the patterns ``notifications.#``,
        ``notifications.info.#`` and ``notifications.*.compute.#`` match it, ``compute.#`` does not.

        Subscribers receive a mapping with message_id, event_type, publisher_id, priority,
        timestamp (seconds since the epoch) and payload.

        Returns:
            With ``confirm``: how many subscribers there are.

        Raises:
            UsageError: the priority is unknown or the event type is no topic.
            PayloadError: the payload cannot be encoded.
        """
        if not isinstance(priority, str) or priority.upper() not in _PRIORITIES:
            raise UsageError(f"priority {brief(priority)} is unknown; known: {', '.join(_PRIORITIES)}")
        event = {
            "message_id": str(uuid4()),
            "event_type": event_type,
            "publisher_id": publisher_id or self.identity,
            "priority": priority.upper(),
            "timestamp": time(),
            "payload": payload,
        }
        return self.publish(ctx, f"notifications.{priority.lower()}.{event_type}", event, confirm=confirm)

    @at_home
    def publish(self, ctx: Any, topic: str, payload: Any, *, confirm: bool = False) -> int | None:
        """Send ``payload`` to all who subscribe to a pattern that matches ``topic``.

        Returns:
            With ``confirm``: how many subscribers there are.

        Raises:
            PayloadError: the payload cannot be encoded.
            UsageError: the topic is malformed.
        """
        return self._subscribing().publish(context_dict(ctx), topic, payload, confirm)

    @at_home
    def subscribe(self, pattern: str, handler: Callable[[Any, str, Any], None], *, window: int = 1000) -> Subscription:
        """Have ``handler(ctx, topic, payload)`` called for each event whose topic matches ``pattern``.

        Args:
            pattern: words between dots; ``*`` is one word, ``#`` any number of words. It is matched with the whole
                topic; that of what :meth:`notify` sends begins with ``notifications.<priority>.``.
            handler: runs in one greenlet for all events of this subscription, in order; in one OS thread, where the
                client lives in a background thread. It is not ``async``.
            window: events that may be on their way to here at once.

        Returns:
            The subscription; ``close()`` ends it, ``lost`` counts events lost because this
            subscriber was too slow.

        Raises:
            UsageError: a wrong argument.
            RouterUnreachable: there is no router.
        """
        return self._subscribing().subscribe(self, pattern, handler, window)

    @at_home
    def declare(self, topic: Target, *, group: str = "", timeout: float | None = None) -> None:
        """Have the router keep what is sent to ``topic``, though nobody has consumed it yet.

        It is kept as for a topic whose consumers are away: within the router's ``mailbox`` bounds.

        Args:
            topic: as for :meth:`call`.
            group: the group of the topic that a copy is kept for; default: the topic itself.
            timeout: seconds to wait for the router.

        Raises:
            RouterUnreachable, CallTimeout: there is no answer.
            CallError: the router refuses it.
        """
        self._ask(Kind.DECLARE, self._address(topic), {"group": group} if group else {}, timeout)

    @at_home
    def query(self, view: str = "overview", timeout: float | None = None) -> dict[str, Any]:
        """The router's own state: ``overview``, ``summary``, ``processes``, ``topics``, ``calls``, ``methods``,
        ``keys``, ``stuck``, ``dropped``, ``stats``.

        Raises:
            RouterUnreachable, CallTimeout: there is no answer.
            CallError: there is no such view.
        """
        return body_of(self._ask(Kind.QUERY, (b"", "router"), {"what": view}, timeout), MAX_VIEW_BYTES)

    @at_home
    def statistics(self) -> dict[str, Any]:
        """What became of the casts of this process, as far as it knows; the counts never go back.

        Returns:
            ``casts_open``: not yet acknowledged by the router. ``casts_kept``: the router has them, and no consumer
            yet; they are offered to its next life if it is killed. ``casts_let_go``: kept no longer, because
            ``cast_kept`` or ``cast_kept_bytes`` was reached. ``dropped``: verb -> reason -> count, of what the router
            has dropped or refused; ``dropped_topics``: the same as rows with ``topic``, ``verb``, ``reason`` and
            ``count``.
        """
        caller = self.process.caller
        return {
            "casts_open": caller.casts_open,
            "casts_kept": len(caller.keeping),
            "casts_let_go": caller.keeping.let_go,
            "dropped": caller.drops.totals,
            "dropped_topics": [
                {name: row[name] for name in ("topic", "verb", "reason", "count")}
                for row in caller.drops.rows(monotonic())
            ],
        }

    @at_home
    def purge(
        self, topic: Target, *, group: str = "", forget: bool = False, timeout: float | None = None
    ) -> dict[str, Any]:
        """Have the router drop what waits for ``topic`` and its servers now. What consumers have is not touched.

        Args:
            topic: as for :meth:`call`; of a server's own topic, only what waits for that server.
            group: the group of the topic whose messages are meant; default: the topic itself.
            forget: also forget the topic if nobody consumes it.
            timeout: seconds to wait for the router.

        Returns:
            ``known``: whether the router has the topic; ``casts`` and ``calls``: how many were dropped; ``forgotten``.

        Raises:
            AccessDenied: the key of this process has no right ``admin`` on ``control.purge``.
            RouterUnreachable, CallTimeout: there is no answer.
        """
        address = topic if isinstance(topic, Address) else Address(topic, "", self.config.exchange)
        name = f"{address.topic}.{address.server}" if address.server else address.topic
        body = {"what": "control.purge", "topic": name, "exchange": address.exchange, "group": group, "forget": forget}
        deadline = monotonic() + self._timeout(timeout)
        casts = calls = 0
        waited: int | None = None
        while True:
            left = max(0.001, deadline - monotonic())
            answer = body_of(self._ask(Kind.QUERY, (b"", "router"), body, left))
            purged, remaining = answer["casts"] + answer["calls"], answer["remaining"]
            casts, calls = casts + answer["casts"], calls + answer["calls"]
            waited = purged + remaining if waited is None else waited
            # A request purges some thousands. What comes in meanwhile was not meant.
            if not (purged and remaining) or casts + calls >= waited:
                return {"known": answer["known"], "casts": casts, "calls": calls, "forgotten": answer["forgotten"]}

    @at_home
    def kick(self, identity: str, timeout: float | None = None) -> int:
        """Have the router end the links of the process ``identity``, as if it had gone.

        Its calls end with LinkLost, as do those that it has; casts that it has not begun go to others. If it lives it
        connects again: to keep it out, revoke its key.

        Returns:
            How many links it had; 0: there is no such process.

        Raises:
            AccessDenied: the key of this process has no right ``admin`` on ``control.kick``.
            RouterUnreachable, CallTimeout: there is no answer.
        """
        body = {"what": "control.kick", "identity": identity}
        return int(body_of(self._ask(Kind.QUERY, (b"", "router"), body, timeout))["links"])

    def describe(self, topic: Target, timeout: float | None = None) -> dict[str, Any]:
        """What is served on ``topic``: methods with signatures and docstrings.

        Raises:
            As :meth:`call`; NoConsumer at once where nobody consumes it, rather than when the time is over.
        """
        message = {"method": "rpcmq.describe", "args": {}}
        answer: dict[str, Any] = self.call(None, topic, message, timeout, mandatory=True)
        return answer

    # --- parts -------------------------------------------------------------------------------

    def _ask(self, kind: Kind, address: tuple[bytes, str], body: dict[str, Any], timeout: float | None) -> bytes:
        """The answer of the router itself."""
        deadline = monotonic() + self._timeout(timeout)
        self._ready(deadline - monotonic())
        call = Call(address[1], 0, max(0.001, deadline - monotonic()))
        process = self.process
        process.caller.start(monotonic(), call, kind, json_bytes(body), address=address[0])
        process.connection.schedule()
        process.wait(call)
        if call.error is not None:
            raise call.error
        assert call.answer is not None
        return call.answer

    def _start(
        self,
        process: Process,
        kind: int,
        ctx: Any,
        topic: Target,
        msg: Mapping[str, Any],
        seconds: float | None,
        flags: int,
        sign_of_life: float | None = None,
        traceparent: str | None = None,
    ) -> Call:
        """Send a message that is waited for, for so many ``seconds``; None: a cast, which does not age on its way."""
        process.check_usable()
        address, name = self._address(topic)
        started = monotonic()
        if not process.uplink.origin:
            self._ready(self._timeout(None) if seconds is None else seconds)
            if seconds is not None:
                seconds = max(0.001, seconds - (monotonic() - started))
        method, body = request_body(ctx, msg)
        if sign_of_life is not None:
            check_seconds("sign_of_life", sign_of_life)
            body["keepalive"] = sign_of_life / 3
        if self._codec.accepted & _DILL:
            flags |= Flag.ACCEPTS_DILL
        is_nested = handling() is not None
        if is_nested:
            flags |= Flag.NESTED
        known = process.accepts_by_topic.get(address, _ANY_FORMAT & self._codec.accepted)
        if process.payloads.limits:
            known &= process.payloads.formats(address)
        form, payload = process.encode(body, known)
        call = Call(name, flags, seconds)
        call.silence = sign_of_life
        if process.payloads.signs:
            call.flags, payload = process.payloads.sign_request(
                kind, call, flags, form, payload, address, method, call.timeout
            )
        process.caller.start(
            started,
            call,
            kind,
            payload,
            format=form,
            address=address,
            method=method,
            trace=trace_context(traceparent) if is_nested or traceparent is not None else b"",
        )
        process.connection.schedule()
        return call

    def _cast(
        self, ctx: Any, topic: Target, msg: Mapping[str, Any], flags: int, confirm: bool, ttl: float | None,
        timeout: float | None, traceparent: str | None = None,
    ) -> int | None:  # fmt: skip
        process = self.process
        seconds = self._timeout(timeout)
        life = {} if ttl is None else {"ttl": max(1, int(check_seconds("ttl", ttl) * 1000))}
        address, name = self._address(topic)
        if confirm:
            return self._confirmed(ctx, topic, msg, flags, ttl, seconds, traceparent)
        if not process.has_room(address):
            process.check_usable()
            process.wait_for_room(address, seconds, name)
        if not process.uplink.origin:
            process.check_usable()
            self._ready(seconds)
        else:
            process.connection.check_open()
        method, body = request_body(ctx, msg)
        known = process.accepts_by_topic.get(address, self._codec.accepted)
        if process.payloads.limits:
            known &= process.payloads.formats(address)
        form, payload = process.encode(body, known)
        if process.payloads.signs:
            flags, payload = process.payloads.sign_request(Kind.CAST, None, flags, form, payload, address, method, ttl)
        part = message(
            _CAST,
            payload,
            flags=flags,
            format=form,
            key=process.uplink.next_key(),
            address=address,
            method=method,
            trace=trace_context(traceparent) if traceparent is not None or handling() is not None else b"",
            **life,
        )
        process.caller.cast(part, address)
        process.connection.send_soon()
        return None

    def _confirmed(
        self, ctx: Any, topic: Target, msg: Mapping[str, Any], flags: int, ttl: float | None, seconds: float,
        traceparent: str | None,
    ) -> int:  # fmt: skip
        process = self.process
        deadline = monotonic() + seconds
        address, name = self._address(topic)
        if not process.has_room(address):
            process.check_usable()
            process.wait_for_room(address, seconds, name)
        if not process.uplink.origin:
            self._ready(max(0.001, deadline - monotonic()))
        for _ in range(2):
            call = self._start(process, _CAST, ctx, topic, msg, ttl, flags | Flag.CONFIRM, None, traceparent)
            try:
                with gevent.Timeout(max(0.001, deadline - monotonic())) as timer:
                    process.wait(call)
            except gevent.Timeout as expired:
                if expired is not timer:
                    raise
                raise self._not_confirmed(call, seconds) from None
            if not self._learn_format(call):
                break
        if call.error is not None:
            raise call.error
        assert call.answer is not None
        return int.from_bytes(payload_of(call.answer))

    def _not_confirmed(self, call: Call, seconds: float) -> CallTimeout:
        text = f"the router has not confirmed the cast to {call.address!r} within {seconds:g} s"
        if not call.withdrawn:
            return CallTimeout(f"{text}; it may still be delivered", {"topic": call.address})
        text += f": {self.process.connection.condition}; it was not sent, and will not be"
        return CallTimeout(text, {"topic": call.address, "started": "no"})

    def _call_again(
        self,
        ctx: Any,
        topic: Target,
        msg: Mapping[str, Any],
        timeout: float | None,
        retry: Retry | int | bool,
        mandatory: bool,
        sign_of_life: float | None,
        on_progress: Callable[[Any], None] | None,
        traceparent: str | None,
    ) -> Any:
        policy = Retry.of(retry)
        deadline = monotonic() + self._timeout(timeout)
        if on_progress is not None:
            on_progress = guarded(on_progress)

        def attempt() -> Any:
            return self.call(
                ctx,
                topic,
                msg,
                max(0.001, deadline - monotonic()),
                idempotent=True,
                mandatory=mandatory,
                sign_of_life=sign_of_life,
                on_progress=on_progress,
                traceparent=traceparent,
            )

        return policy.run(attempt, deadline, self._budget)

    def _progress(self, on_progress: Callable[[Any], None]) -> Callable[[Call, bytes], None]:
        payloads = self.process.payloads
        return lambda call, part: on_progress(payloads.answer(call, part))

    def _learn_format(self, call: Call) -> bool:
        """Whether the call was refused for its format only, and is worth sending in another."""
        error = call.error
        if error is None or error.details.get("outcome") != Outcome.PROTOCOL:
            return False
        accepts = error.details.get("accepts")
        if type(accepts) is not int:
            return False
        address = address_of(call.message)
        self.process.accepts_by_topic[address] = accepts & self._codec.accepted
        return True

    def _timeout(self, timeout: float | None) -> float:
        if timeout is not None:
            return check_seconds("timeout", timeout)
        request = None if handling() is None else current_request()
        if request is not None and request.remaining is not None:
            return max(0.001, request.remaining)
        return self.config.timeout

    def _ready(self, seconds: float) -> None:
        self.process.check_usable()
        self.process.connection.wait_ready(min(seconds, self.config.connect_timeout), seconds)

    def _address(self, topic: Target) -> tuple[bytes, str]:
        try:
            known = self._addresses.get(topic)
        except TypeError:
            raise UsageError(f"topic must be a str or an Address, not {type(topic).__name__}: {brief(topic)}") from None
        if known is None:
            address = topic if isinstance(topic, Address) else Address(topic, "", self.config.exchange)
            if len(self._addresses) > 10_000:
                self._addresses.clear()
            known = self._addresses[topic] = address.encode(), str(address)
        return known

    def _subscribing(self) -> Subscriptions:
        process, links = self.process, self._links
        process.connection.check_open()
        if links.subscriptions is None:
            links.subscriptions = Subscriptions(self.config, process, curve_for(process.keys))
        return links.subscriptions

    def _call_directly(
        self,
        ctx: Any,
        topic: Target,
        msg: Mapping[str, Any],
        deadline: float,
        on_progress: Callable[[Any], None] | None,
    ) -> Call | None:
        """A call on a direct link; None if there can be none, and the router is to be used."""
        process = self.process
        process.check_usable()
        address, name = self._address(topic)
        method, body = request_body(ctx, msg)
        if not process.direct.has_link(address):
            self._ready(deadline - monotonic())
        link = process.direct.link_to(address, name, max(0.001, deadline - monotonic()))
        if link is None:
            return None
        seconds = max(0.001, deadline - monotonic())
        payloads = process.payloads
        form, payload = self._codec.encode(
            body, process.direct.accepts(link) & self._codec.accepted & payloads.formats(address)
        )
        call = Call(name, Flag.ACCEPTS_DILL if self._codec.accepted & _DILL else 0, seconds)
        if payloads.signs:
            call.flags, payload = payloads.sign_request(
                Kind.REQUEST, call, call.flags, form, payload, address, method, seconds
            )
        progress = None if on_progress is None else self._progress(on_progress)
        process.direct.call(link, call, payload, form, address, method, progress)
        if call.error is not None and call.error.details.get("started") == "no":
            process.direct.forget(address)
            return None
        return call
