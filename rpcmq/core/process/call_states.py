"""The states of a call in the process that made it, and the events that change them.

A call is *new* until it is started, or fails because its client is closed before that; then it is *open* until it
ends, once: *answered* by the last message about it (REPLY, FAULT, END, CONFIRM, or the answer of the router), or
*failed* with an error of the router or of this process (time is up, no sign of life, the link is lost or closed). One
that is *cancelled* is waited for by nobody: it was taken out of the outbox, or the router was told. Whoever cancels a
call because its time is up fails it after that, so that its waiter learns why; a registration that must be made anew is
cancelled, and started again under another key.

Where its message is (in the outbox, sent, acknowledged, or held for the router's next life) is no state of the
call: the link knows that of all messages (:mod:`rpcmq.core.process.uplink`), and after a loss it decides which calls
are sent again (:mod:`rpcmq.core.process.resend_after_restart`). A refusal because the router drains changes nothing
either: the call stays open for the next life.

Messages about calls that are not open are events of peers, and late: they are counted as ``late replies``, ``late
errors`` and ``late items``. Cancelling what has ended is no event: whoever gives up cannot know. Everything else that
the table lacks is a defect of this program (:mod:`rpcmq.core.common.illegal_events`). It is noticed in production
where a call fails, and in tests at each change (:mod:`rpcmq.testing.checked_states`): starting and answering are the
hot path, and find a call by its key only while it is open.
"""

from __future__ import annotations

from enum import Enum

__all__ = ["TRANSITIONS", "CallState"]


class CallState(Enum):
    """Whether a call is waited for, and how it ended."""

    NEW = "new"
    OPEN = "open"
    CANCELLED = "cancelled"
    ANSWERED = "answered"
    FAILED = "failed"


_NEW, _OPEN, _CANCELLED, _ANSWERED, _FAILED = CallState

#: (state, event) -> state: all that is legal.
TRANSITIONS = {
    (_NEW, "started"): _OPEN,
    (_NEW, "failed"): _FAILED,
    (_OPEN, "answered"): _ANSWERED,
    (_OPEN, "failed"): _FAILED,
    (_OPEN, "cancelled"): _CANCELLED,
    (_CANCELLED, "failed"): _FAILED,
    (_CANCELLED, "started"): _OPEN,
}
