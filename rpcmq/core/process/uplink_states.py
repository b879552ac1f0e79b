"""The states of a process's end of a link, and the events that change them.

A link goes through connections. On each it says HELLO (``connected``) and waits for WELCOME (``welcome``); from then on
both sides exchange the messages of a session (``message``: also ACK and HEARTBEAT, which are about the session), until
the connection is gone (``lost``) or this process leaves (``close``). The session itself outlives the connection: the
next WELCOME resumes it, or starts another one.

A router that shuts down says DRAIN (``drain``) and still takes answers and what they need; it says REFUSED
(``refused``) in place of WELCOME, or as its last word. Neither ends the connection by itself: whoever drives the engine
closes it, and says ``lost``. Because of that ``lost`` may come in any state: an attempt to connect that fails before
HELLO ends in DOWN, where it began, and the connection on which GOODBYE was said ends as well.

``connected``, ``lost`` and ``close`` are events of this program: in a state that does not have them they are illegal
(:mod:`rpcmq.core.common.illegal_events`). The others are the router's: in a state that does not have them they are
breaches of the protocol (:class:`~rpcmq.errors.ProtocolError`, reason ``state``), counted, and change nothing. The
states of an attempt to connect (when to dial, when to give up) are another machine: :mod:`rpcmq.core.process.dialer`.
"""

from __future__ import annotations

from enum import Enum

__all__ = ["OWN_EVENTS", "TRANSITIONS", "UplinkState"]


class UplinkState(Enum):
    """States of the link."""

    #: No connection, or HELLO was not said on it.
    DOWN = "down"
    #: HELLO was said.
    GREETING = "greeting"
    #: The outbox is sent.
    READY = "ready"
    #: The router takes nothing new: that is held for its next life.
    DRAINING = "draining"
    #: For good.
    CLOSED = "closed"


_DOWN, _GREETING, _READY, _DRAINING, _CLOSED = UplinkState

#: Events of this program.
OWN_EVENTS = frozenset(("connected", "lost", "close"))
#: (state, event) -> state: all that is legal.
TRANSITIONS = {
    (_DOWN, "connected"): _GREETING,
    (_DOWN, "lost"): _DOWN,
    (_DOWN, "close"): _CLOSED,
    (_GREETING, "welcome"): _READY,
    (_GREETING, "refused"): _GREETING,
    (_GREETING, "lost"): _DOWN,
    (_GREETING, "close"): _CLOSED,
    (_READY, "message"): _READY,
    (_READY, "drain"): _DRAINING,
    (_READY, "refused"): _READY,
    (_READY, "lost"): _DOWN,
    (_READY, "close"): _CLOSED,
    (_DRAINING, "message"): _DRAINING,
    (_DRAINING, "refused"): _DRAINING,
    (_DRAINING, "lost"): _DOWN,
    (_DRAINING, "close"): _CLOSED,
    (_CLOSED, "lost"): _CLOSED,
}
