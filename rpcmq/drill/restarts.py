"""Planned restarts: a router that is stopped in order and started again fails no call that ends within its drain."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import inf

from rpcmq.drill.disturbances import DISTURBING, RESTART, Disturbances
from rpcmq.drill.history import Event, What
from rpcmq.drill.promises import Bounds, Violation

__all__ = ["Restarts"]

_FAILURES = ("link_lost", "timeout", "no_consumer", "overloaded")
_OTHERS = tuple(kind for kind in DISTURBING if kind != RESTART)


@dataclass
class _Restart:
    """The router was told to stop, has exited, and is back."""

    told_at: float
    exited_at: float = inf
    back_at: float = inf


@dataclass
class _Call:
    caller: str
    submitted_at: float
    timeout: float
    #: Consumers it was dispatched to, and when it was started.
    consumers: set[str] = field(default_factory=set)
    started_at: float = inf
    finished_at: float = inf
    ended_at: float = inf
    outcome: str = ""


class Restarts:
    """Looks at the calls that were under way while the router restarted.

    Attributes:
        outlived: those that failed because they took longer than the drain.
    """

    def __init__(self, bounds: Bounds, disturbances: Disturbances) -> None:
        self._bounds = bounds
        self._disturbances = disturbances
        self._restarts: list[_Restart] = []
        self._open: dict[str, _Call] = {}
        self._failed: dict[str, _Call] = {}
        self.outlived = 0

    def see(self, event: Event) -> None:
        """The next event."""
        what, at = event.what, event.at
        if what == What.FAULT and event.id == RESTART:
            self._restarts.append(_Restart(at))
        elif what == What.EXITED and self._restarts:
            self._restarts[-1].exited_at = at
        elif what == What.HEALED and event.id == RESTART and self._restarts:
            self._restarts[-1].back_at = at
        elif what == What.SUBMIT and event.fields["verb"] == "call":
            self._open[event.id] = _Call(event.process, at, event.fields.get("timeout") or inf)
        elif (call := self._open.get(event.id)) is not None:
            self._about(event, call)

    def _about(self, event: Event, call: _Call) -> None:
        if event.what == What.DISPATCH:
            call.consumers.add(event.fields["to"])
        elif event.what == What.START:
            call.consumers.add(event.process)
            call.started_at = min(call.started_at, event.at)
        elif event.what == What.FINISH:
            call.finished_at = event.at
        elif event.what == What.END:
            del self._open[event.id]
            call.ended_at, call.outcome = event.at, event.fields["outcome"]
            if call.outcome in _FAILURES:
                self._failed[event.id] = call

    def violations(self) -> Iterator[Violation]:
        """Calls that a planned restart has failed."""
        for id, call in self._failed.items():
            for restart in self._restarts:
                if self._is_failed_by(call, restart):
                    yield Violation(
                        "failed by a planned restart",
                        f"{id} of {call.caller} ended with {call.outcome} at {call.ended_at:.3f}, submitted at "
                        f"{call.submitted_at:.3f}; the router was told to stop at {restart.told_at:.3f}, exited at "
                        f"{restart.exited_at:.3f} and was back at {restart.back_at:.3f}",
                    )
                    break

    def _is_failed_by(self, call: _Call, restart: _Restart) -> bool:
        # Afterwards callers and consumers come back, each when it can.
        over = restart.back_at + self._bounds.recovery
        if call.ended_at < restart.told_at or call.submitted_at > over:
            return False
        if call.outcome == "timeout" and call.submitted_at + call.timeout < over:
            return False  # it had no time to wait for the next life
        if self._outlives(call, restart):
            self.outlived += 1
            return False
        since, until = min(call.submitted_at, restart.told_at), call.ended_at
        return not any(
            self._disturbances.during(each, since, until, _OTHERS) for each in (call.caller, "router", *call.consumers)
        )

    def _outlives(self, call: _Call, restart: _Restart) -> bool:
        """Return whether it ran when the drain was over, and the router had waited for as long as it should."""
        waited = restart.exited_at - restart.told_at >= self._bounds.drain
        return waited and call.started_at <= restart.exited_at < call.finished_at
