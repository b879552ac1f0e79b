"""The claim to an owner's name: of two queue servers with stores of their own one serves it, the other says why not.

Items and receipts are known by that name, so that two would be mixed up. Whoever starts asks whether another one is
there; and as routers may be linked later, all claim their names now and then. The one that has served longer stays.
A database needs no claims: whoever has its lock is the owner.

A claim is believed only where somebody else does serve the name: whoever may just send messages ends nobody by one.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from socket import gethostname
from time import monotonic
from typing import Any

import gevent

from rpcmq.client import Client
from rpcmq.client.queue.protocol import CLAIMS, OPERATORS
from rpcmq.core.common.text import shorten
from rpcmq.errors import RpcError
from rpcmq.queue_server.peer_messages import tell
from rpcmq.wire import Address

__all__ = ["Claim", "Claimed"]

#: Seconds in which another one answers that is there.
_ANSWER = 0.5
#: Pauses between two claims (seconds): the first ones, as many of them, and the later ones.
_SOON, _FIRST, _LATER = 1.0, 10, 5.0
#: After a claim that nobody stood by, others are looked into so much later (seconds).
_BELIEVED = 10.0


class Claimed(Exception):
    """Another queue server serves the owner's name; the text says which, and what to do."""


class Claim:
    """The claim of this queue server to the name ``owner``.

    Args:
        store: id of the store, the same in each life of the queue server.

    Attributes:
        lost: the reason for which it is to be served no more; empty: it is this one's.
    """

    def __init__(self, client: Client, owner: str, store: str) -> None:
        self._client = client
        self._owner = owner
        self._store = store
        self._since = monotonic()
        self._told = self._since - _SOON
        #: Whether somebody has claimed to have served longer; and until when that is not looked into again.
        self._is_doubted = False
        self._believed_until = 0.0
        self._where = f"pid {os.getpid()} on {gethostname()}"
        self.lost = ""

    def check(self) -> None:
        """Check that no other one serves the name.

        Raises:
            Claimed: one does.
        """
        try:
            message = {"method": "who", "args": {}}
            where = self._client.call(None, Address(CLAIMS, self._owner, OPERATORS), message, _ANSWER, mandatory=True)
        except RpcError:
            return  # nobody does, or it is silent: those who serve claim their names
        raise Claimed(self._text(where))

    def _text(self, where: object) -> str:
        return (
            f"another queue server of this mesh ({shorten(str(where))}) serves the items of {self._owner!r}, and has "
            "other items: give each router a name of its own, router.name; what is in this store is served then"
        )

    def endpoint(self) -> ClaimEndpoint:
        """The methods for other queue servers."""
        return ClaimEndpoint(self._where, self._hear)

    def keep_up(self, aside: Callable[[], AbstractContextManager[object]], lost: Callable[[], object]) -> None:
        """Claim the name now and then, and call ``lost`` when it is another one's.

        Args:
            aside: :meth:`endpoint` is not served within it, so that whoever answers is another one.
        """
        for number in range(1 << 62):
            self._tell()
            for _ in range(10):
                gevent.sleep((_SOON if number < _FIRST else _LATER) / 10)
                if self._is_doubted:
                    self._look(aside)
                if self.lost:
                    lost()
                    return

    def _look(self, aside: Callable[[], AbstractContextManager[object]]) -> None:
        """Look whether there is another one that serves the name."""
        try:
            with aside():
                self.check()
        except Claimed as error:
            self.lost = str(error)
        self._is_doubted = False
        self._believed_until = monotonic() + _BELIEVED

    def _tell(self) -> None:
        self._told = now = monotonic()
        args = {"owner": self._owner, "store": self._store, "seconds": now - self._since, "where": self._where}
        tell(self._client, CLAIMS, "", "claim", args)

    def _hear(self, owner: object, store: object, seconds: object, where: object) -> None:
        if owner != self._owner or store == self._store or type(store) is not str or type(seconds) is not float:
            return
        now = monotonic()
        if (seconds, store) > (now - self._since, self._store):
            self._is_doubted = self._is_doubted or now >= self._believed_until
        elif now - self._told >= _SOON / 2:
            self._tell()


class ClaimEndpoint:
    """The methods for other queue servers."""

    def __init__(self, where: str, hear: Callable[[object, object, object, object], object]) -> None:
        self._where = where
        self._hear = hear

    def who(self, ctx: Any) -> str:
        """Tell which process this is."""
        return self._where

    def claim(self, ctx: Any, owner: object, store: object, seconds: object, where: object) -> None:
        """Hear that another one serves ``owner``, and for how long it has."""
        self._hear(owner, store, seconds, where)
