"""Ordered effects: what must be durable, then what is sent, then the rest.

A router that confirmed a message before it was on the disk would lose it, having promised not to. So a wake-up of the
engine leads to effects of three kinds, as in etcd's raft library (``Ready``), and :meth:`Effects.perform` is the one
place that says in which order a shell does them. What the effects lead to (a full link, an ended one) may have effects
itself; these come after.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from rpcmq.core.common.session import Session
from rpcmq.core.router.actions import Action
from rpcmq.core.router.mesh.relayed_connections import RelayedConnections
from rpcmq.core.router.mesh.ways import Put

__all__ = ["NO_STORE", "Effects", "Store", "StoreError"]


class StoreError(Exception):
    """Entries that must be durable could not be stored; nothing was sent meanwhile."""


class Store(Protocol):
    """Keeps entries over the death of a router."""

    def persist(self, entries: Sequence[bytes]) -> None:
        """Return once ``entries`` are durable, all of them and in this order.

        Raises:
            OSError: none of them is. They come again, before any that are later.
        """


class _NoStore:
    """The store of a router none of whose node types makes anything durable."""

    def persist(self, entries: Sequence[bytes]) -> None:
        raise OSError(f"{len(entries)} entries are to be durable, and the router has no store")


NO_STORE: Store = _NoStore()


class Effects:
    """The work of a shell: first :attr:`durable`, then the outboxes of :attr:`dirty`, then :attr:`actions`."""

    __slots__ = ("actions", "dirty", "durable", "relayed")

    def __init__(self, dirty: list[Session], relayed: RelayedConnections) -> None:
        #: Entries that must be in the store before anything is sent.
        self.durable: list[bytes] = []
        #: Links that have something to send.
        self.dirty = dirty
        self.actions: list[Action] = []
        #: Messages to and from routers that this one is not linked to.
        self.relayed = relayed

    def __bool__(self) -> bool:
        return bool(self.durable or self.dirty or self.actions or self.relayed.waiting or self.relayed.transit)

    def perform(self, store: Store, send: Callable[[Session], None], act: Callable[[Action], None], put: Put) -> None:
        """Do everything there is.

        Args:
            store: for what must be durable.
            send: sends what is in the outbox of a link; must not raise.
            act: does one action; must not raise.
            put: sends a batch on a connection, unless that takes nothing now; must not raise.

        Raises:
            StoreError: the store failed. Nothing was sent, and all is still to be done.
        """
        dirty, relayed = self.dirty, self.relayed
        while self.durable or dirty or self.actions or relayed.waiting or relayed.transit:
            if self.durable:
                self._persist(store)
            if relayed.waiting or relayed.transit:
                # First: a batch for a neighbour and others takes what the neighbour's link has to send.
                relayed.carry(put)
            sessions, actions = dirty[:], self.actions[:]
            dirty.clear()
            self.actions.clear()
            for session in sessions:
                session.marked = False
                send(session)
            for action in actions:
                act(action)

    def _persist(self, store: Store) -> None:
        entries = self.durable[:]
        try:
            store.persist(entries)
        except OSError as error:
            raise StoreError(f"{len(entries)} entries are not durable: {error}") from error
        del self.durable[: len(entries)]
