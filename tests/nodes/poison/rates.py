"""How often the judge of calls that kill is wrong: data in which an operator kills, and data in which a call does.

All runs are in virtual time, of the judge alone: the same seed gives the same run. To see the figures of
docs/operations/poison.md, of 1,000 seeds each::

    python -m tests.nodes.poison.rates 1000
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from itertools import count
from random import Random
from typing import Any

from rpcmq.nodes.poison.evidence import Evidence
from rpcmq.nodes.poison.facts import CallName, Death, Flight, Loss

__all__ = ["KILLERS", "NOTHING_KILLS", "Mix", "Run", "false_alarms", "kills_until_quarantine"]

TOPIC = ("", "compute")
#: Seconds after which a consumer that was lost is dead, and its calls go to others; the router has run for so long.
_GRACE, _BEGAN = 0.5, 700.0
#: Seconds that a run takes, and after which somebody makes a call again that was stopped.
_RUN_SECONDS, _AGAIN_SECONDS = 120.0, 2.0
#: Consumers that a call kills at most.
_MOST_KILLS = 12


@dataclass(frozen=True)
class Mix:
    """Consumers, and what they die of.

    Attributes:
        consumers: that there are; one that dies is there again at once, as a new process at another host.
        restarts: how many of them are killed by SIGKILL, one after the other; each in turn.
        period: seconds between two of these, within a tenth.
        begins: seconds after which they begin.
        in_order: whether they are killed in the order in which a router gives them calls: to the least busy one, and
            among equals to the one that it has picked longest ago. Else both orders are random.
        calls: innocent ones that consumers have at the beginning.
        takes: seconds that these take, at most; half of it at least.
        chance: seconds between deaths by chance on the average, before and during the run; 0: there are none.
        killers: seconds after which each call that kills is made, kills, and may take longer (a factor).
    """

    consumers: int = 10
    restarts: int = 0
    period: float = 1.0
    begins: float = 0.0
    in_order: bool = False
    calls: int = 0
    takes: float = 60.0
    chance: float = 0.0
    killers: tuple[tuple[float, float, float], ...] = ()


NOTHING_KILLS = {
    f"{n} consumers, {calls} calls of up to {takes:g} s, one killed each {period:g} s": Mix(
        n, restarts=n, period=period, calls=calls, takes=takes
    )
    for n, calls, takes, period in [
        (3, 3, 60, 1.0), (5, 5, 20, 1.0), (5, 5, 60, 1.0), (10, 10, 20, 1.0), (10, 10, 60, 1.0), (10, 10, 60, 1.5),
        (10, 10, 60, 2.0), (10, 10, 60, 4.0), (20, 20, 60, 1.0), (20, 60, 60, 1.0),
    ]
} | {
    f"{n} consumers, {calls} calls of up to {takes:g} s, one killed each {period:g} s, in their order": Mix(
        n, restarts=n, period=period, in_order=True, calls=calls, takes=takes
    )
    for n, calls, takes, period in [(5, 5, 20, 1.0), (10, 10, 20, 1.0), (10, 10, 60, 2.0), (20, 20, 60, 1.0)]
} | {"10 consumers, 20 calls of up to 60 s, one dies each 30 s": Mix(calls=20, chance=30.0)}  # fmt: skip

_SWEEP = Mix(restarts=10)
KILLERS = {
    "alone, after 0.01 to 0.02 s": Mix(killers=((0, 0.01, 2),)),
    "alone, after 0.3 to 0.6 s": Mix(killers=((0, 0.3, 2),)),
    "alone, after 1 to 5 s": Mix(killers=((0, 1, 5),)),
    "alone, after 3 to 6 s": Mix(killers=((0, 3, 2),)),
    "others die each 30 s, after 0.3 to 0.5 s": Mix(chance=30.0, killers=((0, 0.3, 1.5),)),
    "others die each 30 s, after 3 to 5 s": Mix(chance=30.0, killers=((0, 3, 1.5),)),
    "others die each 5 s, after 0.01 s": Mix(chance=5.0, killers=((0, 0.01, 1.5),)),
    "others die each 5 s, after 1 to 2 s": Mix(chance=5.0, killers=((0, 1, 1.5),)),
    "three at once, after 0.3 to 0.5 s": Mix(killers=((0, 0.3, 1.5), (0.2, 0.3, 1.5), (0.4, 0.3, 1.5))),
    "three at once, after 2 to 3 s": Mix(killers=((0, 2, 1.5), (0.5, 2, 1.5), (1, 2, 1.5))),
    "in restarts by SIGKILL each 1 s, after 0.01 s": replace(_SWEEP, killers=((3, 0.01, 2),)),
    "in restarts by SIGKILL each 1 s, after 0.3 to 0.5 s": replace(_SWEEP, killers=((3, 0.3, 1.5),)),
    "in restarts by SIGKILL each 1 s, after 2 to 3 s": replace(_SWEEP, killers=((3, 2, 1.5),)),
    "5 s after such restarts, after 0.3 to 0.5 s": replace(_SWEEP, killers=((15, 0.3, 1.5),)),
    "5 s before such restarts, after 1 to 2 s": replace(_SWEEP, begins=5.0, killers=((0, 1, 1.5),)),
}


class Run:
    """One run of a mix.

    Attributes:
        stopped: the innocent calls that were not given to a consumer any more.
        kills: of each call that kills, how many consumers it has killed.
    """

    def __init__(self, mix: Mix, seed: int) -> None:
        self._mix = mix
        self._random = Random(f"{mix} {seed}")
        self.evidence = Evidence(2, 10.0, 600.0, 0.001, 0.0, 1000, 100)
        self._events: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._numbers = count()
        self._now = _BEGAN
        #: Of each consumer its process, and since when it has each of its calls.
        self._processes = [next(self._numbers) for _ in range(mix.consumers)]
        self._has: list[dict[str, float]] = [{} for _ in range(mix.consumers)]
        #: The consumers, the one that was picked longest ago first.
        self._turns = list(range(mix.consumers))
        #: Seconds that each innocent call takes, and how many consumers have had a call.
        self._takes: dict[str, float] = {}
        self._attempts: Counter[str] = Counter()
        self.stopped: set[str] = set()
        self.kills: Counter[str] = Counter()
        self._plan()

    def run(self) -> Run:
        """Do it."""
        for second in range(int(_RUN_SECONDS)):
            self._at(_BEGAN + second, lambda: None)
        while self._events and self._events[0][0] <= _BEGAN + _RUN_SECONDS:
            self._now, _, do, args = heappop(self._events)
            self.evidence.calm(self._now)
            do(*args)
        return self

    @property
    def quarantined(self) -> set[str]:
        """The calls that are quarantined."""
        return set(self.evidence.quarantined)

    def _at(self, time: float, do: Callable[..., None], *args: Any) -> None:
        heappush(self._events, (time, next(self._numbers), do, args))

    def _plan(self) -> None:
        mix, random = self._mix, self._random
        for number in range(mix.calls):
            name, takes = f"innocent-{number}", random.uniform(0.5, 1.0) * mix.takes
            self._takes[name] = takes
            self._give(name, random.randrange(mix.consumers), _BEGAN - random.uniform(0.0, takes))
        for number, (after, _, _) in enumerate(mix.killers):
            self._at(_BEGAN + after, self._call, f"killer-{number}")
        at = _BEGAN + mix.begins
        for consumer in range(mix.restarts) if mix.in_order else random.sample(range(mix.consumers), mix.restarts):
            at += mix.period * random.uniform(0.9, 1.1)
            self._at(at, self._die, consumer)
        at = 100.0
        while mix.chance and at < _BEGAN + _RUN_SECONDS:
            at += random.expovariate(1 / mix.chance)
            self._at(at, self._die, random.randrange(mix.consumers))

    def _give(self, name: str, consumer: int, at: float) -> None:
        self._has[consumer][name] = at
        process = self._processes[consumer]
        if name in self._takes:
            self._at(at + self._takes[name], self._answer, name, consumer, process)
        else:
            _, after, factor = self._mix.killers[int(name.rpartition("-")[2])]
            self._at(at + after * self._random.uniform(1.0, factor), self._kill, name, consumer, process)

    def _pick(self) -> int:
        """The consumer that is given the next call."""
        if not self._mix.in_order:
            return self._random.randrange(self._mix.consumers)
        best = min(self._turns, key=lambda consumer: len(self._has[consumer]))
        self._turns.remove(best)
        self._turns.append(best)
        return best

    def _call(self, name: str) -> None:
        if name not in self.evidence.quarantined:
            if self.kills[name] < _MOST_KILLS:
                self._give(name, self._pick(), self._now)
        elif name in self._takes:
            self.stopped.add(name)
        else:
            self._at(self._now + _AGAIN_SECONDS, self._call, name)

    def _answer(self, name: str, consumer: int, process: int) -> None:
        if self._processes[consumer] == process and self._has[consumer].pop(name, None) is not None:
            self.evidence.answered(name)

    def _kill(self, name: str, consumer: int, process: int) -> None:
        if self._processes[consumer] == process:
            self.kills[name] += 1
            self._die(consumer)

    def _die(self, consumer: int) -> None:
        process, self._processes[consumer] = self._processes[consumer], next(self._numbers)
        had, self._has[consumer] = self._has[consumer], {}
        loss = Loss(self._now, process, (f"host-{process}", "1"))
        self.evidence.away(loss)
        self._at(self._now + _GRACE, self._gone, loss, had)

    def _gone(self, loss: Loss, had: Mapping[str, float]) -> None:
        names = {name: CallName(name, *TOPIC, "", "divide", "json", 10) for name in had}
        flights = {
            name: Flight(names[name], given_at, name, "", self._attempts[name]) for name, given_at in had.items()
        }
        self.evidence.gone(self._now, Death(loss, str(loss.process), {TOPIC: self._mix.consumers}), flights)
        for name in had:
            self._attempts[name] += 1
            self._at(self._now, self._call, name)


def false_alarms(mix: Mix, runs: int) -> tuple[int, int, int]:
    """The number of runs in which an innocent call was stopped, of such calls, and of those still quarantined."""
    results = [Run(mix, seed).run() for seed in range(runs)]
    stopped = [len(each.stopped) for each in results]
    return sum(map(bool, stopped)), sum(stopped), sum(len(each.quarantined) for each in results)


def kills_until_quarantine(mix: Mix, runs: int) -> list[int]:
    """The consumers that each call of ``mix`` that kills has killed before it was kept from them, the fewest first."""
    results = [Run(mix, seed).run() for seed in range(runs)]
    return sorted(each.kills[f"killer-{number}"] for each in results for number in range(len(mix.killers)))


def _print(runs: int) -> None:
    print(f"Nothing kills but an operator, or chance: of {runs} runs")
    for name, mix in NOTHING_KILLS.items():
        bad, stopped, left = false_alarms(mix, runs)
        print(f"  {name:80} {bad:4} stop an innocent call, {stopped:4} calls, {left:4} quarantined at the end")
    print("A call kills: consumers that it has killed on the average, in 95 of 100 runs, and at most")
    for name, mix in KILLERS.items():
        kills = kills_until_quarantine(mix, runs)
        print(f"  {name:80} {sum(kills) / len(kills):5.2f} {kills[len(kills) * 95 // 100]:3} {kills[-1]:3}")


if __name__ == "__main__":
    _print(int(sys.argv[1]))
