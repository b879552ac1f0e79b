"""Counts and rates of what came."""

from __future__ import annotations

from collections import deque
from dataclasses import asdict, dataclass, field
from typing import Any

__all__ = ["Counters", "Rate"]

_MINUTE = 60.0
_SAMPLES = 60


class Rate:
    """The mean growth of a count over the last minute."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, int]] = deque(maxlen=_SAMPLES + 1)

    def sample(self, now: float, count: int) -> None:
        """Note that it is ``count`` at ``now`` (seconds)."""
        if not self._samples or now - self._samples[-1][0] >= _MINUTE / _SAMPLES:
            self._samples.append((now, count))

    def per_second(self, now: float, count: int) -> float:
        """The mean of the last minute, or of the time since the first sample."""
        for then, before in self._samples:
            if now - then <= _MINUTE:
                # Those that were refused are no longer among them.
                return max(0, count - before) / (now - then) if now > then else 0.0
        return 0.0


@dataclass
class Counters:
    """Of one transport, since the start.

    Attributes:
        messages: that became events.
        bytes: of them.
        malformed: that are no messages of RFC 5424, those that are too long among them; where there is a topic for
            them, they became events of that.
        too_long: of those, longer than ``message.max_bytes``.
        lost: that became no events: without room, not publishable, or still there when a stop had to end.
        lost_without_room: of those, datagrams for which ``udp.max_waiting_bytes`` had no room, or of others'.
        refused: events that the router refused, as for want of a right to publish on their topics.
        lost_in_kernel: datagrams for which the kernel had no room.
        lost_in_kernel_of_loud: of those, datagrams of senders that had a socket of their own, because they flooded.
        connections: opened.
        connections_refused: closed at once, because their address had as many as it may.
        out_of_step: connections that were closed because nobody could tell where their next message begins.
        idle: connections that were closed because they were silent.
    """

    messages: int = 0
    bytes: int = 0
    malformed: int = 0
    too_long: int = 0
    lost: int = 0
    lost_without_room: int = 0
    refused: int = 0
    lost_in_kernel: int = 0
    lost_in_kernel_of_loud: int = 0
    connections: int = 0
    connections_refused: int = 0
    out_of_step: int = 0
    idle: int = 0
    rate: Rate = field(default_factory=Rate)

    def shown(self, now: float) -> dict[str, Any]:
        """All of them, with the messages a second of the last minute."""
        counts = {name: value for name, value in asdict(self).items() if name != "rate"}
        return counts | {"messages_per_second": round(self.rate.per_second(now, self.messages), 1)}
