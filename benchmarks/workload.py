"""The call that every system makes, and how its latency is written down.

The message is that of a typical call of a cloud controller: a request context and a method with its
arguments, 200 bytes or so.
"""

from __future__ import annotations

from time import perf_counter
from typing import Any

from rpcmq.histogram import Histogram

__all__ = ["ARGUMENTS", "CONTEXT", "METHOD", "Meter", "rebooted"]

CONTEXT: dict[str, Any] = {
    "user_id": "7f3c9a1e",
    "project_id": "b2d40c55",
    "request_id": "req-5f0e8c1a-9d27",
    "roles": ["member", "reader"],
    "is_admin": False,
}
METHOD = "reboot_instance"
ARGUMENTS: dict[str, Any] = {"instance_id": "i-00000a7c", "reboot_type": "SOFT"}


def rebooted(instance_id: str, reboot_type: str) -> dict[str, Any]:
    """The result of the called method."""
    return {"instance_id": instance_id, "task_state": f"rebooting_{reboot_type.lower()}"}


class Meter:
    """Counts calls, and how long each took.

    Args:
        seconds: how long to measure; as much as a fifth of that before is not counted.
    """

    def __init__(self, seconds: float) -> None:
        self.begin = perf_counter() + min(0.5, seconds / 5)
        self.end = self.begin + seconds
        self._histogram = Histogram()
        self._calls = self._all = 0
        self._last = self.end

    def count(self, sent: float, received: float, calls: int = 1) -> bool:
        """Calls were sent and answered (times of ``perf_counter``); whether to go on."""
        self._all += calls
        self._last = received
        if received >= self.begin:
            self._calls += calls
            self._histogram.record((received - sent) * 1e6, calls)
        return received < self.end

    def result(self) -> dict[str, float]:
        """The result of a measurement; ``calls`` are all, with those before the measurement began."""
        quantile = self._histogram.quantile
        return {
            "calls": self._all,
            "calls_per_second": self._calls / (self._last - self.begin),
            "p50_us": quantile(0.5) or 0.0,
            "p99_us": quantile(0.99) or 0.0,
            "max_us": quantile(1) or 0.0,
        }
