"""Messages that a server has put back: they wait a moment, then the router gives them to any listener."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from rpcmq_oslo.incoming import Incoming

__all__ = ["PutBack"]

#: Seconds before a message is given back the first time; twice as long each time after that, up to the longest.
_FIRST: Final = 0.2
_LONGEST: Final = 5.0
#: Messages of which it is remembered how often they were put back here.
_MOST_REMEMBERED: Final = 10_000


class PutBack:
    """Gives messages back to the router, each time later: one that nobody wants must not keep everybody busy.

    A message that waits here is this listener's: if its process dies the router gives it to another one.

    Args:
        again: called with a message that the router does not take back, which this listener is to be given again.
    """

    def __init__(self, again: Callable[[Incoming], None]) -> None:
        self._again = again
        self._lock = threading.Lock()
        self._waiting: dict[Incoming, threading.Timer] = {}
        self._times: OrderedDict[str, int] = OrderedDict()
        self._is_stopped = False

    def put(self, incoming: Incoming) -> None:
        """Give ``incoming`` back when it has waited; at once if the listener was stopped."""
        with self._lock:
            if not self._is_stopped:
                timer = threading.Timer(self._pause(incoming), self._give_back, (incoming,))
                timer.daemon = True
                self._waiting[incoming] = timer
                timer.start()
                return
        self._return(incoming)

    def stop(self) -> None:
        """Give back at once what waits, and what comes."""
        with self._lock:
            self._is_stopped = True
            waiting, self._waiting = self._waiting, {}
        for incoming, timer in waiting.items():
            timer.cancel()
            self._return(incoming)

    def _pause(self, incoming: Incoming) -> float:
        times = self._times.pop(incoming.msg_id, 0)
        self._times[incoming.msg_id] = times + 1
        if len(self._times) > _MOST_REMEMBERED:
            self._times.popitem(last=False)
        return float(min(_LONGEST, _FIRST * 2 ** min(times, 10)))

    def _give_back(self, incoming: Incoming) -> None:
        with self._lock:
            if self._waiting.pop(incoming, None) is None:
                return
        self._return(incoming)

    def _return(self, incoming: Incoming) -> None:
        if not incoming.give_back():
            self._again(incoming)
