"""The states of a task and of the registration that it came by, and the events that change them.

**A task** is made of a call or cast that was delivered to this process. It *runs* at once: the router delivers no more
than the credit. A direct call, which no router has counted, *waits* while its registration has as many running as it
has credit. A call whose caller wants items is *streaming* from the first item on. It ends once: a call is *answered*
(REPLY, FAULT or END), a cast is *settled*. Either may be *returned* instead (GIVE_BACK): the router gives it to another
consumer, or to this one again.

A caller may give up before. The router says so (CANCEL), and the task is *cancelled*: its answer is still sent, because
the router counts it. It is *abandoned* if nobody is left to whom an answer could be sent: the router has lost the
session, the peer that called is gone or has given up, or the same request was delivered again. Of an abandoned task
nothing is sent, and one that was waiting never runs. What ends in one of these two states is *wasted*: it was run, and
nobody has waited for it.

Granting a stream more items changes no state. Nor does a second CANCEL, or one for a task that has ended:
peers may say anything at any time, and messages about tasks that are not running are dropped.

**A registration** is *wanted* from when the router was asked to deliver: it is made anew at each router that does not
know it, until it is *leaving* (the router was asked to stop, and what runs may finish). It is *removed* when nothing of
it runs any more, or if it was refused in the first place; then its tag may be another's, which is why removing it once
more changes nothing.

**Where this is checked.** In tests, in the simulation and under the fuzzer at each change, by watching the field
(:mod:`rpcmq.testing.checked_states`). In production where a task ends, which is where a mistake of an adapter would
show: ending what has ended is a defect of this program (:mod:`rpcmq.core.common.illegal_events`), and nothing is sent.
"""

from __future__ import annotations

from enum import Enum

__all__ = ["ENDED", "REGISTRATION_TRANSITIONS", "TRANSITIONS", "RegistrationState", "TaskState"]


class TaskState(Enum):
    """The stage of a delivered call or cast."""

    RECEIVED = "received"
    WAITING = "waiting"
    RUNNING = "running"
    STREAMING = "streaming"
    CANCELLED = "cancelled"
    ABANDONED = "abandoned"
    ANSWERED = "answered"
    SETTLED = "settled"
    WASTED = "wasted"
    RETURNED = "returned"


class RegistrationState(Enum):
    """Whether deliveries are wanted."""

    NEW = "new"
    WANTED = "wanted"
    LEAVING = "leaving"
    REMOVED = "removed"


_RECEIVED, _WAITING, _RUNNING, _STREAMING, _CANCELLED, _ABANDONED, _ANSWERED, _SETTLED, _WASTED, _RETURNED = TaskState
_NEW, _WANTED, _LEAVING, _REMOVED = RegistrationState

#: Final states.
ENDED = frozenset({_ANSWERED, _SETTLED, _WASTED, _RETURNED})

#: (state, event) -> state: all that is legal. Which event it was follows from the two states.
TRANSITIONS = {
    (_RECEIVED, "started"): _RUNNING,
    (_RECEIVED, "queued"): _WAITING,
    (_WAITING, "started"): _RUNNING,
    (_WAITING, "abandoned"): _ABANDONED,
    (_RUNNING, "item sent"): _STREAMING,
    (_RUNNING, "cancelled"): _CANCELLED,
    (_RUNNING, "abandoned"): _ABANDONED,
    (_RUNNING, "answered"): _ANSWERED,
    (_RUNNING, "settled"): _SETTLED,
    (_RUNNING, "given back"): _RETURNED,
    (_STREAMING, "cancelled"): _CANCELLED,
    (_STREAMING, "abandoned"): _ABANDONED,
    (_STREAMING, "answered"): _ANSWERED,
    (_CANCELLED, "abandoned"): _ABANDONED,
    (_CANCELLED, "ended"): _WASTED,
    (_ABANDONED, "ended"): _WASTED,
}

#: The same, of a registration.
REGISTRATION_TRANSITIONS = {
    (_NEW, "registered"): _WANTED,
    (_WANTED, "unregistered"): _LEAVING,
    (_WANTED, "removed"): _REMOVED,
    (_LEAVING, "removed"): _REMOVED,
}
