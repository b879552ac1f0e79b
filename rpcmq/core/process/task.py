"""The registrations of a process, and the messages delivered to them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from rpcmq.wire import Address

__all__ = ["Registration", "Sender", "Task"]


class Registration:
    """A consumer of this process, under one tag."""

    __slots__ = (
        "address",
        "credit",
        "group",
        "leaving",
        "on_task",
        "peer_url",
        "running",
        "tag",
        "waiting",
        "waiting_bytes",
    )

    def __init__(
        self,
        tag: int,
        address: Address,
        credit: int,
        peer_url: str,
        on_task: Callable[[Task], None],
        group: str = "",
    ) -> None:
        self.tag = tag
        self.group = group
        self.address = address
        self.credit = credit
        self.peer_url = peer_url
        self.on_task = on_task
        #: Unregistering: no further deliveries; running tasks go on.
        self.leaving = False
        self.running: dict[bytes, Task] = {}
        #: Direct calls waiting for credit; calls through the router wait at the router.
        self.waiting: dict[bytes, Task] = {}
        #: Bytes of their payloads.
        self.waiting_bytes = 0


class Task:
    """A delivered call or cast. ``is_abandoned``: nobody waits for its result any more."""

    __slots__ = (
        "attempt", "cancelled", "flags", "format", "grants", "is_abandoned", "is_call", "key", "method", "on_change",
        "payload", "received_at", "registration", "seal", "sender", "trace", "ttl",
    )  # fmt: skip

    key: bytes
    registration: Registration
    is_call: bool
    attempt: int
    flags: int
    method: str
    trace: bytes
    format: int
    payload: bytes | memoryview
    #: The message, if it is signed; the shell replaces it by the state that signs its answers.
    seal: Any
    #: Receiver of its answers: the router, or the peer that sent it directly.
    sender: Sender
    #: Seconds left when it was received; None without a deadline.
    ttl: float | None
    received_at: float
    cancelled: bool
    is_abandoned: bool
    #: Items that may be sent before the caller grants more.
    grants: int
    #: Called when it is cancelled or may send more.
    on_change: Callable[[], object] | None


class Sender(Protocol):
    """Takes messages that are to be sent."""

    def send(self, message: bytes) -> None:
        """Queue ``message``."""
