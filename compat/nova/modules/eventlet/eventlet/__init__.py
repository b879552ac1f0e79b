"""eventlet made of gevent: the names that services of 2011 to 2013 use, on gevent's hub, the only one there is.

Two hubs in a process would wait for ever, each for the other. Differences in manner from eventlet: when nothing is
left that could wake anybody, gevent raises LoopExit where eventlet would wait in silence; and a forked child runs the
green threads of its parent, until it calls ``hubs.use_hub()``.
"""

from __future__ import annotations

from greenlet import getcurrent

from . import convenience, debug, event, greenpool, greenthread, hubs, patcher, pools, queue, semaphore, timeout
from .convenience import StopServe, connect, listen, serve, wrap_ssl
from .event import Event
from .greenpool import GreenPile, GreenPool
from .greenthread import (
    GreenThread,
    call_after,
    exc_after,
    kill,
    sleep,
    spawn,
    spawn_after,
    spawn_after_local,
    spawn_n,
)
from .patcher import import_patched, monkey_patch
from .queue import Queue
from .semaphore import Semaphore
from .timeout import Timeout, with_timeout

__all__ = [
    "Event",
    "GreenPile",
    "GreenPool",
    "GreenThread",
    "Queue",
    "Semaphore",
    "StopServe",
    "Timeout",
    "call_after",
    "connect",
    "convenience",
    "debug",
    "event",
    "exc_after",
    "getcurrent",
    "greenpool",
    "greenthread",
    "hubs",
    "import_patched",
    "kill",
    "listen",
    "monkey_patch",
    "patcher",
    "pools",
    "queue",
    "semaphore",
    "serve",
    "sleep",
    "spawn",
    "spawn_after",
    "spawn_after_local",
    "spawn_n",
    "timeout",
    "with_timeout",
    "wrap_ssl",
]

version_info = (0, 13, 0)
#: The last one of the time; some code compares it.
__version__ = "0.13.0"
