"""The base class of node types that are plugged into a router."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any, ClassVar

from rpcmq.nodes.ask import Ask
from rpcmq.nodes.context import Context
from rpcmq.nodes.loss import Loss
from rpcmq.nodes.passage import Passage
from rpcmq.nodes.peer import Peer
from rpcmq.nodes.stop import Stop

__all__ = ["API_VERSION", "NoSettings", "Node"]

#: The version of the contract. Names are added within one; a node of another one is not loaded.
API_VERSION = 1


@dataclass(frozen=True)
class NoSettings:
    """A node without settings of its own."""


class Node:
    """One capability of a router, from a plug-in. Every method does nothing here.

    It does no I/O, starts no thread, never waits, and reads no clock: the time comes in as ``now``, monotonic seconds.
    A :class:`~rpcmq.errors.ProtocolError` in :meth:`take` or :meth:`control` is the sender's fault, who is told. Any
    other exception, of any method, takes the node out of the router: all that it owes an answer get an error which says
    so, and so does whoever asks later, until an operator has it start over (``rpcmq node restart``). The same becomes
    of a node that holds more than ``max_bytes`` or takes longer than ``max_seconds`` for one step.

    Args:
        context: what it may use of the router.
        settings: a :attr:`Settings` with the values of its ``[[node]]`` table.
    """

    #: The version of the contract that it was written for.
    api_version: ClassVar[int] = API_VERSION
    #: A frozen dataclass whose fields are made with :func:`rpcmq.nodes.setting`.
    Settings: ClassVar[type] = NoSettings
    #: The kinds of messages that it takes, from 0x90 on, and for each the word of the right to send one, which is
    #: ``node`` on ``NAME.word``. Where the word is empty the node checks it with :meth:`rpcmq.nodes.Ask.require`.
    kinds: ClassVar[Mapping[int, str]] = {}
    #: The names of its controls. They are called ``control.NAME.name``, and need the right ``admin`` on that.
    controls: ClassVar[Sequence[str]] = ()
    #: The names of its views. They are called ``NAME.name``, and need the right ``admin`` on that.
    views: ClassVar[Sequence[str]] = ()

    def __init__(self, context: Context, settings: Any) -> None:
        self.context = context
        self.settings = settings

    def take(self, now: float, ask: Ask) -> None:
        """Take a message of one of :attr:`kinds`; answer it now, or keep it and answer later.

        Raises:
            ProtocolError: it is malformed: its sender is told.
        """

    def ask_ended(self, now: float, ask: Ask) -> None:
        """An ask that was not answered has ended: its time is up, or its process is gone."""

    def control(self, now: float, name: str, peer: Peer, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """Do what an operator asks for, one of :attr:`controls`; return a JSON object.

        Raises:
            ProtocolError: the arguments are wrong: the operator is told.
        """
        raise NotImplementedError

    def view(self, now: float, name: str) -> Iterable[Mapping[str, Any]]:
        """The rows of one of :attr:`views`, JSON objects. A few are taken at a time, and other work is done between."""
        return ()

    def metrics(self) -> Mapping[str, float]:
        """Counters of it, which never decrease, by name; a few."""
        return {}

    def tick(self, now: float) -> None:
        """Do what is due."""

    def next_deadline(self) -> float:
        """The time of the next :meth:`tick` (monotonic seconds). It is asked after each of the other methods."""
        return inf

    def peer_ended(self, now: float, peer: Peer, reason: str) -> None:
        """The process is gone for good, and with it what it has asked; let go of what is kept for it."""

    def passed(self, passage: Passage) -> None:
        """Something has passed of a topic that is watched; see :meth:`rpcmq.nodes.Context.watch_topic`."""

    def stops(self, passage: Passage) -> Stop | None:
        """Return why no consumer may be given a call or cast of a topic that is guarded; None: it may be given.

        It is asked of each that comes, and each that is to be given to a consumer again; see
        :meth:`rpcmq.nodes.Context.guard_topic`.
        """
        return None

    def consumer_away(self, now: float, loss: Loss) -> None:
        """The connection of a process that consumes is lost. It may come back: :meth:`consumer_back`.

        A node that has this method or one of the next two is told of the losses of all processes that consume.
        """

    def consumer_gone(self, now: float, loss: Loss) -> None:
        """A process that was away is taken for dead: what it had goes elsewhere, or ends, right after this."""

    def consumer_back(self, now: float, peer: Peer) -> None:
        """A process that was away is back, with the same session; also after :meth:`consumer_gone`."""

    def router_joined(self, now: float, router: str) -> None:
        """A router of the mesh is linked, and knows nothing of what was told before.

        :meth:`rpcmq.nodes.Context.tell_routers` tells it.
        """

    def told(self, now: float, router: str, news: Mapping[str, Any]) -> None:
        """The node of the same name at another router has told something.

        Raises:
            ProtocolError: it makes no sense: that is counted at the other router's link.
        """

    def was_kept(self, now: float, problem: str) -> None:
        """All that was handed to :meth:`rpcmq.nodes.Context.keep` until now is on the disk.

        Args:
            problem: why it is not; empty: it is. It is tried again.
        """

    def begin_drain(self, now: float) -> None:
        """The router stops soon: take nothing new."""

    def close(self, now: float) -> None:
        """The router ends, or the node is taken out by an operator. Not called when it has failed."""
