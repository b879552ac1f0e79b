"""The promises a drill checks, and a violation of one."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Bounds", "Violation"]


@dataclass(frozen=True)
class Bounds:
    """Promised times, in seconds.

    Attributes:
        told: from the kill of a process to the failure of what it was running.
        recovery: from the router's return to the first answer that each caller gets.
        overdue: how much later than its timeout a call may end.
        unresponsive: silence after which the router may call a process unresponsive.
        lost: silence after which it may call it lost.
        heartbeat: between two signs of life.
        recovery_window: in which a new life of the router waits for consumers before it routes re-sent casts.
        resume: absence after which a session is not resumed.
        noticed: how much later than ``unresponsive`` or ``lost`` a process may say that its router is silent.
        sent: how long a cast of a plain program may take to leave its process after the verb has returned.
        parted: how long the link between two routers may be cut before either gives up what the other has.
        drain: how long a router that is stopped in order waits for what is under way.
    """

    told: float = 1.0
    recovery: float = 3.0
    overdue: float = 1.0
    unresponsive: float = 12.0
    lost: float = 60.0
    heartbeat: float = 5.0
    recovery_window: float = 2.5
    resume: float = 30.0
    noticed: float = 1.0
    sent: float = 0.5
    parted: float = 6.0
    drain: float = 30.0


@dataclass(frozen=True)
class Violation:
    """Something that must not happen, and has.

    Attributes:
        check: its name.
        text: what happened, in a sentence that names the calls, casts and processes.
    """

    check: str
    text: str

    def __str__(self) -> str:
        return f"{self.check}: {self.text}"
