"""The PubSub link of a process to a router: one for all its events and subscriptions."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from time import monotonic
from typing import Any, TypeVar

from rpcmq.client.event_subscription import BaseSubscription, Event, SubscriptionOwner
from rpcmq.client.hello import hello_of
from rpcmq.client.limited_log import RateLimitedLog
from rpcmq.client.process import Process
from rpcmq.client.thread_process import ThreadProcess
from rpcmq.config import ClientConfig
from rpcmq.core.common.topic_patterns import PatternTrie, split_words
from rpcmq.core.process.call import Call
from rpcmq.core.process.calls import Calls
from rpcmq.core.process.casts import Casts
from rpcmq.core.process.recent_messages import RecentMessages
from rpcmq.core.process.uplink import Uplink
from rpcmq.core.process.welcome import Welcome
from rpcmq.errors import CallError, LinkLost, Overloaded, PayloadRefused, ProtocolError, UsageError
from rpcmq.payload.bounded_text import short_repr
from rpcmq.payload.seal import NotTrusted
from rpcmq.transport.connection import Connection
from rpcmq.transport.curve import Curve
from rpcmq.transport.home import Housed
from rpcmq.wire import (
    KEY,
    KIND_AT,
    LOW_FLAGS_AT,
    Address,
    Flag,
    Kind,
    address_of,
    method_of,
    pack,
    parse,
    payload_of,
)
from rpcmq.wire.bodies import SubscribeBody

__all__ = ["EventLink"]

log = logging.getLogger("rpcmq.client")

S = TypeVar("S", bound=BaseSubscription)


class EventLink:
    """The PubSub link of a process; made when it first publishes or subscribes.

    Args:
        config: its router or, for what is published only, routers.
        role: ``CONSUMER_ROLE`` of a link over which nothing is published.
    """

    def __init__(
        self, config: ClientConfig, process: Process, curve: Curve | None = None, role: str = "process"
    ) -> None:
        self._config = config
        self._process = process
        self._payloads = payloads = process.payloads
        self._codec = codec = payloads.codec
        hello = hello_of(process.identity, "pubsub", codec.accepted, role)
        self._trie: PatternTrie[BaseSubscription] = PatternTrie()
        self._all: dict[BaseSubscription, int] = {}
        self._taken = 0
        self._lost_in_all = 0
        self._recent = RecentMessages()
        self._recent.look_up_often()
        self._room = process.shell.event()
        self._uplink = Uplink(hello, self._welcomed, self._refused)
        self._limited_log = RateLimitedLog(log)
        #: Told the payload of each event that a router has refused for good, and nobody waited for.
        self.on_refused: Callable[[Any], None] | None = None
        self._casts = Casts(self._uplink, self._publish_refused)
        self._calls = Calls(self._uplink, self._casts)
        self._uplink.handle(Kind.PUBLISH, self._event)
        self._uplink.handle(Kind.LOST, self._lost)
        self.connection = Connection(
            config.router,
            self._uplink,
            (self._calls,),
            self._after_receive,
            self._before_flush,
            process.shell,
            config.reconnect_max_seconds,
            config.connect_timeout,
            curve,
            config.linger_seconds,
            "event",
        )
        # Events that threads have handed over.
        self.connection.call_when_closed(process.do_posted)

    # --- verbs -------------------------------------------------------------------------------

    def subscribe(
        self, client: Housed, pattern: str, new_subscription: Callable[[SubscriptionOwner, Housed, str], S], window: int
    ) -> S:
        """See :meth:`Client.subscribe`.

        Args:
            new_subscription: makes it, from this, ``client`` and ``pattern``.
        """
        self.check(pattern, window)
        self._ready()
        subscription = new_subscription(self, client, pattern)
        known = any(other.pattern == pattern for other in self._all)
        self.add(subscription, window)
        if not known:
            try:
                self.confirm(pattern, window)
            except BaseException:
                subscription.end()
                raise
        return subscription

    def share_recent(self, other: EventLink) -> None:
        """Recognise an event also if it was had over ``other``: its publisher may go on at another router."""
        self._recent.share(other._recent)

    def check(self, pattern: str, window: int) -> None:
        """Check the arguments of :meth:`subscribe`.

        Raises:
            UsageError: one is wrong, or the client is closed.
        """
        self.connection.check_open()
        self._check(pattern, "pattern")
        if isinstance(window, bool) or not isinstance(window, int) or not 1 <= window <= 65535:
            raise UsageError(f"window must be an integer from 1 to 65535, not {short_repr(window)}")

    def add(self, subscription: BaseSubscription, window: int) -> None:
        """Give ``subscription`` the events for its pattern. A router that welcomes us from now on is asked for them."""
        self._trie.add(subscription.pattern.encode(), subscription)
        self._all[subscription] = window

    def confirm(self, pattern: str, window: int) -> None:
        """Ask the router for the events of ``pattern``, and wait until it has confirmed.

        Raises:
            CallError: it refuses, or gives no answer.
        """
        self._wait(self._subscribe(pattern, window, self._config.timeout))

    def publish(self, ctx: Any, topic: str, payload: Any, confirm: bool) -> int | None:
        """See :meth:`Client.publish`."""
        self._check(topic, "topic")
        self._ready()
        if not self._has_room:
            self._wait_for_room(topic)
        address, form, data = self._encoded(ctx, topic, payload)
        flags = Flag.CONFIRM if confirm else 0
        if self._payloads.signs:
            flags, data = self._payloads.sign_request(Kind.PUBLISH, None, flags, form, data, address, b"", None)
        if not confirm:
            self._send(address, form, data, flags)
            return None
        call = Call(topic, flags, self._config.timeout)
        self._calls.start(monotonic(), call, Kind.PUBLISH, data, format=form, address=address)
        message = self._wait(call)
        return int.from_bytes(payload_of(message))

    def publish_soon(self, process: ThreadProcess, ctx: Any, topic: str, payload: Any) -> bool:
        """Hand an event over to the loop of ``process``, whose link this is; from any thread.

        Returns:
            False: nothing was sent; :meth:`publish` is needed, and may have to wait.
        """
        self._check(topic, "topic")
        self.connection.check_open()
        if not self._uplink.origin or not self._has_room or process.has_fallen_behind:
            return False
        address, form, data = self._encoded(ctx, topic, payload)
        if process.must_count(data, self._casts.open):
            return False
        process.post_message(self.connection, self._send_posted, data, address, form)
        return True

    def _send_posted(self, data: bytes, address: bytes, form: int) -> None:
        try:
            self._send(address, form, data, 0)
        except Exception as error:
            log.error("event %s not published: %s", Address.decode(address).topic, error)

    def _encoded(self, ctx: Any, topic: str, payload: Any) -> tuple[bytes, int, bytes]:
        address = Address(topic, "", self._config.exchange).encode()
        accepted = self._codec.accepted & self._payloads.formats(address)
        return address, *self._codec.encode({"context": ctx, "payload": payload}, accepted)

    def _send(self, address: bytes, form: int, data: bytes, flags: int) -> None:
        key = self._uplink.next_key()
        self._casts.send(pack(Kind.PUBLISH, data, flags=flags, format=form, key=key, address=address), address)
        self.connection.send_soon()

    def close(self, linger_seconds: float | None = None) -> None:
        """End all subscriptions and the link.

        Args:
            linger_seconds: how long to wait at most until the router has what is queued; default: the setting.
        """
        for subscription in list(self._all):
            subscription.end()
        self._calls.fail_all(LinkLost("the client was closed while the router's answer was awaited"))
        self._room.set()
        self.connection.schedule()
        self.connection.close(linger_seconds)

    def remove(self, subscription: BaseSubscription) -> None:
        """``subscription`` was closed."""
        if subscription not in self._all:
            return
        self._trie.remove(subscription.pattern.encode(), subscription)
        self._all.pop(subscription, None)
        if self._uplink.origin and not any(other.pattern == subscription.pattern for other in self._all):
            address = Address(subscription.pattern, "", self._config.exchange).encode()
            self._uplink.send(pack(Kind.UNSUBSCRIBE, key=self._uplink.next_key(), address=address))
            self.connection.schedule()

    def opened(self, event: Event) -> tuple[Any, str, Any]:
        """Context, topic and payload of an event.

        Raises:
            PayloadRefused, ProtocolError: it is malformed or not allowed.
        """
        if event.refused is not None:
            raise event.refused
        message, again = event.message, event.seen
        event.seen = True
        try:
            body = self._payloads.event(message, again)
        except NotTrusted as error:
            event.refused = error
            raise
        if type(body) is not dict:
            raise PayloadRefused("the payload is no mapping with context and payload")
        return body.get("context"), Address.decode(address_of(message)).topic, body.get("payload")

    def handled(self, event: Event) -> None:
        """Release ``event``, which a handler has finished."""
        event.handlers -= 1
        if event.handlers == 0:
            self._taken += 1
            self._uplink.mark()
            self.connection.schedule()

    # --- in the loop --------------------------------------------------------------------------

    def _event(self, now: float, message: bytes) -> None:
        parse(message)
        key = message[KEY]
        # Its publisher could not know that a router had passed it on, and in a mesh copies take different ways.
        may_be_copy = message[LOW_FLAGS_AT] & Flag.RESENT or self._uplink.moves.mesh is not None
        if may_be_copy and self._recent.is_known(key):
            self._taken += 1
            self._uplink.mark()
            return
        self._recent.add(key)
        subscriptions = self._trie.match(Address.decode(address_of(message)).topic.encode())
        event = Event(self, message, len(subscriptions))
        for subscription in subscriptions:
            subscription.offer(event)
        if not subscriptions:
            self._taken += 1
            self._uplink.mark()

    def _lost(self, now: float, message: bytes) -> None:
        parse(message)
        count, router = int.from_bytes(payload_of(message)), method_of(message)
        for subscription in self._all:
            subscription.lost += count
        self._lost_in_all += count
        why = "this process takes them too slowly"
        if router:
            why = f"the router {router!r} could not pass them on as fast as they came"
        text = f"{count} events lost, {self._lost_in_all} in all: {why}"
        self._limited_log.warning("lost", text)

    def _welcomed(self, now: float, welcome: Welcome) -> None:
        self._calls.welcome(now, welcome)
        if not welcome.resumed:
            self._taken = 0
            # Subscriptions go first: a process may subscribe to its own events.
            events = self._uplink.outbox[:]
            self._uplink.outbox.clear()
            waiting = {c.address for c in self._calls.open.values() if c.message[KIND_AT] == Kind.SUBSCRIBE}
            for call in [c for c in self._calls.open.values() if c.message[KIND_AT] == Kind.SUBSCRIBE]:
                self._uplink.send(call.message)
            for pattern in {s.pattern: None for s in self._all if s.pattern not in waiting}:
                window = max(w for s, w in self._all.items() if s.pattern == pattern)
                call = self._subscribe(pattern, window, None)
                call.waiter = partial(self._subscribed_again, call)
            self._uplink.outbox.extend(events)
        self.connection.on_ready()

    def _subscribed_again(self, call: Call) -> None:
        if call.error is not None and not self.connection.closed:
            log.error("no events for %s come from the router %s: %s", call.address, self.connection.url, call.error)

    def _refused(self, reason: str, text: str) -> None:
        self.connection.on_refused(reason, text)

    def _publish_refused(self, message: bytes, error: CallError) -> bytes | None:
        self._limited_log.error((address_of(message), type(error)), f"event not published: {error}")
        if self.on_refused is not None:
            try:
                self.on_refused(self._payloads.event(message, True)["payload"])
            except Exception as error_of_ours:
                self._uplink.discarded["internal error"] += 1
                self._limited_log.error("on_refused", "an event that was refused could not be told of", error_of_ours)
        return None

    def _after_receive(self) -> None:
        for call in self._calls.take_changed():
            if call.waiter is not None:
                call.waiter()
        if self._has_room:
            self._room.set()
        elif not self._room.is_set():
            self._uplink.ask_acknowledgement()

    def _before_flush(self) -> None:
        if self._taken:
            self._uplink.send(pack(Kind.EVENT_CREDIT, self._taken.to_bytes(4)))
            self._taken = 0

    # --- parts -------------------------------------------------------------------------------

    def _check(self, name: str, what: str) -> None:
        if not isinstance(name, str):
            raise UsageError(f"{what} must be a str, not {type(name).__name__}: {short_repr(name)}")
        try:
            split_words(name.encode(), what)
        except ProtocolError as error:
            raise UsageError(str(error)) from None

    def _ready(self) -> None:
        self.connection.check_open()
        if not self._uplink.origin:
            self.connection.wait_ready(self._config.connect_timeout, self._config.timeout)

    @property
    def _has_room(self) -> bool:
        casts, config = self._casts, self._config
        return casts.open < config.cast_window and casts.open_bytes < config.cast_window_bytes

    def _wait_for_room(self, topic: str) -> None:
        """Wait until the router has acknowledged enough events, as for casts.

        Raises:
            Overloaded: it has not after the client's ``timeout``.
        """
        deadline = monotonic() + self._config.timeout
        while not self._has_room:
            self._uplink.ask_acknowledgement()
            self.connection.schedule()
            self._room.clear()
            left = deadline - monotonic()
            if left <= 0 or not self._process.shell.can_wait or not self._room.wait(left):
                open_events = self._casts.open
                text = f"event {topic!r} not sent: {open_events} events wait for the router to take them; "
                text += self.connection.condition
                raise Overloaded(text, {"topic": topic, "events_open": open_events})
            self.connection.check_open()

    def _subscribe(self, pattern: str, window: int, timeout: float | None) -> Call:
        address = Address(pattern, "", self._config.exchange).encode()
        call = Call(pattern, 0, timeout)
        self._calls.start(monotonic(), call, Kind.SUBSCRIBE, SubscribeBody(window=window).payload(), address=address)
        return call

    def _wait(self, call: Call) -> bytes:
        done = self._process.shell.event()
        call.waiter = done.set
        self.connection.schedule()
        if not call.done:
            done.wait()
        if call.error is not None:
            raise call.error
        assert call.answer is not None
        return call.answer
