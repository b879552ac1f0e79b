"""A process that serves, on an uplink whose router is played by the test."""

from __future__ import annotations

from typing import Any

from rpcmq.core.process.calls import Calls
from rpcmq.core.process.casts import Casts
from rpcmq.core.process.task import Registration, Task
from rpcmq.core.process.task_table import TaskTable
from rpcmq.core.process.welcome import Welcome
from rpcmq.errors import CallError
from rpcmq.wire import Address, Kind, control, pack
from tests.core.process.linked import Linked

__all__ = ["COMPUTE", "Collected", "Process"]

COMPUTE = Address("compute", "node-7")


class Process(Linked):
    """A table of tasks on an uplink."""

    def __init__(self) -> None:
        super().__init__("node-7")
        self.refused: list[tuple[Registration, CallError]] = []
        self.tasks: list[Task] = []
        self.calls = Calls(self.uplink, Casts(self.uplink, lambda message, error: None))
        self.serving = TaskTable(self.uplink, self.calls, lambda *what: self.refused.append(what))
        self._sequence = 0
        self.connect()

    def _welcomed(self, now: float, welcome: Welcome) -> None:
        self.calls.welcome(now, welcome)
        self.serving.welcome(now, welcome)

    def sent(self, now: float = 0.0) -> list[bytes]:
        self.serving.flush(now)
        return super().sent()

    def register(self, tag: int = 0, address: Address = COMPUTE, credit: int = 2, group: str = "") -> Registration:
        registration = Registration(tag, address, credit, "", self.tasks.append, group)
        call = self.serving.register(0.0, registration, 5.0)
        self.sent()
        self.router(control(Kind.REGISTERED, {"topic": str(address)}, key=call.key, consumer=tag))
        assert call.answer is not None
        return registration

    def deliver(self, kind: int = Kind.REQUEST, now: float = 0.0, **fields: Any) -> Task | None:
        """The router delivers a message; the task it became."""
        self._sequence += 1
        values: dict[str, Any] = {
            "payload": b"p",
            "format": 2,
            "key": b"\0" * 12 + self._sequence.to_bytes(8),
            "address": COMPUTE.encode(),
            "method": b"reboot",
        }
        self.router(pack(kind, **values | fields), now)
        tasks, self.serving.delivered = self.serving.delivered, []
        return tasks[0] if tasks else None


class Collected:
    """A peer."""

    def __init__(self) -> None:
        self.messages: list[bytes] = []

    def send(self, message: bytes) -> None:
        self.messages.append(message)
