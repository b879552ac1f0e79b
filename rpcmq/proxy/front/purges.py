"""Purges, which reach all front ends as events."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable
from time import monotonic, time
from typing import Any

import gevent
from gevent.event import Event

from rpcmq import Client, Subscription
from rpcmq.client.limited_log import RateLimitedLog
from rpcmq.errors import RpcError
from rpcmq.proxy.caching import Purge, PurgeKind
from rpcmq.proxy.caching.purge import MalformedPurge
from rpcmq.proxy.front.hot import HotResponses
from rpcmq.proxy.front.owed_purges import OwedPurges
from rpcmq.proxy.store.contract import Purged, Store
from rpcmq.proxy.store.tiers import TieredStore

__all__ = ["Purges"]

#: Seconds between two events that say how many purges a front end has sent.
_TELL_SECONDS = 2.0
#: Seconds that a front end that starts waits for the others at most: all that live say something in that time. And
#: seconds after which it asks them again.
_LEARN_SECONDS, _ASK_SECONDS = 2.5, 1.0
#: Seconds after the start in which other front ends are heard of that were there before.
_MEETING_SECONDS = 10.0
#: Least seconds between two answers to those that start.
_ANSWER_SECONDS = 0.1
#: Purges that are known to have been applied here.
_MAX_APPLIED = 4096
#: Most front ends, also of those that are gone, whose purges are counted; then all are counted anew.
_MAX_FRONT_ENDS = 10_000
_NAME_LENGTH = 16


class Purges:
    """Applies purges here, and has all other front ends apply them.

    Each front end numbers its purges, and says now and then how many there were. Whoever has missed one of them,
    because it was cut off or too slow, has all that it stores revalidated before it is served again. Each reads in a
    shared store, too, which purges others had recorded.

    A purge that the store has yet to take is told again and again, so that front ends that start meanwhile obey it and
    have the store take it, too: it is lost only with the last one that knows of it. One that starts asks for them, and
    serves nothing out of a remote store until it has been answered.
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
        self._meets_until = 0.0
        self._subscriptions: list[Subscription] = []
        self._lost = 0
        self._keepers: list[Any] = []
        self._log = RateLimitedLog(logging.getLogger("rpcmq.proxy"))
        self.owed = OwedPurges(store)
        #: The latest purges that were applied here, in their order.
        self._recent: dict[Purge, None] = {}
        self._was_asked = Event()
        #: Front ends that have told all that the store is owed, and whether one more has.
        self._answered: set[str] = set()
        self._has_answer = Event()
        #: Purges that were applied here, and times at which some were missed.
        self.applied = self.missed = 0
        #: Time of the wall clock of the last one, as its sender had it; 0: there was none.
        self.last_at = 0.0
        self._listeners: list[Callable[[], object]] = []
        #: Readings of others' purges that ended with an error which no store should raise.
        self._news_faults = 0

    @property
    def faults(self) -> int:
        """Attempts to give purges to the store, or to read them there, that ended with an unexpected error."""
        return self.owed.faults + self._news_faults

    def on_purge(self, listener: Callable[[], object]) -> None:
        """Have ``listener`` called with each purge."""
        self._listeners.append(listener)

    def start(self) -> None:
        """Listen to other front ends, and ask them which purges the store is owed.

        Raises:
            RouterUnreachable: there is no router.
        """
        subscribe = self._client.subscribe
        self._subscriptions = [
            subscribe(f"{self._topic}.purge.*", self._take),
            # Of its own: an answer does not wait for purges that are being applied.
            subscribe(f"{self._topic}.owed", self._take_question),
        ]
        self._meet()
        if isinstance(self._store, TieredStore) and self._store.is_remote:
            self._store.reads_shared = False
        keepers = self._learn, self._tell, self._read_news, self.owed.keep_settling
        self._keepers = [gevent.spawn(run) for run in keepers]

    def stop(self) -> None:
        """Do not listen any more."""
        gevent.killall(self._keepers)
        self.owed.settle()
        if self.owed:
            left = f"the store has not taken {len(self.owed)} purge(s): they are lost unless another front end runs"
            self._log.warning("left", left)
            self._tell_once(is_answer=True)
        for subscription in self._subscriptions:
            subscription.close()

    def purge(self, purge: Purge, *, confirm: bool = False) -> Purged:
        """Apply ``purge`` here and everywhere.

        Args:
            confirm: wait until the router has it, and what the store has recorded outlasts a server that is killed.

        Returns:
            How many stored responses it was about here, and whether the store has recorded it.

        Raises:
            RpcError: only with ``confirm``: it is applied here, and the router could not be told.
        """
        purged = self._apply(purge, confirm=confirm)
        self._sent += 1
        payload = {"from": self._name, "number": self._sent, "purge": purge.to_dict()}
        try:
            self._client.publish(None, f"{self._topic}.purge.order", payload, confirm=confirm)
        except RpcError as error:
            # The others find out by the number.
            self._log.warning("purge", f"a purge could not be sent to other front ends: {error}")
            if confirm:
                raise
        return purged

    def _apply(self, purge: Purge, *, confirm: bool = False) -> Purged:
        self._note(purge)
        self._recent[purge] = None
        if len(self._recent) > _MAX_APPLIED:
            del self._recent[next(iter(self._recent))]
        return self._store.purge(purge, confirm=confirm)

    def _note(self, purge: Purge) -> None:
        """Have nothing go on that was begun before ``purge``."""
        self.applied += 1
        self.last_at = max(self.last_at, purge.at)
        self._hot.purge()
        for listener in self._listeners:
            listener()

    # --- events ----------------------------------------------------------------------------------

    def _take(self, ctx: Any, topic: str, payload: Any) -> None:
        """Take an event of a front end; anything malformed is passed over."""
        try:
            sender, number = str(payload["from"])[:_NAME_LENGTH], int(payload["number"])
            purge = Purge.from_dict(payload["purge"]) if "purge" in payload else None
            owed = [Purge.from_dict(each) for each in payload.get("owed", ())]
            is_answer = bool(payload.get("answers", False))
        except (AttributeError, KeyError, TypeError, ValueError, OverflowError, MalformedPurge) as error:
            self._log.warning("malformed", f"an event of {topic} is no purge: {error!r}")
            return
        self._count_lost()
        if sender == self._name:
            return
        for each in owed:
            if each not in self._recent:
                self._apply(each)
                gevent.sleep(0)
        self._count(sender, number, purge)
        if is_answer:
            self._answered.add(sender)
            self._has_answer.set()

    def _count(self, sender: str, number: int, purge: Purge | None) -> None:
        """Apply the purge ``number`` of ``sender``, or note that there were so many, and find out about missed ones."""
        known = self._known.get(sender)
        if known is None:
            if len(self._known) >= _MAX_FRONT_ENDS:
                self._known.clear()
                self._meet()
            # One that was there before this one has told it what counts; of one that has come since all must have come.
            known = number if monotonic() < self._meets_until else 0
        if purge is not None and purge not in self._recent:
            self._apply(purge)
        missed = number - (purge is not None)
        if missed > known:
            self._have_missed(f"purges {known + 1} to {missed} of a front end")
        self._known[sender] = max(known, number)

    def _read_news(self) -> None:
        """Have purges count of which the store knows, and no event came: its sender, or a router, was killed."""
        while True:
            try:
                for purge in self._store.news(self._recent):
                    self._note(purge)
            except Exception as error:  # a store's own fault: the next reading is still made
                self._news_faults += 1
                self._log.error("news", f"the purges of others could not be read: {error!r}", error)
            gevent.sleep(_TELL_SECONDS)

    def _count_lost(self) -> None:
        """Find out about events that the router has dropped; one of its own comes every other second at least."""
        # It counts for all subscriptions of this process.
        lost = self._subscriptions[0].lost
        if lost != self._lost:
            self._lost = lost
            self._have_missed("events with purges")

    def _meet(self) -> None:
        """Have front ends that are heard of in the next seconds count as such that were there before."""
        self._meets_until = monotonic() + _MEETING_SECONDS

    def _have_missed(self, text: str) -> None:
        self.missed += 1
        self._log.warning("missed", f"{text} have not come: all that is stored will be revalidated")
        purge = Purge(PurgeKind.ALL, "", time(), soft=True)
        self._apply(purge)
        self.owed.keep_to_itself(purge)

    def _tell(self) -> None:
        while True:
            is_asked = self._was_asked.is_set()
            self._was_asked.clear()
            self._tell_once(is_answer=is_asked)
            gevent.sleep(_ANSWER_SECONDS)
            self._was_asked.wait(_TELL_SECONDS - _ANSWER_SECONDS)

    def _tell_once(self, *, is_answer: bool) -> None:
        """Say how many purges this one has sent, and some of those that the store is owed; in an answer all."""
        pieces = list(self.owed.all()) if is_answer else [self.owed.next()]
        try:
            for number, piece in enumerate(pieces, 1):
                payload = {"from": self._name, "number": self._sent, "owed": piece}
                payload["answers"] = is_answer and number == len(pieces)
                self._client.publish(None, f"{self._topic}.purge.count", payload)
        except RpcError:
            pass  # the next one says as much

    def _take_question(self, ctx: Any, topic: str, payload: Any) -> None:
        self._was_asked.set()

    def _learn(self) -> None:
        """Hear which purges the store is owed; what it has is served from then on."""
        try:
            self._ask()
        finally:
            if isinstance(self._store, TieredStore):
                self._store.reads_shared = True

    def _ask(self) -> None:
        """Ask other front ends which purges the store is owed, and wait for as many answers as there are of them.

        One that was killed a moment ago counts as well, and does not answer; those behind another router count as one.
        """
        end = monotonic() + _LEARN_SECONDS
        while (left := end - monotonic()) > 0:
            try:
                # It is one of those itself.
                others = self._client.publish(None, f"{self._topic}.owed", self._name, confirm=True) - 1
            except RpcError as error:
                self._log.warning("learn", f"other front ends could not be asked for purges: {error}")
                gevent.sleep(min(left, _ASK_SECONDS))
                continue
            again = monotonic() + min(left, _ASK_SECONDS)
            while len(self._answered) < others and (left := again - monotonic()) > 0:
                self._has_answer.wait(left)
                self._has_answer.clear()
            if len(self._answered) >= others:
                return
