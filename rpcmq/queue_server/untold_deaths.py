"""Items that have died, and no worker has told of it, in the dispatch log of the router: as calls, which it records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import gevent

from rpcmq.client import Client
from rpcmq.client.failures import FailedItem, ToldFailure
from rpcmq.client.queue.protocol import at_owner
from rpcmq.client.told_call import call_and_tell
from rpcmq.core.queue.story import IN_DOUBT, LOST
from rpcmq.errors import RpcError

__all__ = ["UntoldDeaths", "death_of"]

#: Pause between two looks whether there are any (seconds), and calls at each: 200 a second, however many die at once.
_PAUSE, _CALLS = 0.1, 20
#: Seconds in which a call has its record.
_PATIENCE = 10.0


class WorkerLost(Exception):
    """It has lost as many workers as an item may."""


class InDoubt(Exception):
    """Nobody knows who had it, and such items are parked."""


class Expired(Exception):
    """Nobody wanted it any more."""


class Damaged(Exception):
    """The store has not what was put."""


class Refused(Exception):
    """It was put in a transaction, with the id of an item of other content."""


class Failed(Exception):
    """It has failed so often, and its worker did not know that this was the last time, or could not say so."""


_CLASSES: dict[str, type[Exception]] = {
    LOST: WorkerLost, IN_DOUBT: InDoubt, "expired": Expired, "damaged": Damaged, "refused": Refused, "failed": Failed,
}  # fmt: skip


class UntoldDeaths:
    """Tells the router, of at most 200 in a second.

    Args:
        owner: of the queues.
    """

    def __init__(self, client: Client, owner: str) -> None:
        self._client = client
        self._owner = owner
        #: By queue and outcome; what a million at once take is the same.
        self._waiting: Counter[tuple[str, str]] = Counter()

    def add(self, queue: str, outcome: str) -> None:
        """An item of ``queue`` has died."""
        self._waiting[queue, outcome] += 1

    def keep_up(self) -> None:
        """Tell of those that have died, for ever."""
        while True:
            gevent.sleep(_PAUSE)
            # Nothing waits here for a router.
            if self._waiting and self._client.process.uplink.origin:
                self._tell_some()

    def _tell_some(self) -> None:
        for _ in range(_CALLS):
            if not self._waiting:
                return
            queue, outcome = key = next(iter(self._waiting))
            self._waiting[key] -= 1
            if not self._waiting[key]:
                del self._waiting[key]
            message = {"method": "died", "args": {"outcome": outcome}}
            try:
                call_and_tell(self._client, at_owner(queue, self._owner), message, _PATIENCE, _drop, mandatory=True)
            except RpcError:
                return  # the router is gone, and its records with it


def _drop(result: Callable[[], Any]) -> None:
    """Its record is all that was wanted."""


def death_of(queue: str, outcome: object) -> ToldFailure:
    """The failure that the record of such a call has: its class says how the item has died.

    Raises:
        ValueError: no item dies so.
    """
    if type(outcome) is not str or outcome not in _CLASSES:
        raise ValueError(f"outcome must be one of {', '.join(_CLASSES)}")
    return ToldFailure((outcome,), _CLASSES[outcome](), True, FailedItem(queue, "", 0, True))
