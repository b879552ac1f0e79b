"""A call or cast, as far as the history has come."""

from __future__ import annotations

from rpcmq.drill.history import Event

__all__ = ["Start", "Work"]

#: Time, place and attempt of a handler's start.
Start = tuple[float, str, int]


class Work:
    """A call or cast, as far as the history has come."""

    def __init__(self, event: Event) -> None:
        fields = event.fields
        self.caller = event.process
        self.verb: str = fields["verb"]
        self.topic: str = fields.get("topic", "")
        self.idempotent: bool = fields.get("idempotent", False)
        #: Number of consumers that may have it at a time.
        self.consumers: int = fields.get("consumers", 1)
        self.confirm: bool = fields.get("confirm", False)
        self.timeout: float | None = fields.get("timeout")
        self.submitted_at = event.at
        self.confirmed_at: float | None = None
        #: The time at which the plain program's verb returned.
        self.returned_at: float | None = None
        self.ended_at: float | None = None
        self.outcome = ""
        self.starts: list[Start] = []
        self.finished = 0
        #: The router's outcome, if not ok.
        self.settled = ""

    @property
    def waits(self) -> bool:
        """Whether somebody waits for its end."""
        return self.verb == "call" or self.confirm
