"""After a fork, the child abandons inherited sockets: a ZeroMQ socket belongs to one process.

The child's event loop would otherwise take from the inherited file descriptors the signs that the
parent waits for. The loops of other threads than the one that forked have no thread in the child, and may have been in
the middle of anything, or are destroyed: nothing of them is touched, and all of it is kept, so that nothing is
finalized either.
"""

from __future__ import annotations

import os
import weakref
from typing import Protocol

from rpcmq.transport.shell import Shell

__all__ = ["OF_THE_PARENT", "ForkAware", "abandon_after_fork"]

#: Says to a child that it uses a stream, or waits for one, of its parent.
OF_THE_PARENT = "this belongs to a client of the process that has forked this one; make it anew here"


class ForkAware(Protocol):
    """Owns a socket."""

    def abandon(self, loop_runs: bool) -> None:
        """In a forked child: forget the socket, without touching it, and stop listening.

        Args:
            loop_runs: the event loop is that of the thread that forked; else its watchers must not be touched.
        """


_owners: weakref.WeakKeyDictionary[ForkAware, Shell] = weakref.WeakKeyDictionary()
_left_behind: list[tuple[ForkAware, Shell]] = []


def abandon_after_fork(owner: ForkAware, shell: Shell) -> None:
    """Have ``owner``, which lives in the loop of ``shell``, abandon its socket in each child that is forked."""
    _owners[owner] = shell


def _in_child() -> None:
    inherited = list(_owners.items())
    _owners.clear()
    for owner, shell in inherited:
        loop_runs = shell.survives_fork
        if not loop_runs:
            _left_behind.append((owner, shell))
        owner.abandon(loop_runs)
    for shell in {type(shell): shell for _, shell in inherited}.values():
        shell.after_fork_in_child()


os.register_at_fork(after_in_child=_in_child)
