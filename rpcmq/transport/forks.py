"""After a fork, the child abandons inherited sockets: a ZeroMQ socket belongs to one process.

The child's event loop would otherwise take from the inherited file descriptors the signs that the
parent waits for. The loops of other threads than the one that forked have no thread in the child, and may have been in
the middle of anything, or are destroyed: nothing of them is touched, and all of it is kept, so that nothing is
finalized either.
"""

from __future__ import annotations

import os
import weakref
from typing import Any, Protocol

import gevent
from gevent._hub_local import get_hub_if_exists

__all__ = ["Inherited", "abandon_after_fork"]


class Inherited(Protocol):
    """Owns a socket."""

    def abandon(self, loop_runs: bool) -> None:
        """In a forked child: forget the socket, without touching it, and stop listening.

        Args:
            loop_runs: the event loop is that of the thread that forked; else its watchers must not be touched.
        """


_owners: weakref.WeakKeyDictionary[Inherited, Any] = weakref.WeakKeyDictionary()
_left_behind: list[tuple[Inherited, Any]] = []


def abandon_after_fork(owner: Inherited) -> None:
    """Have ``owner`` abandon its socket in each child that is forked."""
    _owners[owner] = get_hub_if_exists()


def _in_child() -> None:
    inherited = list(_owners.items())
    _owners.clear()
    ours = get_hub_if_exists()
    for owner, hub in inherited:
        loop_runs = hub is ours
        if not loop_runs:
            _left_behind.append((owner, hub))
        owner.abandon(loop_runs)
    if inherited:
        gevent.reinit()


os.register_at_fork(after_in_child=_in_child)
