"""The evidence that a call kills consumers: pure, without a clock.

A consumer that dies has a *kill* for each call that it had, if it had got that shortly before. One of these calls is
*quarantined* if

* it has so many kills as it takes,
* strictly more than each other call that died with it: innocent bystanders are delivered again, and answered,
* and chance would hardly have killed so many: consumers of its topic die by themselves at a rate that is estimated
  from the other deaths, and rarely in just those seconds for which one has a call that another has died with. So a call
  that kills at once takes few kills, and one that takes its time, or that is one of many, takes more.

What speaks against a kill: another process that consumes was lost within a second, for then the host or the network has
failed; but if the call was given to the later of the two after the earlier one was lost, it has followed it there, and
both are kills. A process that comes back was not dead. An answer to the call ends all suspicion.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from math import exp, factorial, inf
from typing import NamedTuple

__all__ = ["CallName", "Death", "Evidence", "Flight", "Kill", "Loss", "Suspect", "Verdict", "at_least"]

#: Losses within so many seconds are one failure.
_TOGETHER_SECONDS = 1.0
#: Losses that are remembered, deaths of a topic, topics with deaths, and kills of a call.
_MAX_LOSSES, _MAX_DEATHS, _MAX_TOPICS, _MAX_KILLS = 10_000, 200, 1_000, 10
#: Seconds of a consumer's life in which one death is expected until there is more to go by.
_FIRST_SECONDS = 3600.0
#: Losses that are looked at of those that were at the same time.
_MAX_TOGETHER = 20

Topic = tuple[str, str]


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


@dataclass(frozen=True, slots=True)
class Flight:
    """A call that a consumer had when it died, since ``given_at`` (monotonic seconds)."""

    call: CallName
    given_at: float
    id: str = ""
    caller: str = ""


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
        """Whether the two are at about the same time."""
        return abs(self.at - other.at) < _TOGETHER_SECONDS


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


@dataclass(frozen=True, slots=True)
class Kill:
    """A death with a call in flight that had been given to it ``seconds`` before, one of ``beside``."""

    death: Death
    seconds: float
    beside: int
    id: str
    caller: str


@dataclass(slots=True, eq=False)
class Suspect:
    """A call that has killed.

    Attributes:
        quarantined_at: since when it is given to nobody (monotonic seconds); None: it is.
        stopped: calls that were stopped since.
    """

    call: CallName
    kills: list[Kill] = field(default_factory=list)
    touched_at: float = 0.0
    quarantined_at: float | None = None
    stopped: int = 0

    def has_killed(self, death: Death) -> bool:
        """Whether ``death`` is that of a process that it has killed, by whatever session."""
        lost, losses = death.loss, (kill.death.loss for kill in self.kills)
        return any(each.process == lost.process or (each.is_of(lost) and each.is_near(lost)) for each in losses)

    def has_followed(self, lost: Loss, flight: Flight) -> bool:
        """Whether the call was given to the one that has just died after it had killed the process of ``lost``."""
        return any(kill.death.loss.is_of(lost) and flight.given_at >= kill.death.lost_at for kill in self.kills)


@dataclass(slots=True)
class Verdict:
    """The changes that new evidence has made."""

    quarantined: Suspect | None = None
    lifted: list[Suspect] = field(default_factory=list)


class Evidence:
    """Judges calls.

    Args:
        kills: that it takes for a quarantine.
        within: seconds after which a death is no kill of a call any more that the process had got then.
        memory: seconds after its last kill for which a call is suspect, and in which deaths are counted.
        chance: probability that deaths by chance look like this, at most.
        now: the time (monotonic seconds).
        max_suspects, max_quarantined: most calls that are remembered.

    Attributes:
        suspects: those that are not quarantined, by fingerprint, whose latest kill is oldest first.
        quarantined: the others.
        excused: deaths with calls in flight that were taken for failures of a host or of the network.
    """

    def __init__(
        self, kills: int, within: float, memory: float, chance: float, now: float, max_suspects: int,
        max_quarantined: int,
    ) -> None:  # fmt: skip
        self._kills = kills
        self._within = within
        self._memory = memory
        self._chance = chance
        self._began_at = now
        self._max_suspects = max_suspects
        self._max_quarantined = max_quarantined
        self.suspects: OrderedDict[str, Suspect] = OrderedDict()
        self.quarantined: dict[str, Suspect] = {}
        self.excused = 0
        #: Times and processes of losses; deaths by topic; kills whose death is not much older than the latest loss.
        self._losses: deque[Loss] = deque(maxlen=_MAX_LOSSES)
        self._deaths: OrderedDict[Topic, deque[Death]] = OrderedDict()
        self._recent: deque[tuple[Suspect, Kill]] = deque(maxlen=_MAX_LOSSES)

    def find(self, fingerprint: str) -> Suspect | None:
        """The call with this fingerprint, if it has killed."""
        return self.quarantined.get(fingerprint) or self.suspects.get(fingerprint)

    # --- losses ------------------------------------------------------------------------------

    def away(self, loss: Loss) -> None:
        """The connection of a process that consumes is lost."""
        self._losses.append(loss)

    def back(self, process: Hashable) -> Verdict:
        """A process that was away is back: it had not died, and the network has failed."""
        verdict = Verdict()
        loss = next((each for each in reversed(self._losses) if each.process == process), None)
        for deaths in self._deaths.values():
            for death in [each for each in deaths if each.loss.process == process]:
                deaths.remove(death)
        for suspect in [*self.suspects.values(), *self.quarantined.values()]:
            self._take_back(suspect, [kill for kill in suspect.kills if kill.death.loss.process == process], verdict)
        if loss is not None:
            self._excuse(loss, {}, verdict)
        return verdict

    def gone(self, now: float, death: Death, flights: Mapping[str, Flight], count: int = 0) -> Verdict:
        """A process that was away is dead.

        Args:
            flights: the calls that it had, by fingerprint.
            count: how many it had, if some of them are not told.
        """
        self.forget_old(now)
        verdict = Verdict()
        self._excuse(death.loss, flights, verdict)
        others = self._lost_together(death.loss)
        self.excused += bool(others and flights)
        beside: list[Suspect] = []
        for fingerprint, flight in flights.items():
            suspect = self.find(fingerprint) or Suspect(flight.call)
            beside.append(suspect)
            seconds = death.lost_at - flight.given_at
            if not death.is_sudden or not 0 <= seconds <= self._within:
                continue
            if all(suspect.has_followed(other, flight) for other in others):
                self._add(now, suspect, Kill(death, seconds, count or len(flights), flight.id, flight.caller), flight)
        if death.is_sudden:
            self._note_death(death)
        self._judge(now, beside, verdict)
        return verdict

    def _lost_together(self, loss: Loss) -> list[Loss]:
        """The losses of other processes at about the same time, some of them if there are many."""
        found: list[Loss] = []
        for other in reversed(self._losses):
            # Those that other routers tell of come a little late.
            if other.at <= loss.at - 5 * _TOGETHER_SECONDS or len(found) > _MAX_TOGETHER:
                break
            if other.is_near(loss) and not other.is_of(loss):
                found.append(other)
        return found

    def _excuse(self, loss: Loss, flights: Mapping[str, Flight], verdict: Verdict) -> None:
        """Take back kills that turn out to be of one failure with ``loss``."""
        recent = self._recent
        while recent and recent[0][1].death.lost_at <= loss.at - 2 * _TOGETHER_SECONDS:
            recent.popleft()
        for suspect, kill in list(recent):
            other = kill.death.loss
            if other.is_of(loss) or not other.is_near(loss):
                continue
            flight = flights.get(suspect.call.fingerprint)
            if flight is None or not suspect.has_followed(other, flight):
                self.excused += 1
                self._take_back(suspect, [kill], verdict)

    def _take_back(self, suspect: Suspect, kills: Iterable[Kill], verdict: Verdict) -> None:
        for kill in kills:
            if kill in suspect.kills:
                suspect.kills.remove(kill)
        fingerprint = suspect.call.fingerprint
        if suspect.quarantined_at is not None and len(suspect.kills) < self._kills:
            suspect.quarantined_at = None
            if self.quarantined.pop(fingerprint, None) is not None:
                verdict.lifted.append(suspect)
                self.suspects[fingerprint] = suspect
        if not suspect.kills:
            self.suspects.pop(fingerprint, None)

    # --- judgement ---------------------------------------------------------------------------

    def _add(self, now: float, suspect: Suspect, kill: Kill, flight: Flight) -> None:
        if suspect.has_killed(kill.death) and not suspect.has_followed(kill.death.loss, flight):
            return  # the process had the call in two sessions
        if len(suspect.kills) == _MAX_KILLS:
            del suspect.kills[1]  # the first tells when it began
        suspect.kills.append(kill)
        self._recent.append((suspect, kill))
        suspect.touched_at = now
        if suspect.quarantined_at is not None:
            return
        self.suspects[suspect.call.fingerprint] = suspect
        self.suspects.move_to_end(suspect.call.fingerprint)
        while len(self.suspects) > self._max_suspects:
            self.suspects.popitem(last=False)

    def _note_death(self, death: Death) -> None:
        for topic in death.consumers:
            self._deaths.setdefault(topic, deque(maxlen=_MAX_DEATHS)).append(death)
            self._deaths.move_to_end(topic)
        while len(self._deaths) > _MAX_TOPICS:
            self._deaths.popitem(last=False)

    def chance_of(self, now: float, suspect: Suspect) -> float:
        """The probability that consumers that die by chance have it so often, or another one of those beside it."""
        place, kills = suspect.call.place, suspect.kills
        if not kills:
            return 1.0
        deaths = self._deaths.get(place, ())
        others = sum(each.lost_at > now - self._memory and not suspect.has_killed(each) for each in deaths)
        consumers = max(kill.death.consumers.get(place, 1) for kill in kills)
        lived = consumers * max(1.0, min(self._memory, now - self._began_at))
        rate = max(others / lived, (others + 1) / (lived + _FIRST_SECONDS))
        # The first kill says nothing: whoever dies has had some call.
        expected = rate * sum(kill.seconds for kill in kills[1:])
        return min(1.0, max(kill.beside for kill in kills) * at_least(len(kills) - 1, expected))

    def _judge(self, now: float, beside: list[Suspect], verdict: Verdict) -> None:
        ranked = sorted(beside, key=lambda each: -len(each.kills))
        if not ranked or not ranked[0].kills or (len(ranked) > 1 and len(ranked[1].kills) == len(ranked[0].kills)):
            return
        worst = ranked[0]
        if worst.quarantined_at is not None:
            self._explain(worst)
        elif (
            len(worst.kills) >= self._kills
            and self.chance_of(now, worst) <= self._chance
            and len(self.quarantined) < self._max_quarantined
        ):
            self.quarantine(now, worst)
            verdict.quarantined = worst

    def quarantine(self, now: float, suspect: Suspect) -> None:
        """Keep ``suspect`` from consumers."""
        fingerprint = suspect.call.fingerprint
        suspect.quarantined_at = suspect.touched_at = now
        self.suspects.pop(fingerprint, None)
        self.quarantined[fingerprint] = suspect
        self._explain(suspect)

    def adopt(self, suspect: Suspect, since: float) -> bool:
        """Quarantine ``suspect`` because another router has; return whether that is new, and there is room."""
        if suspect.call.fingerprint in self.quarantined or len(self.quarantined) >= self._max_quarantined:
            return False
        self.quarantine(since, suspect)
        return True

    def _explain(self, suspect: Suspect) -> None:
        """Its kills do not speak for other calls."""
        for deaths in self._deaths.values():
            for death in [each for each in deaths if suspect.has_killed(each)]:
                deaths.remove(death)

    # --- the end of suspicion ----------------------------------------------------------------

    def answered(self, fingerprint: str) -> Suspect | None:
        """A consumer has answered such a call and lives: return what was suspect."""
        suspect = self.find(fingerprint)
        self.suspects.pop(fingerprint, None)
        self.quarantined.pop(fingerprint, None)
        return suspect

    def release(self, fingerprint: str) -> Suspect | None:
        """Let such calls through, and begin to judge them anew."""
        return self.answered(fingerprint)

    def forget_old(self, now: float) -> None:
        """Forget calls that have not killed for long."""
        while self.suspects and next(iter(self.suspects.values())).touched_at + self._memory <= now:
            self.suspects.popitem(last=False)

    def next_deadline(self) -> float:
        """The time of the next :meth:`forget_old` (monotonic seconds)."""
        return next(iter(self.suspects.values())).touched_at + self._memory if self.suspects else inf


def at_least(count: int, expected: float) -> float:
    """The probability of ``count`` events or more where ``expected`` come on the average (Poisson)."""
    # Not 1 - P(fewer): that would lose small ones. Beyond these terms there is next to nothing for what is of interest.
    if expected > 1.0:
        return 1.0
    return exp(-expected) * sum(expected**number / factorial(number) for number in range(count, count + 20))
