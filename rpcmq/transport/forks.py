"""After a fork the child lets go of what it inherited: a ZeroMQ socket is for one process only.

The child's event loop would otherwise take from the inherited file descriptors the signs that the
parent waits for.
"""

from __future__ import annotations

import os
import weakref
from typing import Protocol

import gevent

__all__ = ["Inherited", "abandon_after_fork"]


class Inherited(Protocol):
    """Owns a socket."""

    def abandon(self) -> None:
        """In a forked child: forget the socket and stop listening, without touching it."""


_owners: weakref.WeakSet[Inherited] = weakref.WeakSet()


def abandon_after_fork(owner: Inherited) -> None:
    """Have ``owner`` abandon its socket in each child that is forked."""
    _owners.add(owner)


def _in_child() -> None:
    inherited = list(_owners)
    _owners.clear()
    for owner in inherited:
        owner.abandon()
    if inherited:
        gevent.reinit()


os.register_at_fork(after_in_child=_in_child)
