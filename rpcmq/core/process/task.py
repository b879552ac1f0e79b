"""The registrations of a process, and the messages delivered to them.

Their states and events are those of :mod:`rpcmq.core.process.task_states`.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from typing import Any, NamedTuple, Protocol

from rpcmq.core.common.stream_credit import StreamCredit
from rpcmq.core.process.pulse import Pulse
from rpcmq.core.process.task_states import ENDED, RegistrationState, TaskState
from rpcmq.errors import UsageError
from rpcmq.wire import Address

__all__ = ["Moved", "Registration", "Sender", "Task", "free_tag", "registration_for"]

_WAITING, _RUNNING, _STREAMING = TaskState.WAITING, TaskState.RUNNING, TaskState.STREAMING
_CANCELLED, _ABANDONED = TaskState.CANCELLED, TaskState.ABANDONED
#: Most tasks of a registration that have not ended: so many, or so many times its credit if that is more.
_MOST_UNENDED, _TIMES_CREDIT = 1024, 8
_FOR_NOBODY = frozenset({_CANCELLED, _ABANDONED, TaskState.WASTED})


class Registration:
    """A consumer of this process, under one tag."""

    __slots__ = (
        "address",
        "credit",
        "cut_off",
        "group",
        "is_lapsed",
        "is_refused",
        "occupied",
        "on_not_begun",
        "on_task",
        "peer_url",
        "running",
        "set_aside",
        "sets_aside",
        "state",
        "tag",
        "unended",
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
        on_not_begun: Callable[[Task, BaseException], object] = lambda task, error: None,
        sets_aside: bool = False,
    ) -> None:
        self.tag = tag
        self.group = group
        self.address = address
        self.credit = credit
        self.peer_url = peer_url
        #: Begins a task; and is told of one for which that has raised.
        self.on_task = on_task
        self.on_not_begun = on_not_begun
        self.state = RegistrationState.NEW
        #: Whether a router has refused it since it was asked last.
        self.is_refused = False
        #: Whether the router has taken it for lost, and has not restored it: what was set aside may be others'.
        self.is_lapsed = False
        self.running: dict[bytes, Task] = {}
        #: Tasks that were begun and have not ended, those that the router has taken for lost included.
        self.unended = 0
        #: Casts that were settled and still run: they take of the credit.
        self.occupied = 0
        #: Casts that were not begun here, or not for good: others may be given them once this session is over.
        self.set_aside: set[Task] = set()
        #: Whether each cast is one of these when it is delivered.
        self.sets_aside = sets_aside
        #: Idempotent casts that run on although their session is over, by key: nobody was told that they were run. With
        #: the attempt of the router that has sent it again since, and is told when it has ended; None: none has.
        self.cut_off: dict[bytes, int | None] = {}
        #: Direct calls waiting for credit; calls through the router wait at the router.
        self.waiting: dict[bytes, Task] = {}
        #: Bytes of their payloads.
        self.waiting_bytes = 0

    @property
    def is_overrun(self) -> bool:
        """Whether the router has delivered far more than the credit."""
        # Within it, it may deliver as much again after each reconnect: it has taken for lost what runs.
        return self.unended >= _MOST_UNENDED and self.unended >= _TIMES_CREDIT * self.credit


class Moved(NamedTuple):
    """A task whose session is over: the next owner will ask for it, or its caller is told that it is lost.

    Attributes:
        counted_on: the former owner's router counted on this process at this time, or later (monotonic seconds).
        asked_at: when the next owner has asked for it; infinite: it has not yet.
    """

    counted_on: float
    asked_at: float


class Task:
    """A delivered call or cast."""

    __slots__ = (
        "attempt", "credit", "flags", "format", "hops", "is_call", "key", "method", "moved", "on_change",
        "payload",
        "received_at", "registration", "seal", "sender", "state", "tag", "trace", "ttl",
    )  # fmt: skip

    key: bytes
    registration: Registration
    #: Tag of the registration that its answer is from: in a mesh another one may have been asked for it.
    tag: int
    is_call: bool
    #: The owner of the message: the router that waits for the answer.
    hops: int
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
    state: TaskState
    #: Credit of the stream that answers it; None: nothing was sent or granted.
    credit: StreamCredit | None
    #: Called when it is cancelled or may send more.
    on_change: Callable[[], object] | None
    #: None: the session in which it came goes on.
    moved: Moved | None

    @property
    def stamp(self) -> bytes:
        """The place of its owner in the order of all owners that the message had."""
        return bytes((self.hops, self.attempt))

    @property
    def is_wanted(self) -> bool:
        """Whether it runs, and somebody waits for its result."""
        return self.state is _RUNNING or self.state is _STREAMING

    @property
    def is_for_nobody(self) -> bool:
        """Whether its caller has given up or is gone, or was when it ended."""
        return self.state in _FOR_NOBODY

    @property
    def has_ended(self) -> bool:
        """Whether it was answered or settled, even if nobody waited for that."""
        return self.state in ENDED

    def counted_on(self, pulse: Pulse) -> float:
        """Its owner, or the router between, counted on its answer at this time, or later (monotonic seconds).

        Args:
            pulse: of the link to the router.
        """
        moved = self.moved
        # A router answers after it has told us, if it did not want what it has asked for any more.
        return pulse.counted_on if moved is None or pulse.counted_on > moved.asked_at else moved.counted_on

    def cancel(self) -> None:
        """Its caller has given up; the router still counts on its answer."""
        if self.is_wanted:
            self.state = _CANCELLED

    def abandon(self) -> None:
        """Nobody is left to whom its answer could be sent."""
        if self.is_wanted or self.state is _WAITING or self.state is _CANCELLED:
            self.state = _ABANDONED


class Sender(Protocol):
    """Takes messages that are to be sent."""

    def send(self, message: bytes) -> None:
        """Queue ``message``."""


def registration_for(address: Address, registrations: Iterable[Registration]) -> Registration | None:
    """The one of ``registrations`` that serves ``address``, which may be a server's own topic in one name."""
    for registration in registrations:
        ours = registration.address
        names = ((ours.topic, ""), (ours.topic, ours.server), (f"{ours.topic}.{ours.server}", ""))
        same = address.exchange == ours.exchange and not registration.group
        if same and (address.topic, address.server) in names:
            return registration
    return None


def free_tag(registrations: Container[int]) -> int:
    """A tag for a new registration, beside those of ``registrations``.

    Raises:
        UsageError: all are in use.
    """
    for tag in range(256):
        if tag not in registrations:
            return tag
    raise UsageError("a process can have 256 registrations; stop one of its services first")
