"""The states of a router's end of a link, and the events that change them.

A link is made by the HELLO of a process whose session the router does not have, and is ``new`` until that HELLO is
answered. From then on it is connected or away, until it ends; one that ended is forgotten, and the next HELLO makes
another. A connected link is in one of three states, by when it was last heard:

* *Answering*: something came within ``unresponsive_seconds``. Only such a link is given new work.
* *Unresponsive*: nothing came for that long, and somebody counts on it: it consumes, subscribes, or has calls in
  flight. It is not declared dead, and keeps what it has; but it gets no new work.
* *Quiet*: the same of a link that nobody waits for. A program that computes between its calls is no cause for alarm.
  Which of the two it is may change while it is silent: its calls time out, or what had come before is handled.

*Away* is a link whose connection is gone. It retains what is to be sent, and HELLO resumes it within
``resume_seconds``. Before that, after ``consumer_grace_seconds``, it *lapses*: what its consumers had goes elsewhere,
and they are restored when it resumes. *Ended* is final: nothing of it is left, and nothing may happen to it.

``connected`` is legal in every state but ``ended``: a process may notice before the router does that a connection is
dead, and resume its session on the next one. ``ended`` is legal in the same states: a link ends by GOODBYE, because
it was away for too long, was kicked, replaced or evicted, or its key was revoked, or it broke a limit. ``silent``,
``idle``, ``heard`` and ``lost`` concern a connection, and so a link that has one.

Two things that happen to links are not states. A router that *drains* does so as a whole: its links stay what they are,
and resume. A link that has said GOODBYE while messages of it wait for their turn *leaves*: it ends when they were
handled, and may fall silent or be lost before.

All events are raised by this program (no peer names one), so that an illegal one is a defect
(:mod:`rpcmq.core.common.illegal_events`): it changes nothing, raises in tests, and is counted and reported in
production. They go through :meth:`rpcmq.core.router.link_table.LinkTable.happens` and nowhere else. None of them is on
the path of a call: a message of an answering link is no event.
"""

from __future__ import annotations

from enum import Enum

__all__ = ["TRANSITIONS", "LinkState"]


class LinkState(Enum):
    """Whether a link can be given work."""

    #: Its first HELLO is being answered.
    NEW = "new"
    ANSWERING = "answering"
    UNRESPONSIVE = "unresponsive"
    QUIET = "quiet"
    AWAY = "away"
    #: For good.
    ENDED = "ended"


_NEW, _ANSWERING, _UNRESPONSIVE, _QUIET, _AWAY, _ENDED = LinkState

#: (state, event) -> state: all that is legal.
TRANSITIONS = {
    (_NEW, "connected"): _ANSWERING,
    (_NEW, "ended"): _ENDED,
    (_ANSWERING, "connected"): _ANSWERING,
    (_ANSWERING, "silent"): _UNRESPONSIVE,
    (_ANSWERING, "idle"): _QUIET,
    (_ANSWERING, "lost"): _AWAY,
    (_ANSWERING, "ended"): _ENDED,
    (_UNRESPONSIVE, "connected"): _ANSWERING,
    (_UNRESPONSIVE, "heard"): _ANSWERING,
    (_UNRESPONSIVE, "idle"): _QUIET,
    (_UNRESPONSIVE, "lost"): _AWAY,
    (_UNRESPONSIVE, "ended"): _ENDED,
    (_QUIET, "connected"): _ANSWERING,
    (_QUIET, "heard"): _ANSWERING,
    (_QUIET, "silent"): _UNRESPONSIVE,
    (_QUIET, "lost"): _AWAY,
    (_QUIET, "ended"): _ENDED,
    (_AWAY, "connected"): _ANSWERING,
    (_AWAY, "lapsed"): _AWAY,
    (_AWAY, "ended"): _ENDED,
}
