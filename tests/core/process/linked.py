"""A process on an uplink whose router is played by the test."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from rpcmq.core.process.uplink import Uplink
from rpcmq.core.process.welcome import Welcome
from rpcmq.wire import Kind, control
from rpcmq.wire.bodies import HelloBody


class Linked(ABC):
    """The uplink of a process without a socket."""

    def __init__(self, identity: str) -> None:
        self.uplink = Uplink(
            HelloBody(versions=(1,), identity=identity, queue_type="roundrobin"), self._welcomed, lambda *why: None
        )

    @abstractmethod
    def _welcomed(self, now: float, welcome: Welcome) -> None: ...

    def connect(self, now: float = 0.0, url: str = "", **welcome: Any) -> list[bytes]:
        """(Re)connect to the router at ``url``; return the messages sent once it has said WELCOME."""
        self.uplink.lost(now)
        self.uplink.connected(now, url)
        self.uplink.first_messages.clear()
        body = {"router_id": 1, "boot": 5, "handle": 7, "token": "t", "received": 0, "resumed": False} | welcome
        self.router(control(Kind.WELCOME, body), now)
        return self.sent()

    def sent(self) -> list[bytes]:
        """Take the messages that the shell would send now."""
        messages: list[bytes] = []
        while self.uplink.outbox:
            messages += self.uplink.batch()
            self.uplink.batch_was_sent()
        self.uplink.last_messages.clear()
        return messages

    def router(self, message: bytes, now: float = 0.0) -> None:
        """Receive ``message`` from the router."""
        self.uplink.receive(now, message)
