"""The facts that the node poison judges: calls, the processes that had them, and their deaths."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

__all__ = [
    "MAX_KILLS", "TOGETHER_SECONDS", "Address", "CallName", "Death", "Flight", "Kill", "Loss", "Suspect", "Topic",
]  # fmt: skip

#: Losses within so many seconds are at about the same time.
TOGETHER_SECONDS = 1.0

#: Seconds within which a call kills at once, on a busy machine as well, and the factor between times that are alike.
_AT_ONCE_SECONDS, _ALIKE = 1.0, 2.0
#: Kills of a call that are remembered.
MAX_KILLS = 10

#: Exchange and topic; exchange, topic and server.
Topic = tuple[str, str]
Address = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class CallName:
    """Calls that ask for the same.

    Attributes:
        fingerprint: the digest of the rest, and of the payload.
        size_bytes: of the payload.
    """

    fingerprint: str
    exchange: str
    topic: str
    server: str
    method: str
    format: str
    size_bytes: int

    @property
    def place(self) -> Topic:
        """Exchange and topic."""
        return self.exchange, self.topic

    @property
    def address(self) -> Address:
        """Exchange, topic, and the server that it is addressed to, if to one."""
        return self.exchange, self.topic, self.server


@dataclass(frozen=True, slots=True)
class Flight:
    """A call that a consumer had when it died, since ``given_at`` (monotonic seconds).

    Attributes:
        attempt: how many consumers had had it before, as the call with this id.
    """

    call: CallName
    given_at: float
    id: str = ""
    caller: str = ""
    attempt: int = 0


class Loss(NamedTuple):
    """The loss of a connection.

    Attributes:
        at: when (monotonic seconds).
        process: the session that the process had.
        instance: host and process id, which several sessions of one program have; None: not known.
    """

    at: float
    process: Hashable
    instance: Hashable = None

    def is_of(self, other: Loss) -> bool:
        """Return whether the two are of one process."""
        return self.process == other.process or (self.instance is not None and self.instance == other.instance)

    def is_near(self, other: Loss) -> bool:
        """Return whether the two are at about the same time."""
        return abs(self.at - other.at) < TOGETHER_SECONDS

    def is_one_failure_with(self, other: Loss) -> bool:
        """Return whether the host of both may have failed: two processes at about one time, not at different hosts."""
        if self.is_of(other) or not self.is_near(other):
            return False
        hosts = [each.instance[0] for each in (self, other) if isinstance(each.instance, tuple)]
        return len(hosts) < 2 or hosts[0] == hosts[1]


@dataclass(frozen=True, slots=True)
class Death:
    """A process that is taken for dead.

    Attributes:
        loss: of its connection; ``at_ms``: when, by the wall clock.
        consumers: of each topic, by exchange and topic, that it consumed: how many there were, with itself.
        is_sudden: whether a call may be the reason: it was not leaving, and had been heard of until then.
    """

    loss: Loss
    identity: str
    consumers: Mapping[Topic, int] = field(default_factory=dict)
    router: str = ""
    at_ms: int = 0
    description: Mapping[str, str] = field(default_factory=dict)
    is_sudden: bool = True

    @property
    def lost_at(self) -> float:
        """The time at which its connection was lost (monotonic seconds)."""
        return self.loss.at

    @property
    def key(self) -> str:
        """The name of the key that it had connected with; empty without access control."""
        return self.description.get("key", "")


@dataclass(frozen=True, slots=True)
class Kill:
    """A death with a call in flight that had been given to it ``seconds`` before, one of ``beside``.

    Attributes:
        judged_at: when it was noticed (monotonic seconds); 0: another router has told of it.
        spared: how many consumers had had the call with this id before, and did not die of it.
    """

    death: Death
    seconds: float
    beside: int
    id: str
    caller: str
    judged_at: float = 0.0
    spared: int = 0

    def leads_to(self, other: Kill, flight: Flight) -> bool:
        """Return whether ``other``, of the same call, may have come of this one: it was given again, or tried again."""
        return other.id == self.id or flight.given_at >= self.judged_at


@dataclass(slots=True, eq=False)
class Suspect:
    """A call that has killed.

    Attributes:
        quarantined_at: since when it is given to nobody (monotonic seconds); None: it is.
        stopped: calls that were stopped since.
        is_doubtful: whether others have died beside its kills, so that chance may have killed those as well.
        explained: the processes among those it has killed that a quarantined call has killed.
    """

    call: CallName
    kills: list[Kill] = field(default_factory=list)
    touched_at: float = 0.0
    quarantined_at: float | None = None
    stopped: int = 0
    is_doubtful: bool = False
    explained: set[Hashable] = field(default_factory=set)

    @property
    def keys(self) -> set[str]:
        """The keys of the consumers that it has killed."""
        return {kill.death.key for kill in self.kills}

    @property
    def unexplained(self) -> list[Kill]:
        """Its kills, without those of consumers that a quarantined call has killed."""
        return [kill for kill in self.kills if kill.death.loss.process not in self.explained]

    @property
    def is_regular(self) -> bool:
        """Whether it has killed each that had it, and after about the same time, or at once each time.

        It is not looked at any more if it has as many kills as are remembered.
        """
        kills = self.unexplained
        times = [kill.seconds for kill in kills]
        if not times or len(times) == MAX_KILLS:
            return True
        return not kills[-1].spared and max(times) <= max(_AT_ONCE_SECONDS, _ALIKE * min(times))

    @property
    def counted(self) -> list[Kill]:
        """The kills by which it is judged: of those that are not explained not the latest one if they are irregular."""
        return self.unexplained if self.is_regular else self.unexplained[:-1]

    def spared_before(self, flight: Flight) -> int:
        """Return how many consumers had ``flight`` before the one that it has killed now, and did not die of it."""
        return max(0, flight.attempt - sum(kill.id == flight.id for kill in self.kills))

    def has_killed(self, death: Death) -> bool:
        """Return whether ``death`` is that of a process that it has killed, by whatever session."""
        lost, losses = death.loss, (kill.death.loss for kill in self.kills)
        return any(each.process == lost.process or (each.is_of(lost) and each.is_near(lost)) for each in losses)

    def has_followed(self, lost: Loss, flight: Flight) -> bool:
        """Return whether the call was given to the one that has just died after it had killed that of ``lost``."""
        return any(kill.death.loss.is_of(lost) and flight.given_at >= kill.death.lost_at for kill in self.kills)
