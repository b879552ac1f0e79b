"""Two ways through the model of adoption: random walks with a seed, and every state that can be reached.

python -m tests.mesh.explore --seed 17                    # one walk, step by step
python -m tests.mesh.explore --walks 5000 --without keep  # count what breaks
python -m tests.mesh.explore --states                     # every order of one call and one kill
python -m tests.mesh.explore --states --fault stop --homes c0=A,s0=B,s1=C
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, fields
from random import Random

from tests.mesh.protocol import Rules
from tests.mesh.world import (
    Action,
    Setting,
    World,
    broken_at_rest,
    broken_safety,
    enabled,
    faults,
    healed,
    step,
    world_of,
)

#: Steps before everything heals, and steps after which a healed world that is still busy counts as one that never ends.
STEPS, HEALING = 150, 2_000
FAULT_SHARE = 0.06
#: Some of the ways in a walk are slow, so that messages are overtaken by whole conversations.
SPEEDS = (1.0, 1.0, 0.3, 0.02)


class Walk:
    """One random walk: ``actions`` and, if an invariant broke, ``broken``."""

    def __init__(self, setting: Setting, seed: int) -> None:
        self.setting = setting
        self.random = Random(seed)
        self.speeds: dict[tuple[str, str], float] = {}
        self.actions: list[Action] = []
        self.world = random_start(self.random)
        self.broken = self._run()

    def _run(self) -> str:
        for _ in range(STEPS):
            possible = faults(self.setting, self.world)
            if not possible or self.random.random() > FAULT_SHARE:
                possible = enabled(self.setting, self.world) or possible
            if not possible:
                break
            self._take(possible)
            if broken := broken_safety(self.world):
                return broken
        self.world = healed(self.world)
        for _ in range(HEALING):
            possible = enabled(self.setting, self.world)
            if not possible:
                break
            self._take(possible)
            if broken := broken_safety(self.world):
                return broken
        return broken_at_rest(self.world) if len(self.world.dead) < 2 else ""

    def _take(self, possible: list[Action]) -> None:
        action = self.random.choices(possible, [self._speed_of(action) for action in possible])[0]
        self.actions.append(action)
        self.world = step(self.setting, self.world, action)

    def _speed_of(self, action: Action) -> float:
        way = (action.who, action.to if action.kind == "read" else action.kind)
        if way not in self.speeds:
            self.speeds[way] = self.random.choice(SPEEDS)
        return self.speeds[way]


@dataclass(frozen=True)
class Search:
    """Every state that can be reached from ``start`` was seen, unless ``is_complete`` is false."""

    states: int
    is_complete: bool
    broken: str = ""
    #: The shortest way to the state that breaks an invariant.
    actions: tuple[Action, ...] = ()


def random_start(random: Random) -> World:
    """Return a world of two calls, two consumers and a third that joins, and three faults."""
    homes = {name: random.choice("ABC") for name in ("c0", "c1", "s0", "s1")}
    return world_of({**homes, "s2": ""}, faults=3, kills=2, moves=2, attempts=1)


def walks(setting: Setting, count: int, first_seed: int = 0) -> Counter[str]:
    """Return how many of ``count`` walks broke which invariant."""
    return Counter(walk.broken for walk in _walks(setting, count, first_seed) if walk.broken)


def first_broken(setting: Setting, count: int, broken: str, first_seed: int = 0) -> int | None:
    """Return the first of ``count`` seeds whose walk breaks the invariant ``broken``."""
    numbered = enumerate(_walks(setting, count, first_seed), first_seed)
    return next((seed for seed, walk in numbered if walk.broken == broken), None)


def search(setting: Setting, start: World, limit: int) -> Search:
    """See every state that can be reached from ``start``, breadth first; stop at a broken invariant, or at ``limit``.

    Where nothing more can happen but the healing of what was stopped or cut, each call must have ended.
    """
    came_from: dict[World, tuple[World, Action] | None] = {start: None}
    to_do = deque([start])
    while to_do:
        world = to_do.popleft()
        broken = broken_safety(world)
        progress = enabled(setting, world)
        others = faults(setting, world)
        if not broken and not progress and not any(each.kind in ("resume", "mend") for each in others):
            broken = broken_at_rest(world)
        if broken or len(came_from) > limit:
            return Search(len(came_from), False, broken, _way_to(world, came_from))
        for action in (*progress, *others):
            reached = step(setting, world, action)
            if reached not in came_from:
                came_from[reached] = (world, action)
                to_do.append(reached)
    return Search(len(came_from), True)


def _walks(setting: Setting, count: int, first_seed: int) -> Iterator[Walk]:
    return (Walk(setting, seed) for seed in range(first_seed, first_seed + count))


def _way_to(world: World, came_from: dict[World, tuple[World, Action] | None]) -> tuple[Action, ...]:
    actions: list[Action] = []
    while (before := came_from[world]) is not None:
        world, action = before
        actions.append(action)
    return tuple(reversed(actions))


def _main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0, help="the first walk")
    parser.add_argument("--walks", type=int, default=1, help="how many")
    parser.add_argument("--states", action="store_true", help="search every state instead")
    parser.add_argument("--homes", default="c0=A,s0=A,s1=B", help="of the search; a consumer without one joins later")
    parser.add_argument("--limit", type=int, default=1_000_000, help="states after which the search gives up")
    parser.add_argument("--last", action="store_true", help="timers fire only when nothing else can happen")
    parser.add_argument("--fault", action="append", help="only faults of this kind: kill, stop, cut, reset")
    parser.add_argument("--without", action="append", default=[], help="a rule that is switched off",
                        choices=[each.name for each in fields(Rules)])  # fmt: skip
    options = parser.parse_args()
    kinds = frozenset(options.fault or Setting.kinds)
    setting = Setting(Rules().without(*options.without), kinds, not options.last)
    if options.states:
        setting = Setting(setting.rules, frozenset(options.fault or ["kill"]), is_timer_any_time=False)
        homes = dict(pair.split("=") for pair in options.homes.split(","))
        found = search(setting, world_of(homes, faults=1, kills=1), options.limit)
        _say(*found.actions, f"{found.states} states, complete: {found.is_complete} {found.broken}")
    elif options.walks == 1:
        walk = Walk(setting, options.seed)
        _say(*walk.actions, walk.broken or "held")
    else:
        _say(*walks(setting, options.walks, options.seed).items(), f"{options.walks} walks")


def _say(*lines: object) -> None:
    sys.stdout.write("".join(f"{line}\n" for line in lines))


if __name__ == "__main__":
    _main()
