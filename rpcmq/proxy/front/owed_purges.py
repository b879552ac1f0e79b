"""Purges that the store has yet to take, which front ends tell one another."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Sequence
from typing import Any

import gevent

from rpcmq.client.limited_log import RateLimitedLog
from rpcmq.proxy.caching import Purge
from rpcmq.proxy.store.contract import Store

__all__ = ["OwedPurges"]

#: Seconds between two attempts to have the store take what it is owed.
_SETTLE_SECONDS = 0.5
#: Bytes of purges that one event has, about.
_PIECE_BYTES = 64 * 1024

_log = logging.getLogger("rpcmq.proxy")


class OwedPurges:
    """Has the store take the purges that it is owed as soon as it can, and puts them into pieces for events.

    Args:
        store: whose disk or server is owed them.

    Attributes:
        faults: attempts that ended with an error which no store should raise.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._log = RateLimitedLog(_log)
        self.faults = 0
        #: Purges that concern this front end alone.
        self._own: set[Purge] = set()
        #: The one that was told last.
        self._last: Purge | None = None

    def __len__(self) -> int:
        return len(self._store.owed())

    def keep_to_itself(self, purge: Purge) -> None:
        """Have ``purge`` told to nobody: it is about what this front end alone does not know."""
        self._own = {each for each in (*self._own, purge) if each in self._store.owed()}

    def all(self) -> Iterator[list[dict[str, Any]]]:
        """Yield all of them in pieces; one piece, which is empty, where there are none."""
        rest = self._told()
        while True:
            piece = _piece(rest)
            rest = rest[len(piece) :]
            yield [purge.to_dict() for purge in piece]
            if not rest:
                return

    def next(self) -> list[dict[str, Any]]:
        """Return a piece that follows on the one before, and begins anew after the last one."""
        told = self._told()
        start = told.index(self._last) + 1 if self._last in told else 0
        piece = _piece(told[start:] or told)
        self._last = piece[-1] if piece else None
        return [purge.to_dict() for purge in piece]

    def keep_settling(self) -> None:
        """Try to have the store take them, again and again, without end."""
        while True:
            gevent.sleep(_SETTLE_SECONDS)
            self.settle()

    def settle(self) -> None:
        """Try to have the store take them."""
        try:
            if not (before := len(self)):
                return
            self._store.settle()
            if left := len(self):
                text = f"{left} purge(s) are not in the store of the cache yet, whose disk or server does not take them"
                self._log.warning("owed", f"{text}: front ends remember them, and go on trying")
            else:
                _log.info("the store of the cache has taken the %d purge(s) that it was owed", before)
        except Exception as error:  # a store's own fault: the next attempt is still made
            self.faults += 1
            self._log.error("settle", f"purges could not be given to the store: {error!r}", error)

    def _told(self) -> list[Purge]:
        return [purge for purge in self._store.owed() if purge not in self._own]


def _piece(purges: Sequence[Purge]) -> Sequence[Purge]:
    """Return as many of the first ones as one event takes: one at least, if there is one."""
    size = 0
    for count, purge in enumerate(purges):
        size += len(json.dumps(purge.to_dict()))
        if count and size > _PIECE_BYTES:
            return purges[:count]
    return purges
