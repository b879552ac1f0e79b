"""Node types: the capabilities of a router, each with the kinds of messages that are its own.

A router is a container of links, turns and node types. To add a capability: derive from :class:`NodeType` in a
folder of its own, say which ``kinds`` are given to which handlers, override what of the life of links concerns it,
and list the class in :data:`rpcmq.core.router.router.NODE_TYPES`. ``docs/contributing/node-types.md`` has an example.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from math import inf
from typing import Any

from rpcmq.core.common.drops import Drops
from rpcmq.core.router.actions import Action
from rpcmq.core.router.directory import Directory
from rpcmq.core.router.dispatch_log import Sink
from rpcmq.core.router.faults import FaultReporter
from rpcmq.core.router.link_table import LinkTable
from rpcmq.core.router.mesh.relayed_connections import RelayedConnections
from rpcmq.core.router.model import Handler, Link
from rpcmq.core.router.settings import Settings
from rpcmq.core.router.turns import Turns
from rpcmq.core.router.view_rows import View
from rpcmq.errors import ProtocolError
from rpcmq.wire import Kind
from rpcmq.wire.bodies import HelloBody
from rpcmq.wire.body_fields import Body

__all__ = ["Control", "Greeter", "NodeContext", "NodeType"]

#: A change that an operator asks for: (now, link, body of the question) -> body of the answer.
Control = Callable[[float, Link, bytes], Body]
#: Handles a HELLO: (now, route, hello, user) -> the refusal to send to ``route``, or None. May raise ProtocolError.
Greeter = Callable[[float, bytes, HelloBody, str], bytes | None]


@dataclass(frozen=True)
class NodeContext:
    """The parts of the router that its node types use."""

    settings: Settings
    links: LinkTable
    directory: Directory
    #: Messages that were accepted and given up.
    drops: Drops
    #: The counter of work beyond a message's own handling.
    turns: Turns
    faults: FaultReporter
    #: Wall-clock milliseconds, and monotonic seconds, at the start.
    boot: int
    now: float
    #: Have the shell do something.
    act: Callable[[Action], None]
    #: Attribute a message that broke the protocol to its link, and tell it: (now, link, message, error).
    protocol_error: Callable[[float, Link, bytes, ProtocolError], None]
    #: Handle messages that were held as if they came now, as many as fit into a turn; returns how many.
    handle: Callable[[float, Link, Sequence[bytes]], int]
    #: Makes an unguessable string, and the handle of a link.
    new_token: Callable[[], str]
    new_handle: Callable[[], int]
    #: The dispatch log; None: there is none.
    sink: Sink | None
    #: The connections that other routers carry.
    relayed: RelayedConnections
    #: Have the engine receive a batch: (now, route, batch, detached payloads).
    receive: Callable[[float, bytes, bytes, Sequence[bytes | memoryview]], None]

    def guarded(self, now: float, step: Callable[..., None], *args: Any) -> None:
        """See :meth:`rpcmq.core.router.faults.FaultReporter.guarded`."""
        self.faults.guarded(now, step, *args)


class NodeType:
    """One capability of a router. Every method does nothing here.

    A handler gets (now, link, message). It may raise :class:`~rpcmq.errors.ProtocolError`, of which the sender is told;
    any other exception costs that message only. Exceptions of the other methods are reported, and the rest is done.
    """

    #: The messages that it takes.
    kinds: Mapping[Kind, Handler] = {}
    #: Kinds, of ``kinds``, for whose answer the sender waits: one that breaks the protocol is answered with an ERROR.
    answered: Set[Kind] = frozenset()
    #: Of kinds of nodes that are plugged in: what a key needs the right ``node`` on; empty: the handler checks it.
    rights: Mapping[int, str] = {}
    #: Handlers that refuse messages of a link for which the router holds too much already.
    refusals: Mapping[Kind, Handler] = {}
    #: The views for ``rpcmq ls`` and QUERY: name -> the steps that make it.
    views: Mapping[str, Callable[[float], View]] = {}
    #: The controls, which operators ask for: name -> its handler.
    controls: Mapping[str, Control] = {}
    #: The queue types of links that are not of processes: name -> handles their HELLO.
    greeters: Mapping[str, Greeter] = {}

    def meet(self, others: Sequence[NodeType]) -> None:
        """Get to know the node types of the router, of which this is one. All have been made by then."""

    def relay(self, now: float, link: Link, messages: Sequence[bytes]) -> None:
        """Take a RELAY, and the messages behind it, which came on ``link``.

        Raises:
            ProtocolError: it is malformed, or ``link`` may not send one.
        """

    def connected(self, now: float, route: bytes) -> None:
        """The connection ``route``, which was asked for with :class:`rpcmq.core.router.actions.Dial`, stands."""

    def dialed_message(self, now: float, route: bytes, message: bytes) -> None:
        """``message`` came on such a connection; it carries no link, or the other end has no right to send this."""

    def connection_lost(self, now: float, route: bytes, reason: str) -> None:
        """A connection is gone, or could not be had, and why. A link that it carried is told of first."""

    def tick(self, now: float) -> None:
        """Do what is due."""

    def release(self, now: float) -> None:
        """Pass on what was held and is due; after :meth:`tick`, and after links that are silent were noticed."""

    def next_deadline(self) -> float:
        """The time of the next :meth:`tick` or :meth:`release` (monotonic seconds)."""
        return inf

    def link_changed(self, now: float, link: Link) -> None:
        """``link`` stops or starts answering, is away or back."""

    def link_lapsed(self, now: float, link: Link) -> None:
        """``link`` has been away for longer than its consumers are waited for."""

    def link_taken(self, now: float, link: Link, messages: list[bytes]) -> None:
        """The process of ``link`` has received ``messages``."""

    def link_has_room(self, now: float, link: Link) -> None:
        """``link``, which was full, takes messages again."""

    def link_ended(self, now: float, link: Link, reason: str) -> None:
        """``link`` is gone for good."""

    def begin_drain(self, now: float) -> None:
        """A drain begins: take nothing new; what runs may finish."""

    def refuse_nested_work(self) -> None:
        """The drain waits for running handlers no more: refuse what they ask for, too."""

    def finish_drain(self, now: float) -> None:
        """The drain is over: tell those who still wait."""

    def close(self, now: float) -> None:
        """The router ends."""
