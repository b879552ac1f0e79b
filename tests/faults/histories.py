"""The lines of a drill's history, and histories of which all promises hold."""

from __future__ import annotations

from typing import Any

from rpcmq.drill.checks import Bounds, Verdict, check
from rpcmq.drill.history import Event, What

__all__ = [
    "BACK", "CALL", "CAST", "CONFIRMED", "FULL", "KILLED", "LATER", "RESTARTED", "SILENT_ROUTER", "UP", "WELL", "Line",
    "accept", "busy", "cast", "confirm", "counted", "declared", "dispatch", "done", "dropped", "dropped_in_all", "end",
    "exited", "fault", "finish", "healed", "linked", "misspelt", "quick_calls", "returned", "says", "start", "submit",
    "verdict_on",
]  # fmt: skip

CALL = {"verb": "call", "topic": "t", "idempotent": False, "confirm": False, "timeout": 10.0}
CAST = {"verb": "cast", "topic": "t", "idempotent": False, "confirm": True}

Line = tuple[float, str, What, str, dict[str, Any]]


def submit(at: float, id: str = "c-1", process: str = "c", **fields: Any) -> Line:
    return at, process, What.SUBMIT, id, CALL | fields


def cast(at: float, id: str = "c-1", process: str = "c", **fields: Any) -> Line:
    return at, process, What.SUBMIT, id, CAST | fields


def confirm(at: float, id: str = "c-1", process: str = "c") -> Line:
    return at, process, What.CONFIRM, id, {"consumers": 1}


def start(at: float, process: str = "s", id: str = "c-1", topic: str = "t", attempt: int = 0) -> Line:
    return at, process, What.START, id, {"topic": topic, "attempt": attempt}


def finish(at: float, process: str = "s", id: str = "c-1") -> Line:
    return at, process, What.FINISH, id, {"failed": False}


def end(at: float, outcome: str = "ok", id: str = "c-1", process: str = "c", of: str | None = None) -> Line:
    return at, process, What.END, id, {"outcome": outcome, "of": of}


def fault(at: float, kind: str, target: str) -> Line:
    return at, "drill", What.FAULT, kind, {"target": target}


def healed(at: float, kind: str, target: str) -> Line:
    return at, "drill", What.HEALED, kind, {"target": target}


def declared(at: float, state: str, target: str = "s") -> Line:
    return at, "router", What.DECLARED, target, {"state": state}


def accept(at: float, id: str = "c-1") -> Line:
    return at, "router", What.ACCEPT, id, {}


def dispatch(at: float, to: str = "s", id: str = "c-1", attempt: int = 0) -> Line:
    return at, "router", What.DISPATCH, id, {"to": to, "attempt": attempt}


def linked(at: float, process: str, resumed: bool = False, **fields: Any) -> Line:
    return at, process, What.LINKED, "", {"resumed": resumed, **fields}


def done(at: float, process: str = "c") -> Line:
    return at, process, What.DONE, "", {"left": 0}


def exited(at: float) -> Line:
    return at, "drill", What.EXITED, "", {}


def says(at: float, what: str, process: str = "c") -> Line:
    return at, process, What.SAYS, what, {}


def returned(at: float, id: str = "c-1") -> Line:
    return at, "c", What.RETURN, id, {}


def busy(at: float, seconds: float, process: str = "c") -> Line:
    return at, process, What.BUSY, "", {"seconds": seconds}


def misspelt(at: float, id: str = "c-1", **fields: Any) -> list[Line]:
    """A cast to a topic that nobody has, and what the router records of its end."""
    return [
        cast(at, id, topic="typo", misspelt=True, confirm=False, **fields),
        (at + 1, "router", What.SETTLE, id, {"outcome": "expired"}),
    ]


def dropped(count: int, process: str = "drill", reason: str = "aged out") -> Line:
    return 90, process, What.DROPPED, "typo", {"verb": "cast", "reason": reason, "count": count}


def dropped_in_all(count: int) -> Line:
    return 90, "drill", What.DROPPED_IN_ALL, "router", {"verb": "cast", "reason": "aged out", "count": count}


def quick_calls(seconds: float, size: int = 70_000) -> list[Line]:
    """Small calls of a process that has sent something large."""
    lines = [submit(0, size=size), start(0.1), end(0.2)]
    for n in range(2, 30):
        lines += [submit(n, f"c-{n}", quick=True), start(n, id=f"c-{n}"), end(n + seconds, id=f"c-{n}")]
    return lines


def counted(at: float, process: str = "router", **fields: int) -> Line:
    return at, process, What.COUNTED, "", {name.replace("_", " "): count for name, count in fields.items()}


def verdict_on(*lines: Line, bounds: Bounds | None = None) -> Verdict:
    return check([Event(*line) for line in lines], bounds)


WELL = [submit(0), start(0.1), finish(0.2), end(0.3)]
CONFIRMED = [cast(0), confirm(0.1), end(0.1), start(0.2), finish(0.3)]
KILLED = [submit(0), start(0.1), fault(1, "kill", "s")]
BACK = [fault(1, "kill", "router"), healed(2, "kill", "router")]
#: The router is told to stop, exits, and is back.
RESTARTED = [fault(1, "restart", "router"), exited(2), healed(3, "restart", "router")]
#: As the defaults are: unresponsive after 12 s, lost after 60 s.
UP = [linked(0, "c"), linked(0, "s")]
SILENT_ROUTER = [*UP, fault(20, "silence", "router")]
FULL = {"verb": "cast", "reason": "queue full", "count": 3}
LATER = [submit(2.6, "c-2"), start(2.7, id="c-2"), end(2.8, id="c-2")]
