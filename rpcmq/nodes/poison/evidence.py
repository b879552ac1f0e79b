"""The evidence that a call kills consumers: pure, without a clock.

A consumer that dies has a *kill* for each call that it had, if it had got that shortly before. One of these calls is
*quarantined* if

* it has so many kills as it takes; where its address is served under several keys, of consumers of two of them, since
  whoever has one could drop its links on purpose; or many more, since next to all consumers may have the same key,
* one more, which does not count, if it has not killed each that had it, or not about as fast each time, as what kills
  does: a call that takes long, beside restarts by SIGKILL, was with one for any time, and with the next until that is
  killed,
* strictly more than each other call that died with it, but for deaths that a quarantined call explains: innocent
  bystanders are delivered again, and answered,
* and chance would hardly have killed so many: consumers of its topic die by themselves at a rate that is estimated
  from the other deaths, and rarely in just those seconds for which one has a call that another has died with. So a call
  that kills at once takes few kills, and one that takes its time, or that is one of many, takes more.

What speaks against a kill: another process of the same host that consumes was lost within a second, for then the host
has failed; but if the call was given to the later of the two after the earlier one was lost, it has followed it there,
and both are kills. Of those who die within a second at several hosts it has killed one, but where it was given again.
A process that comes back was not dead. Where others go on dying without a call that is quarantined, as in a restart by
SIGKILL, so that chance has probably killed those that had it, it is let through again; where several die beside it, so
that chance may have, it is when no more die. One more kill is enough then. An answer to the call ends all suspicion.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import takewhile
from math import exp, factorial, inf

from rpcmq.nodes.poison.facts import MAX_KILLS, TOGETHER_SECONDS, Death, Flight, Kill, Loss, Suspect, Topic
from rpcmq.nodes.poison.serving_keys import ServingKeys

__all__ = ["Evidence", "Verdict", "at_least"]

#: Losses that are remembered, deaths of a topic, and topics with deaths.
_MAX_LOSSES, _MAX_DEATHS, _MAX_TOPICS = 10_000, 200, 1_000
#: Seconds of a consumer's life in which one death is expected until there is more to go by.
_FIRST_SECONDS = 3600.0
#: Seconds in which deaths are counted once more: consumers that are killed one after the other die at another rate.
_SPELL_SECONDS = 60.0
#: The same for kills that are not alike, and to see whether a quarantine is doubtful.
_BURST_SECONDS = 10.0
#: A quarantine is lifted if chance becomes so many times more likely than it may be.
_DOUBT = 10.0
#: Losses that are looked at of those that were at the same time.
_MAX_TOGETHER = 20


@dataclass(slots=True)
class Verdict:
    """The changes that new evidence has made.

    Attributes:
        lifted: let through again, as they have killed fewer than it seemed.
        doubted: let through again, as others die without them as well.
    """

    quarantined: Suspect | None = None
    lifted: list[Suspect] = field(default_factory=list)
    doubted: list[Suspect] = field(default_factory=list)


class Evidence:
    """Judges calls.

    Args:
        kills: that it takes for a quarantine.
        within: seconds after which a death is no kill of a call any more that the process had got then.
        memory: seconds after its last kill for which a call is suspect, and in which deaths are counted.
        chance: probability that deaths by chance look like this, at most.
        now: the time (monotonic seconds).
        max_suspects, max_quarantined: most calls that are remembered.
        kills_of_one_key: that it takes where other consumers of its address have another key than all that have died.

    Attributes:
        serving_keys: the keys under which addresses are served.
        suspects: those that are not quarantined, by fingerprint, whose latest kill is oldest first.
        quarantined: the others.
        excused: deaths with calls in flight that were taken for failures of a host or of the network.
    """

    def __init__(
        self, kills: int, within: float, memory: float, chance: float, now: float, max_suspects: int,
        max_quarantined: int, kills_of_one_key: int = 0,
    ) -> None:  # fmt: skip
        self._kills = kills
        self._kills_of_one_key = max(kills, kills_of_one_key)
        self._within = within
        self._memory = memory
        self._chance = chance
        self._began_at = now
        self._max_suspects = max_suspects
        self._max_quarantined = max_quarantined
        self.serving_keys = ServingKeys(memory)
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
                beside_it, spared = count or len(flights), suspect.spared_before(flight)
                kill = Kill(death, seconds, beside_it, flight.id, flight.caller, now, spared)
                self._add(now, suspect, kill, flight)
        if death.is_sudden:
            self._note_death(now, death)
            self._doubt(now, death, verdict)
        self._judge(now, beside, verdict)
        return verdict

    def _lost_together(self, loss: Loss) -> list[Loss]:
        """The losses of other processes at about the same time, some of them if there are many."""
        found: list[Loss] = []
        for other in reversed(self._losses):
            # Those that other routers tell of come a little late.
            if other.at <= loss.at - 5 * TOGETHER_SECONDS or len(found) > _MAX_TOGETHER:
                break
            if other.is_one_failure_with(loss):
                found.append(other)
        return found

    def _excuse(self, loss: Loss, flights: Mapping[str, Flight], verdict: Verdict) -> None:
        """Take back kills that turn out to be of one failure with ``loss``."""
        recent = self._recent
        while recent and recent[0][1].death.lost_at <= loss.at - 2 * TOGETHER_SECONDS:
            recent.popleft()
        for suspect, kill in list(recent):
            other = kill.death.loss
            if not other.is_one_failure_with(loss):
                continue
            flight = flights.get(suspect.call.fingerprint)
            if flight is None or not suspect.has_followed(other, flight):
                self.excused += 1
                self._take_back(suspect, [kill], verdict)

    def _take_back(self, suspect: Suspect, kills: Iterable[Kill], verdict: Verdict) -> None:
        for kill in kills:
            if kill in suspect.kills:
                suspect.kills.remove(kill)
        if suspect.quarantined_at is not None and not self._are_enough(suspect) and self.let_through(suspect):
            verdict.lifted.append(suspect)
        if not suspect.kills:
            self.suspects.pop(suspect.call.fingerprint, None)

    def let_through(self, suspect: Suspect) -> bool:
        """Lift a quarantine, and go on suspecting; return whether there was one."""
        suspect.quarantined_at, suspect.is_doubtful = None, False
        if self.quarantined.pop(suspect.call.fingerprint, None) is None:
            return False
        self._explain_no_more(suspect)
        self.suspects[suspect.call.fingerprint] = suspect
        return True

    def _doubt(self, now: float, death: Death, verdict: Verdict) -> None:
        """Lift what chance may have killed, now that one more has died without it, or do so when no more die."""
        # Before that too little is known of how often consumers die.
        is_known = now - self._began_at >= _SPELL_SECONDS
        for suspect in list(self.quarantined.values()):
            if suspect.call.place not in death.consumers or suspect.has_killed(death):
                continue
            if is_known and self.chance_of(now, suspect) > self._chance * _DOUBT and self.let_through(suspect):
                verdict.doubted.append(suspect)
            else:
                suspect.is_doubtful |= self._is_doubtful(now, suspect)

    def _is_doubtful(self, now: float, suspect: Suspect) -> bool:
        """Return whether several die without it just now, of what may have killed those that had it."""
        if now - suspect.kills[-1].death.lost_at >= _SPELL_SECONDS:
            return False
        # No matter how improbable its kills are: a router gives it to the one whose turn it is, which may be the next
        # one that an operator kills.
        deaths = reversed(self._deaths.get(suspect.call.place, ()))
        recent = takewhile(lambda death: now - death.lost_at < _BURST_SECONDS, deaths)
        return sum(not suspect.has_killed(death) for death in recent) > 1

    def calm(self, now: float) -> Verdict:
        """Lift doubtful quarantines where nobody has died for a while: one more kill brings each back."""
        verdict = Verdict()
        for suspect in list(self.quarantined.values()):
            if suspect.is_doubtful and self._calm_at(suspect) <= now and self.let_through(suspect):
                verdict.doubted.append(suspect)
        return verdict

    def _calm_at(self, suspect: Suspect) -> float:
        """The time at which nobody has died for a while at the topic of ``suspect``, if nobody does."""
        deaths = self._deaths.get(suspect.call.place) or [suspect.kills[-1].death]
        return max(deaths[-1].lost_at, suspect.kills[-1].death.lost_at) + _SPELL_SECONDS

    # --- judgement ---------------------------------------------------------------------------

    def _add(self, now: float, suspect: Suspect, kill: Kill, flight: Flight) -> None:
        if suspect.has_killed(kill.death) and not suspect.has_followed(kill.death.loss, flight):
            return  # the process had the call in two sessions
        if any(
            other.death.loss.is_near(kill.death.loss) and not other.leads_to(kill, flight) for other in suspect.kills
        ):
            return  # all of them may have died of one thing, whatever they had
        if len(suspect.kills) == MAX_KILLS:
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

    def _note_death(self, now: float, death: Death) -> None:
        noted = self._deaths
        for topic in death.consumers:
            noted.setdefault(topic, deque(maxlen=_MAX_DEATHS)).append(death)
            noted.move_to_end(topic)
        while noted:
            # The topic at which nobody has died for longest.
            oldest = next(iter(noted.values()))
            if len(noted) <= _MAX_TOPICS and oldest and oldest[-1].lost_at > now - self._memory:
                break
            noted.popitem(last=False)

    def chance_of(self, now: float, suspect: Suspect) -> float:
        """The probability that consumers that die by chance have it so often, or another one of those beside it."""
        return self._chance_of(now, suspect, suspect.unexplained)

    def _chance_of(
        self, now: float, suspect: Suspect, kills: list[Kill], spell_seconds: float = _SPELL_SECONDS
    ) -> float:
        """The same, of some of its kills."""
        if not kills:
            return 1.0
        place = suspect.call.place
        deaths = self._deaths.get(place, ())
        others = [now - each.lost_at for each in deaths if not suspect.has_killed(each)]
        consumers = max(1, *(kill.death.consumers.get(place, 1) for kill in kills))
        lived = consumers * max(1.0, min(self._memory, now - self._began_at))
        count, in_spell = (sum(age < seconds for age in others) for seconds in (self._memory, spell_seconds))
        in_spell = in_spell if in_spell > 1 else 0
        rate = max(count / lived, (count + 1) / (lived + _FIRST_SECONDS), in_spell / (consumers * spell_seconds))
        # The first kill says nothing: whoever dies has had some call.
        expected = rate * sum(kill.seconds for kill in kills[1:])
        return min(1.0, max(kill.beside for kill in kills) * at_least(len(kills) - 1, expected))

    def _judge(self, now: float, beside: list[Suspect], verdict: Verdict) -> None:
        ranked = sorted(((len(each.unexplained), each) for each in beside), key=lambda each: -each[0])
        if not ranked or not ranked[0][0] or (len(ranked) > 1 and ranked[1][0] == ranked[0][0]):
            return
        worst = ranked[0][1]
        if worst.quarantined_at is not None:
            self._explain(worst)
        elif (
            self._are_enough(worst)
            and not self._may_be_chance(now, worst)
            and len(self.quarantined) < self._max_quarantined
        ):
            self.quarantine(now, worst)
            verdict.quarantined = worst

    def _may_be_chance(self, now: float, suspect: Suspect) -> bool:
        """Return whether chance may have killed so many; of what is irregular that is looked at more closely."""
        spell_seconds = _SPELL_SECONDS if suspect.is_regular else _BURST_SECONDS
        return self._chance_of(now, suspect, suspect.counted, spell_seconds) > self._chance

    def _are_enough(self, suspect: Suspect) -> bool:
        """Return whether it has killed so many as it takes."""
        count, keys = len(suspect.counted), {kill.death.key for kill in suspect.unexplained}
        if count < self._kills or len(keys) > 1 or count >= self._kills_of_one_key:
            return count >= self._kills
        return self.serving_keys.of(suspect.call.address) <= keys

    def quarantine(self, now: float, suspect: Suspect) -> None:
        """Keep ``suspect`` from consumers."""
        fingerprint = suspect.call.fingerprint
        suspect.quarantined_at = suspect.touched_at = now
        suspect.kills, suspect.explained = suspect.unexplained, set()
        suspect.is_doubtful = self._is_doubtful(now, suspect)
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
        """Have its kills speak neither for a rate of deaths by chance nor against other calls."""
        for deaths in self._deaths.values():
            for death in [each for each in deaths if suspect.has_killed(each)]:
                deaths.remove(death)
        processes = _processes_of(suspect)
        for other in self.suspects.values():
            other.explained |= processes & _processes_of(other)

    def _explain_no_more(self, suspect: Suspect) -> None:
        """Have its kills speak against other calls that had a part in them, as it is not quarantined any more."""
        processes = _processes_of(suspect)
        for other in self.suspects.values():
            other.explained -= processes

    # --- the end of suspicion ----------------------------------------------------------------

    def answered(self, fingerprint: str) -> Suspect | None:
        """A consumer has answered such a call and lives: return what was suspect."""
        suspect = self.find(fingerprint)
        self.suspects.pop(fingerprint, None)
        if self.quarantined.pop(fingerprint, None) is not None and suspect is not None:
            self._explain_no_more(suspect)
        return suspect

    def release(self, fingerprint: str) -> Suspect | None:
        """Let such calls through, and begin to judge them anew."""
        return self.answered(fingerprint)

    def forget_old(self, now: float) -> None:
        """Forget calls that have not killed for long."""
        while self.suspects and next(iter(self.suspects.values())).touched_at + self._memory <= now:
            self.suspects.popitem(last=False)
        self.serving_keys.forget_old(now)

    def next_deadline(self) -> float:
        """The time of the next :meth:`forget_old` or :meth:`calm` (monotonic seconds)."""
        calm_at = min((self._calm_at(each) for each in self.quarantined.values() if each.is_doubtful), default=inf)
        return min(calm_at, next(iter(self.suspects.values())).touched_at + self._memory if self.suspects else inf)


def _processes_of(suspect: Suspect) -> set[Hashable]:
    return {kill.death.loss.process for kill in suspect.kills}


def at_least(count: int, expected: float) -> float:
    """The probability of ``count`` events or more where ``expected`` come on the average (Poisson)."""
    # Not 1 - P(fewer): that would lose small ones. Beyond these terms there is next to nothing for what is of interest.
    if expected > 1.0:
        return 1.0
    return exp(-expected) * sum(expected**number / factorial(number) for number in range(count, count + 20))
