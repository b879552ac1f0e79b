"""Purges, which reach all front ends as events."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable
from time import time
from typing import Any

import gevent

from rpcmq import Client, Subscription
from rpcmq.client.limited_log import RateLimitedLog
from rpcmq.errors import RpcError
from rpcmq.proxy.caching import Purge, PurgeKind
from rpcmq.proxy.caching.purge import MalformedPurge
from rpcmq.proxy.front.hot import HotResponses
from rpcmq.proxy.store.contract import Store

__all__ = ["Purges"]

#: Seconds between two events that say how many purges a front end has sent.
_TELL_SECONDS = 2.0
#: Most front ends, also of those that are gone, whose purges are counted; then all are counted anew.
_MAX_FRONT_ENDS = 10_000
_NAME_LENGTH = 16


class Purges:
    """Applies purges here, and has all other front ends apply them.

    Each front end numbers its purges, and says now and then how many there were. Whoever has missed one of them,
    because it was cut off or too slow, has all that it stores revalidated before it is served again.
    """

    def __init__(self, client: Client, topic: str, store: Store, hot: HotResponses) -> None:
        self._client = client
        self._topic = topic
        self._store = store
        self._hot = hot
        self._name = secrets.token_hex(8)
        self._sent = 0
        #: Name of each other front end -> its purges that are known here.
        self._known: dict[str, int] = {}
        self._subscription: Subscription | None = None
        self._lost = 0
        self._teller: Any = None
        self._log = RateLimitedLog(logging.getLogger("rpcmq.proxy"))
        #: Purges that were applied here, and times at which some were missed.
        self.applied = self.missed = 0
        #: Time of the wall clock of the last one, as its sender had it; 0: there was none.
        self.last_at = 0.0
        self._listeners: list[Callable[[], object]] = []

    def on_purge(self, listener: Callable[[], object]) -> None:
        """Have ``listener`` called with each purge."""
        self._listeners.append(listener)

    def start(self) -> None:
        """Listen to other front ends."""
        self._subscription = self._client.subscribe(f"{self._topic}.purge.*", self._take)
        self._teller = gevent.spawn(self._tell)

    def stop(self) -> None:
        """Do not listen any more."""
        if self._teller is not None:
            self._teller.kill()
        if self._subscription is not None:
            self._subscription.close()

    def purge(self, purge: Purge, *, confirm: bool = False) -> int | None:
        """Apply ``purge`` here and everywhere.

        Args:
            confirm: wait until the router has it.

        Returns:
            Number of stored responses that it was about here; None: not counted.

        Raises:
            RpcError: only with ``confirm``: it is applied here, and the router could not be told.
        """
        count = self._apply(purge)
        self._sent += 1
        payload = {"from": self._name, "number": self._sent, "purge": purge.to_dict()}
        try:
            self._client.publish(None, f"{self._topic}.purge.order", payload, confirm=confirm)
        except RpcError as error:
            # The others find out by the number.
            self._log.warning("purge", f"a purge could not be sent to other front ends: {error}")
            if confirm:
                raise
        return count

    def _apply(self, purge: Purge) -> int | None:
        self.applied += 1
        self.last_at = max(self.last_at, purge.at)
        self._hot.clear()
        for listener in self._listeners:
            listener()
        return self._store.purge(purge)

    def _take(self, ctx: Any, topic: str, payload: Any) -> None:
        """Take an event of a front end; anything malformed is passed over."""
        try:
            sender, number = str(payload["from"])[:_NAME_LENGTH], int(payload["number"])
            purge = Purge.from_dict(payload["purge"]) if "purge" in payload else None
        except (KeyError, TypeError, ValueError, OverflowError, MalformedPurge) as error:
            self._log.warning("malformed", f"an event of {topic} is no purge: {error!r}")
            return
        if sender == self._name:
            return
        known = self._known.get(sender)
        if known is None and len(self._known) >= _MAX_FRONT_ENDS:
            self._known.clear()
        if purge is not None:
            self._apply(purge)
            if known is not None and number > known + 1:
                self._have_missed(f"purges {known + 1} to {number - 1} of a front end")
        elif known is not None and number > known:
            self._have_missed(f"purges {known + 1} to {number} of a front end")
        self._known[sender] = max(known or 0, number)

    def _have_missed(self, text: str) -> None:
        self.missed += 1
        self._log.warning("missed", f"{text} have not come: all that is stored will be revalidated")
        self._apply(Purge(PurgeKind.ALL, "", time(), soft=True))

    def _tell(self) -> None:
        while True:
            if self._subscription is not None and self._subscription.lost != self._lost:
                self._lost = self._subscription.lost
                self._have_missed("events with purges")
            try:
                payload = {"from": self._name, "number": self._sent}
                self._client.publish(None, f"{self._topic}.purge.count", payload)
            except RpcError:
                pass  # the next one says as much
            gevent.sleep(_TELL_SECONDS)
