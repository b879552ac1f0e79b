"""Copies, checked in a history: each consumer gets one of a fanout, each group of a topic one of a call or cast."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rpcmq.drill.history import Event

__all__ = ["CopyChecks"]

#: A consumer is known at all routers so many seconds after its own one has confirmed it.
_KNOWN = 0.5


class CopyChecks:
    """Looks at events in the order of their time.

    Args:
        violated: called with (check, text).
        is_stable: whether nothing fails: then none is missed.
    """

    def __init__(self, violated: Callable[[str, str], None], is_stable: bool) -> None:
        self._violated = violated
        self._is_stable = is_stable
        #: Fanouts, and what a group may get: when each was sent, and with which fields.
        self._sent: dict[str, tuple[float, dict[str, Any]]] = {}
        #: The process that has started each copy, by id and consumer or group.
        self._started: dict[tuple[str, str], str] = {}
        #: (topic, group, process) -> when it was registered.
        self._serves: dict[tuple[str, str, str], float] = {}

    def see(self, event: Event) -> None:
        """The next event."""
        fields = event.fields
        if event.what == "submit" and fields["verb"] in ("fanout", "cast", "call"):
            self._sent[event.id] = event.at, fields
        elif event.what == "serves":
            self._serves.setdefault((event.id, fields["group"], event.process), event.at)
        elif event.what == "start":
            self._start(event)

    def _start(self, event: Event) -> None:
        sent, group = self._sent.get(event.id), event.fields.get("group", "")
        if sent is None:
            return
        is_fanout = sent[1]["verb"] == "fanout"
        if not is_fanout and not group:
            return
        name = event.id, f"{event.process} {group}" if is_fanout else group
        first = self._started.get(name)
        if first is not None and not sent[1].get("idempotent"):
            kind = "fanout" if is_fanout else f"copy for {group}"
            self._violated("copied twice", f"{kind} {event.id} was started by {first} and by {event.process}")
        self._started[name] = event.process

    def finish(self) -> None:
        """The history is complete."""
        if not self._is_stable:
            return
        for id, (at, fields) in self._sent.items():
            for (topic, group, process), since in self._serves.items():
                if topic != fields["topic"] or since + _KNOWN > at or fields.get("server"):
                    continue
                is_fanout = fields["verb"] == "fanout"
                if is_fanout == bool(group):
                    continue  # groups get no copy of a fanout
                if (id, f"{process} " if is_fanout else group) not in self._started:
                    self._violated("copy missed", f"{fields['verb']} {id}: no copy for {group or process}")
