"""Figures of a drill's router, which it is asked for before its end."""

from __future__ import annotations

from rpcmq.drill.history import Recorder, What
from rpcmq.drill.late_answers import LATE
from rpcmq.drill.names import ROUTER
from rpcmq.drill.promises import Violation
from rpcmq.testing.processes import RouterProcess

__all__ = ["count_router", "write_drops"]


def count_router(router: RouterProcess, recorder: Recorder) -> list[Violation]:
    """Record the router's count of late answers; return a violation for each fault of its own that it has counted."""
    try:
        varz = router.varz()
    except OSError:
        return []  # it is dead, or stopped
    late = sum(count for name, count in varz["counters"].items() if name.startswith(LATE))
    recorder.write(What.COUNTED, **{"late answers": late})
    process, problems = varz["process"], []
    if process["internal_errors"] or varz["refused"].get("internal error"):
        text = f"the router reports {process['internal_errors']} {varz['refused']}"
        problems.append(Violation("internal error", text))
    if process["lost_wakeups"]:
        problems.append(Violation("lost wake-ups", f"the router has missed {process['lost_wakeups']} wake-ups"))
    return problems


def write_drops(router: RouterProcess, recorder: Recorder) -> None:
    """Record the rows of ``rpcmq ls --dropped``."""
    view = router.view("dropped")
    for row in view["dropped"]:
        recorder.write(What.DROPPED, row["topic"], **{n: row[n] for n in ("verb", "reason", "count")})
    for verb, reasons in view["totals"].items():
        for reason, count in reasons.items():
            recorder.write(What.DROPPED_IN_ALL, ROUTER, verb=verb, reason=reason, count=count)
