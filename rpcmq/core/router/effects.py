"""Effects: what is sent first, then the rest.

A wake-up of the engine leads to messages and to actions, and :meth:`Effects.perform` is the one place that says in
which order a shell does them. What they lead to (a full link, an ended one) may have effects itself; these come after.
"""

from __future__ import annotations

from collections.abc import Callable

from rpcmq.core.common.session import Session
from rpcmq.core.router.actions import Action
from rpcmq.core.router.mesh.relayed_connections import RelayedConnections
from rpcmq.core.router.mesh.ways import Put

__all__ = ["Effects"]


class Effects:
    """The work of a shell: first the outboxes of :attr:`dirty`, then :attr:`actions`."""

    __slots__ = ("actions", "dirty", "relayed")

    def __init__(self, dirty: list[Session], relayed: RelayedConnections) -> None:
        #: Links that have something to send.
        self.dirty = dirty
        self.actions: list[Action] = []
        #: Messages to and from routers that this one is not linked to.
        self.relayed = relayed

    def __bool__(self) -> bool:
        return bool(self.dirty or self.actions or self.relayed.waiting or self.relayed.transit)

    def perform(self, send: Callable[[Session], None], act: Callable[[Action], None], put: Put) -> None:
        """Do everything there is.

        Args:
            send: sends what is in the outbox of a link; must not raise.
            act: does one action; must not raise.
            put: sends a batch on a connection, unless that takes nothing now; must not raise.
        """
        dirty, relayed = self.dirty, self.relayed
        while dirty or self.actions or relayed.waiting or relayed.transit:
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
