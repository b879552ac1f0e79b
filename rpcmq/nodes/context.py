"""The parts of a router that a plugged-in node may use."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from rpcmq.core.common.text import shorten
from rpcmq.core.common.token_bucket import TokenBucket
from rpcmq.core.router.actions import LogEvent
from rpcmq.core.router.node_type import NodeContext
from rpcmq.nodes.guards import Guards
from rpcmq.nodes.keeper import Keeper
from rpcmq.nodes.other_routers import OtherRouters
from rpcmq.nodes.watches import Watches

__all__ = ["Context"]

#: Log events of one node in a second; further ones are counted.
_EVENTS_PER_SECOND = 20.0
_MAX_FIELDS_BYTES = 16 << 10
#: Sorts of events of one node: the router's log counts each.
_MAX_EVENT_NAMES = 50
#: Names that a log record has for itself.
_TAKEN = frozenset(("event", "identity", "level", "log", "message", "text", "time"))


class Context:
    """The things that a node may do beside answering, and may know.

    Attributes:
        name: of the node.
        max_bytes: bytes that it may hold.
        router: the router's name.
        now: the time at which it was made (monotonic seconds).
        boot: wall-clock milliseconds at the router's start.
        keeps: whether its table has a ``file``, so that it can :meth:`keep` something for its next life.
    """

    def __init__(
        self, node: NodeContext, watches: Watches, guards: Guards, others: OtherRouters, keeper: Keeper | None,
        name: str, max_bytes: int, now: float,
    ) -> None:  # fmt: skip
        self._node = node
        self._watches = watches
        self._guards = guards
        self._others = others
        self._keeper = keeper
        self.keeps = keeper is not None
        self._events = TokenBucket(_EVENTS_PER_SECOND, now)
        self._event_names: set[str] = set()
        self.name = name
        self.max_bytes = max_bytes
        self.router = node.settings.router_name
        self.now = now
        self.boot = node.boot
        #: Log events that were left out because there were too many.
        self.events_left_out = 0

    def log(
        self, now: float, event: str, text: str, identity: str = "", fields: Mapping[str, Any] | None = None
    ) -> None:
        """Write to the router's log.

        Args:
            event: what happened, in a word or two: the same for all events of a sort.
            text: one sentence.
            identity: the process that it is about.
            fields: the same for machines, JSON values of at most 16 KiB. One that a log record has already gets
                ``node_`` before its name.

        Raises:
            TypeError, ValueError: the fields are no JSON, or too large.
        """
        told = {f"node_{name}" if name in _TAKEN else str(name): value for name, value in (fields or {}).items()}
        if (size := len(json.dumps(told))) > _MAX_FIELDS_BYTES:
            raise ValueError(f"fields of {size} bytes; at most {_MAX_FIELDS_BYTES} are allowed")
        if self._events.take(now):
            self.events_left_out += 1
            return
        if len(self._event_names) < _MAX_EVENT_NAMES:
            self._event_names.add(event)
        event = event if event in self._event_names else "other"
        self._node.act(LogEvent(f"{self.name}: {event:.50}", shorten(text), identity, told))

    def watch_topic(self, topic: str, exchange: str = "") -> None:
        """Have :meth:`rpcmq.nodes.Node.passed` called for all calls and casts of a topic, and their ends.

        Each message of it costs its router more from now on: unwatch it as soon as you can.
        """
        self._watches.add(topic, exchange)

    def unwatch_topic(self, topic: str, exchange: str = "") -> None:
        """Watch the topic no more."""
        self._watches.remove(topic, exchange)

    def guard_topic(self, topic: str, exchange: str = "") -> None:
        """Have :meth:`rpcmq.nodes.Node.stops` asked about each call and cast of a topic, but fanouts.

        Each message of it costs its router more from now on: let it go as soon as you can.

        Raises:
            ValueError: 1,000 are guarded already.
        """
        self._guards.add(topic, exchange)

    def unguard_topic(self, topic: str, exchange: str = "") -> None:
        """Guard the topic no more."""
        self._guards.remove(topic, exchange)

    def keys_serving(self, topic: str, exchange: str = "", server: str = "") -> frozenset[str]:
        """The names of the keys of the processes that consume a topic at this router; none without access control.

        Args:
            server: where it is not empty, only of those that are this server.
        """
        found = self._node.directory.lookup(exchange, topic)
        if found is None or self._node.links.access.usages() is None:
            return frozenset()
        place = found[0].servers.get(server) if server else found[1] or found[0]
        keys = (consumer.link.key for consumer in (place.consumers if place is not None else ()))
        return frozenset(key.name for key in keys if key is not None)

    def knows_key(self, name: str) -> bool:
        """Return whether this router lets processes connect with the key ``name``; yes without access control."""
        usages = self._node.links.access.usages()
        return usages is None or any(usage.key.name == name for usage in usages)

    def tell_routers(self, news: Mapping[str, Any], router: str = "") -> None:
        """Tell the nodes of the same name at the other routers of the mesh: their :meth:`rpcmq.nodes.Node.told`.

        It arrives once and in order at each router that is linked, and stays linked; one that joins later is told
        of by :meth:`rpcmq.nodes.Node.router_joined`.

        Args:
            news: a JSON object of at most 64 KiB.
            router: the name of the one router that is told; empty: all.

        Raises:
            TypeError, ValueError: it is no JSON, or too large.
        """
        self._others.tell(news, router)

    def keep(self, name: str, row: Mapping[str, Any] | None) -> None:
        """Keep ``row`` for the next life of the node, and of the router, in place of the one with this name.

        The router writes it to the ``file`` of the node's table, a little later and without waiting;
        :meth:`rpcmq.nodes.Node.was_kept` says that it is on the disk. Nothing happens where there is no such file.

        Args:
            row: a JSON object of at most 64 KiB; None: the one that there is is wanted no more.

        Raises:
            TypeError, ValueError: it is no JSON, or all rows together have more than ``max_bytes``.
        """
        if self._keeper is not None:
            self._keeper.keep(name, row)

    def kept(self) -> dict[str, dict[str, Any]]:
        """The rows that were kept, by name: at the start of a node those of its life before.

        Whoever may write the file may have changed them: check them like what others send.
        """
        return self._keeper.rows if self._keeper is not None else {}

    def new_token(self) -> str:
        """An unguessable string."""
        return self._node.new_token()

    def wall_ms(self, now: float) -> int:
        """The wall clock at ``now``, as far as it was not set since the start of the router (milliseconds)."""
        return self._node.boot + int((now - self._node.now) * 1000)
