"""A process that calls and casts, on an uplink whose router is played by the test."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rpcmq.core.process.call import Call
from rpcmq.core.process.calls import Calls
from rpcmq.core.process.casts import Casts
from rpcmq.core.process.welcome import Welcome
from rpcmq.errors import CallError, Outcome
from rpcmq.wire import Address, Kind, control, pack
from tests.core.process.linked import Linked

COMPUTE = Address("compute").encode()
OTHER = Address("other").encode()


class Process(Linked):
    """A caller."""

    def __init__(self) -> None:
        super().__init__("api-1")
        self.refused: list[tuple[bytes, CallError]] = []
        #: Makes the message that is sent in place of one that was refused for good.
        self.on_refused: Callable[[bytes, CallError], bytes | None] = lambda message, error: None
        self.casts = Casts(self.uplink, self._on_refused)
        self.calls = Calls(self.uplink, self.casts)
        self.connect()

    def _welcomed(self, now: float, welcome: Welcome) -> None:
        self.calls.welcome(now, welcome)

    def _on_refused(self, message: bytes, error: CallError) -> bytes | None:
        self.refused.append((message, error))
        return self.on_refused(message, error)

    def start(self, now: float = 0.0, kind: int = Kind.REQUEST, flags: int = 0, timeout: float | None = 10.0) -> Call:
        call = Call("compute", flags, timeout)
        return self.calls.start(now, call, kind, b"payload", address=COMPUTE, method=b"m")

    def cast(self, address: bytes = COMPUTE, payload: bytes = b"p", flags: int = 0) -> bytes:
        message = pack(
            Kind.CAST, payload, key=self.uplink.next_key(), format=1, address=address, method=b"m", flags=flags
        )
        self.casts.send(message, address)
        return message

    def acknowledge(self) -> None:
        """The router has all that was sent."""
        self.router(pack(Kind.ACK, sequence=self.uplink._sent_base + self.uplink.unacknowledged))

    def error(self, key: bytes, outcome: Outcome, now: float = 0.0, **details: Any) -> None:
        body = {"outcome": outcome, "text": "why", "details": details}
        self.router(control(Kind.ERROR, body, key=key), now)

    def woken(self) -> list[Call]:
        return self.calls.take_changed()


def kinds(messages: list[bytes]) -> list[int]:
    return [message[5] for message in messages]
