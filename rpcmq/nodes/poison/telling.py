"""The news that the node tells those at other routers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rpcmq.nodes import Context
from rpcmq.nodes.poison.facts import Address, Suspect
from rpcmq.nodes.poison.news import told_quarantine, told_serving
from rpcmq.nodes.poison.serving_keys import ServingKeys

__all__ = ["LOSSES", "Telling"]

#: News of losses, and how many of these are told in a second.
LOSSES, _MAX_LOSSES = frozenset(("away", "gone", "back")), 500


class Telling:
    """Tells the other routers.

    Args:
        serving_keys: gets to know what this router tells of that.
    """

    def __init__(self, context: Context, serving_keys: ServingKeys) -> None:
        self._context = context
        self._serving_keys = serving_keys
        #: Losses that other routers were told of, and since when (monotonic seconds).
        self._told, self._told_since = 0, context.now

    def tell(self, now: float, event: str, router: str = "", **news: Any) -> None:
        """Tell all, or the one of ``router``; of losses only so many a second, of which none can then be made out."""
        if event in LOSSES:
            if now >= self._told_since + 1.0:
                self._told_since, self._told = now, 0
            self._told += 1
            if self._told > _MAX_LOSSES:
                return
        self._context.tell_routers({"do": event, **news}, router)

    def quarantine(self, now: float, suspect: Suspect, router: str = "") -> None:
        """Tell of a call that is quarantined."""
        self.tell(now, "quarantined", router, quarantine=told_quarantine(suspect, now))

    def ends(self, now: float, messages: Iterable[list[list[Any]]], router: str) -> None:
        """Tell the one of ``router`` of quarantines that have ended."""
        for each in messages:
            self.tell(now, "ended", router, ends=each)

    def serving(self, now: float, addresses: Iterable[Address]) -> None:
        """Note the keys under which ``addresses`` are served here, and tell of what is new of that."""
        known, news = self._serving_keys, dict[Address, frozenset[str]]()
        for exchange, topic, server in set(addresses):
            address, keys = (exchange, topic, server), self._context.keys_serving(topic, exchange, server)
            known.note(now, address, keys)
            if known.is_news(now, address, keys):
                news[address] = keys
        for told in told_serving(news):
            self.tell(now, "serves", serving=told)
