"""The result of a drill, and the times that its router's settings promise."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rpcmq.config import RouterConfig, load_router_config
from rpcmq.drill.checks import Bounds, Verdict

__all__ = ["Result", "bounds_of", "config_of"]


@dataclass
class Result:
    """The result of a drill.

    Attributes:
        seconds: from the first message to the last answer.
        faults: how many of each kind.
        figures: what a scenario measured beside.
    """

    seed: int
    seconds: float
    verdict: Verdict
    faults: dict[str, int]
    figures: dict[str, Any] = field(default_factory=dict)

    def row(self, scenario: str) -> dict[str, Any]:
        """As one line of results."""
        verdict = self.verdict
        return {
            "scenario": scenario,
            "seed": self.seed,
            "seconds": round(self.seconds, 1),
            "submitted": dict(verdict.submitted),
            "ended": dict(verdict.ended),
            "faults": self.faults,
            "lost": verdict.lost,
            "doubled": verdict.doubled,
            "misrouted": verdict.misrouted,
            "forgotten": verdict.forgotten,
            "dropped": verdict.dropped,
            "late": verdict.late,
            "worst_told_seconds": round(verdict.told, 3),
            "worst_recovery_seconds": round(verdict.recovery, 3),
            "violations": len(verdict.violations),
            **self.figures,
        }


def config_of(settings: Mapping[str, Any], file: str = "") -> RouterConfig:
    """Return the effective configuration of a router with these settings."""
    keys = {name.replace("_", ".", 1) if not name.startswith("dispatch") else name: v for name, v in settings.items()}
    keys = {k.replace("dispatch_log_", "dispatch_log."): v for k, v in keys.items()}
    return load_router_config(file or None, {}, keys)


def bounds_of(settings: Mapping[str, Any], file: str = "") -> Bounds:
    """Return the promised times of a router with these settings."""
    config = config_of(settings, file)
    link = config.link
    return Bounds(
        told=1.0 if link.consumer_grace_seconds <= 0.5 else link.consumer_grace_seconds + 0.5,
        unresponsive=link.unresponsive_seconds,
        lost=link.lost_seconds,
        heartbeat=link.heartbeat_seconds + 0.2,
        recovery_window=config.router.recovery_seconds,
        resume=link.resume_seconds,
        noticed=link.heartbeat_seconds + 1.0,
        parted=config.mesh.lost_seconds,
        drain=config.router.drain_seconds,
        # Beyond the half second that a caller waits for the router's word.
        overdue=1.5,
    )
