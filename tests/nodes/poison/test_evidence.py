"""The judge of calls that kill: on data in which a call kills, and on data in which none does."""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import count
from math import inf
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rpcmq.nodes.poison.evidence import Evidence, Verdict, at_least
from rpcmq.nodes.poison.facts import CallName, Death, Flight, Kill, Loss, Suspect

TOPIC = ("", "compute")
GRACE = 0.5


def call(name: str, topic: str = "compute") -> CallName:
    return CallName(name, "", topic, "", "divide", "json", 10)


class World:
    """Consumers that are given calls and die; the calls go to others as a router gives them."""

    def __init__(self, kills: int = 2, within: float = 10.0, memory: float = 600.0, suspects: int = 1000) -> None:
        self.evidence = Evidence(kills, within, memory, 0.001, 0.0, suspects, 100)
        self.consumers = 10
        self.numbers = count()
        self.verdicts: list[Verdict] = []

    def loss(self, at: float, process: object = None, instance: object = None) -> Loss:
        loss = Loss(at, next(self.numbers) if process is None else process, instance)
        self.evidence.away(loss)
        return loss

    def death(
        self,
        loss: Loss,
        had: dict[str, float],
        is_sudden: bool = True,
        topic: str = "compute",
        are_others: bool = False,
        attempt: int = 0,
    ) -> Verdict:
        """The process of ``loss`` is dead, which had calls since those times; ``are_others``: nobody else.

        ``attempt``: how many had had them before.
        """
        death = Death(loss, f"w{loss.process}", {("", topic): self.consumers}, is_sudden=is_sudden)
        id = str(next(self.numbers)) if are_others else ""
        flights = {name: Flight(call(name, topic), at, id, attempt=attempt) for name, at in had.items()}
        verdict = self.evidence.gone(loss.at + GRACE, death, flights)
        self.verdicts.append(verdict)
        return verdict

    def dies(self, at: float, had: dict[str, float], **options: object) -> Verdict:
        return self.death(self.loss(at), had, **options)  # type: ignore[arg-type]

    @property
    def quarantined(self) -> list[str]:
        return [each.quarantined.call.fingerprint for each in self.verdicts if each.quarantined is not None]


def names(suspects: Iterable[Suspect]) -> list[str]:
    return [each.call.fingerprint for each in suspects]


def test_two_deaths_shortly_after_it_was_given_are_enough() -> None:
    world = World()
    assert world.dies(100, {"a": 99.9}).quarantined is None
    assert world.dies(110, {"a": 109.9}).quarantined is not None
    assert world.quarantined == ["a"] and list(world.evidence.quarantined) == ["a"]


def test_so_many_kills_as_are_set() -> None:
    world = World(kills=4)
    for number in range(3):
        world.dies(100 + 10 * number, {"a": 99 + 10 * number})
    assert not world.quarantined
    world.dies(130, {"a": 129})
    assert world.quarantined == ["a"]


def test_of_calls_that_die_together_only_one_that_stands_out_is_quarantined() -> None:
    world = World()
    world.dies(100, {"a": 99, "b": 99})
    world.dies(110, {"a": 109, "b": 109})
    assert not world.quarantined
    world.dies(120, {"a": 119, "c": 119})
    assert world.quarantined == ["a"]


@pytest.mark.parametrize("spread", [0.0, 0.4, 0.99])
def test_losses_within_a_second_are_one_failure(spread: float) -> None:
    world = World()
    for start in (100, 200, 300):
        first, second = world.loss(start), world.loss(start + spread)
        world.death(first, {"a": start - 1})
        world.death(second, {"b": start - 1})
    assert not world.quarantined and not world.evidence.suspects and world.evidence.excused == 6


def test_a_loss_that_comes_to_light_later_takes_a_kill_back() -> None:
    world = World()
    world.dies(100, {"a": 99})
    world.dies(110, {"a": 109})
    assert world.quarantined == ["a"]
    verdict = world.dies(110.9, {})
    assert names(verdict.lifted) == ["a"] and not world.evidence.quarantined
    assert len(world.evidence.suspects["a"].kills) == 1


def at_host(number: int) -> tuple[str, str]:
    return f"node-{number}", "1"


def test_losses_at_other_hosts_are_no_failure_of_one() -> None:
    """Two calls kill, each one consumer after the other, at the same time."""
    world = World()
    for number in range(2):
        one, other = (
            world.loss(100 + number + at, instance=at_host(2 * number + host)) for host, at in enumerate((0, 0.3))
        )
        world.death(one, {"a": one.at - 0.01})
        world.death(other, {"b": other.at - 0.01})
    assert world.quarantined == ["a", "b"] and world.evidence.excused == 0


def test_of_consumers_that_die_at_the_same_time_at_several_hosts_a_call_that_all_had_has_killed_one() -> None:
    world = World()
    losses = [world.loss(100 + 0.04 * host, instance=at_host(host)) for host in range(8)]
    for loss in losses:
        calls = {"often": loss.at - 0.01, f"once {loss.process}": loss.at - 0.01}
        world.death(loss, calls, are_others=True)
    (often,) = [each for each in world.evidence.suspects.values() if each.call.fingerprint == "often"]
    assert len(often.kills) == 1 and not world.quarantined


def test_a_call_that_several_had_at_the_same_time_is_quarantined_when_it_kills_again() -> None:
    world = World()
    for host in range(3):
        loss = world.loss(100 + 0.1 * host, instance=at_host(host))
        world.death(loss, {"a": loss.at - 0.05}, are_others=True)
    assert not world.quarantined
    world.death(world.loss(101.5, instance=at_host(7)), {"a": 101.4}, are_others=True)
    assert world.quarantined == ["a"]


@pytest.mark.parametrize("seconds", [1.5, 2.0, 3.0])
@pytest.mark.parametrize("consumers", [4, 10])
def test_restarts_by_sigkill_one_after_the_other_end_a_quarantine_that_they_have_led_to(
    seconds: float, consumers: int
) -> None:
    """A call that takes long is given to the next one each time; in the end the others die without it."""
    world = World()
    world.consumers = consumers
    world.dies(1000, {"long": 1000.5 - seconds})
    world.dies(1000 + seconds, {"long": 1000.5})
    assert world.quarantined == ["long"]
    doubted = [world.dies(1000 + seconds * number, {"x": 0.0}).doubted for number in range(2, consumers + 2)]
    assert names(each for verdict in doubted for each in verdict) == ["long"]
    assert not world.evidence.quarantined and len(world.evidence.suspects["long"].kills) == 2


def restarts(world: World, count: int = 3, period: float = 1.0) -> float:
    """Have others die one after the other beside two kills of ``long``, and return when the last one does."""
    for number in range(count):
        world.dies(1000 + period * number, {"x": 0.0})
    world.dies(1000 + period * count, {"long": 1000.5 + period * (count - 1)})
    assert not world.quarantined
    world.dies(1001 + period * count, {"long": 1000.5 + period * count})
    assert world.quarantined == ["long"]
    return 1001 + period * count


def test_a_doubtful_quarantine_ends_when_nobody_dies_any_more_and_one_kill_brings_it_back() -> None:
    world = World()
    world.consumers = 40
    last = restarts(world)
    assert world.evidence.quarantined["long"].is_doubtful and world.evidence.next_deadline() == last + 60
    world.dies(last + 20, {"x": 0.0})
    assert world.evidence.next_deadline() == last + 80
    assert not world.evidence.calm(last + 79).doubted
    assert names(world.evidence.calm(last + 80).doubted) == ["long"] and not world.evidence.quarantined
    assert not world.evidence.suspects["long"].is_doubtful
    world.dies(last + 120, {"long": last + 119.5})
    assert list(world.evidence.quarantined) == ["long"] and not world.evidence.quarantined["long"].is_doubtful
    assert not world.evidence.calm(last + 10_000).doubted


def test_a_quarantine_that_nobody_else_died_beside_is_not_doubtful() -> None:
    world = World()
    for number in range(2):
        world.dies(1000 + 3 * number, {"a": 998 + 3 * number})
    world.dies(1010, {"x": 0.0})
    assert not world.evidence.quarantined["a"].is_doubtful and not world.evidence.calm(10_000).doubted
    # Many that die long after it do not speak for it either.
    for number in range(20):
        world.dies(1100 + 2 * number, {}, topic="volume")
    assert not world.evidence.quarantined["a"].is_doubtful


def test_a_quarantine_that_is_restored_is_not_doubtful_because_too_little_is_known() -> None:
    world = World()
    suspect = Suspect(call("a"))
    for at in (1000.0, 1010.0):
        suspect.kills.append(Kill(Death(Loss(at, at), "w", {TOPIC: 10}), 8.0, 1, "", ""))
    assert world.evidence.adopt(suspect, 1011.0)
    assert not suspect.is_doubtful and not world.evidence.calm(2000.0).doubted


def test_others_that_die_do_not_end_the_quarantine_of_a_call_that_kills_at_once() -> None:
    world = World()
    for number in range(2):
        world.dies(1000 + number, {"a": 999.99 + number})
    for number in range(20):
        assert not world.dies(1002.5 + 2 * number, {}).doubted
    assert list(world.evidence.quarantined) == ["a"]


def test_a_call_that_follows_within_a_second_has_killed_twice() -> None:
    world = World()
    world.dies(100, {"a": 99.9})
    world.dies(100.6, {"a": 100.5})
    assert world.quarantined == ["a"]


def test_a_death_that_a_quarantined_call_explains_is_no_kill_of_those_beside_it() -> None:
    world = World()
    world.dies(100, {"a": 99.9, "b": 99.9, "c": 99.9})
    world.dies(100.6, {"a": 100.5})
    assert world.quarantined == ["a"]
    world.dies(130, {"b": 129.9, "x": 129.9})
    assert world.quarantined == ["a"]
    # With two that nothing else explains it stands out.
    world.dies(140, {"b": 139.9})
    assert world.quarantined == ["a", "b"]
    assert [kill.death.lost_at for kill in world.evidence.quarantined["b"].kills] == [130, 140]


@pytest.mark.parametrize("how", ["answered", "release", "lifted"])
def test_a_call_that_is_let_through_explains_nothing_any_more(how: str) -> None:
    world = World()
    world.dies(100, {"a": 99.9, "b": 99.9})
    world.dies(110, {"a": 109.9})
    assert world.quarantined == ["a"]
    if how == "lifted":
        world.evidence.back(next(iter(world.evidence.quarantined["a"].kills[1:])).death.loss.process)
    else:
        getattr(world.evidence, how)("a")
    world.dies(130, {"b": 129.9})
    assert world.quarantined == ["a", "b"]


@pytest.mark.parametrize(
    ("times", "are_enough"),
    [((0.0, 0.9), True), ((0.01, 1.1), False), ((1.0, 1.9), True), ((1.9, 1.0), True), ((1.0, 2.1), False)],
)
def test_a_call_that_kills_at_times_that_are_not_alike_takes_one_more(
    times: tuple[float, float], are_enough: bool
) -> None:
    world = World()
    for number, seconds in enumerate(times):
        world.dies(100 + 20 * number, {"a": 100 + 20 * number - seconds}, attempt=number)
    assert bool(world.quarantined) is are_enough
    world.dies(140, {"a": 139.0}, attempt=2)
    assert world.quarantined == ["a"]


def test_a_call_that_has_not_killed_each_that_had_it_takes_one_more() -> None:
    world = World()
    for number in range(3):
        assert not world.quarantined
        world.dies(100 + 20 * number, {"a": 99 + 20 * number}, attempt=number + 1)
    assert world.quarantined == ["a"] and world.evidence.quarantined["a"].kills[-1].spared == 1


def test_kills_that_are_not_alike_are_enough_when_more_are_not_remembered() -> None:
    world = World(kills=10, memory=6000.0)
    for number in range(10):
        assert not world.quarantined
        world.dies(100 + 100 * number, {"a": 99.99 + 100 * number - 3 * (number % 2)})
    assert world.quarantined == ["a"]


def test_the_more_consumers_die_without_it_the_more_kills_it_takes() -> None:
    world = World()
    for number in range(40):
        world.dies(100 + 5 * number, {})
    for number in range(4):
        world.dies(301 + 5 * number, {"a": 298 + 5 * number})
        assert bool(world.quarantined) is (number == 3), number


def test_deaths_that_are_explained_speak_for_nothing_else() -> None:
    world = World()
    for number in range(100):
        world.dies(100 + 3 * number, {"a": 99 + 3 * number})
    assert world.quarantined == ["a"]
    for number in range(2):
        world.dies(401 + 3 * number, {"b": 399 + 3 * number})
    assert world.quarantined == ["a", "b"]


def test_a_call_that_takes_its_time_or_is_one_of_many_takes_more_kills() -> None:
    world = World(within=300.0)
    for number in range(3):
        world.dies(500 + 300 * number, {"slow": 290 + 300 * number})
        assert bool(world.quarantined) is (number == 2)
    world = World()
    for number in range(3):
        beside = {f"{number}.{each}": 590.0 + 300 * number for each in range(500)}
        world.dies(600 + 300 * number, {"one of many": 591.0 + 300 * number, **beside})
        assert bool(world.quarantined) is (number == 2)


@pytest.mark.parametrize(("count", "expected"), [(1, 0.5), (2, 0.001), (3, 0.2), (5, 1.0)])
def test_the_probability_of_so_many_is_that_of_poisson(count: int, expected: float) -> None:
    exact = 1 - sum(math.exp(-expected) * expected**each / math.factorial(each) for each in range(count))
    assert at_least(count, expected) == pytest.approx(exact, rel=1e-9)
    assert at_least(count, 2.0) == 1.0 and at_least(count, 0.0) == 0.0


def test_deaths_at_another_topic_say_nothing() -> None:
    world = World()
    world.dies(100, {"a": 99})
    for number in range(5):
        world.dies(110 + number * 5, {}, topic="volume")
    world.dies(150, {"a": 149})
    assert world.quarantined == ["a"]


def test_who_comes_back_has_not_died() -> None:
    world = World()
    first = world.loss(100, "w")
    world.death(first, {"a": 99})
    world.dies(110, {"a": 109})
    assert world.quarantined == ["a"]
    verdict = world.evidence.back("w")
    assert names(verdict.lifted) == ["a"] and not world.evidence.quarantined
    world.dies(120, {"a": 119})
    assert list(world.evidence.quarantined) == ["a"]


def test_an_answer_or_a_release_ends_suspicion() -> None:
    world = World()
    world.dies(100, {"a": 99})
    assert world.evidence.answered("a") is not None and world.evidence.answered("a") is None
    world.dies(110, {"a": 109})
    assert not world.quarantined
    world.dies(120, {"a": 119})
    assert world.quarantined == ["a"]
    assert world.evidence.release("a") is not None and world.evidence.find("a") is None


def test_memory_is_bounded_in_time_and_number() -> None:
    world = World(memory=60.0, suspects=10)
    world.dies(100, {"a": 99})
    assert world.evidence.next_deadline() == 100 + GRACE + 60
    world.dies(170, {"a": 169})
    assert not world.quarantined
    for number in range(50):
        world.dies(200 + 2 * number, {f"c{number}": 199 + 2 * number})
    assert len(world.evidence.suspects) == 10
    world.evidence.forget_old(inf)
    assert not world.evidence.suspects and world.evidence.next_deadline() == inf


def test_deaths_that_say_nothing_any_more_are_forgotten() -> None:
    world = World(memory=60.0)
    for number in range(50):
        world.dies(100 + number, {}, topic=f"topic-{number}")
    assert len(world.evidence._deaths) == 50
    world.dies(300, {}, topic="compute")
    assert list(world.evidence._deaths) == [("", "compute")]


def test_many_losses_at_once_are_looked_at_in_bounded_time() -> None:
    world = World()
    losses = [world.loss(100.0) for _ in range(20_000)]
    for loss in losses:
        world.death(loss, {"a": 99})
    assert not world.evidence.suspects


# --- data in which nothing happened --------------------------------------------------------------

CALLS = st.dictionaries(st.sampled_from("abcdef"), st.floats(0.001, 5), max_size=4)


@given(st.lists(st.tuples(st.floats(2, 60), st.integers(2, 6), st.lists(CALLS, min_size=6, max_size=6))))
def test_whole_hosts_that_fail_quarantine_nothing(failures: list[tuple[float, int, list[dict[str, float]]]]) -> None:
    """All processes of a host are lost within its second, again and again, whatever they had."""
    world, now = World(), 100.0
    for gap, size, had in failures:
        now += gap
        losses = [world.loss(now + 0.4 * number / size) for number in range(size)]
        for loss, calls in zip(losses, had, strict=False):
            world.death(loss, {name: loss.at - before for name, before in calls.items()})
    assert not world.quarantined


@given(st.lists(st.tuples(st.floats(10.6, 120), st.sets(st.sampled_from("abcdef"))), max_size=30))
def test_a_rolling_restart_without_goodbye_quarantines_nothing(deaths: list[tuple[float, set[str]]]) -> None:
    """One consumer at a time is killed, more than ``within`` apart; what it had goes to those that are killed next."""
    world, now = World(), 100.0
    given_at = dict.fromkeys("abcdef", 100.0)
    for gap, had in deaths:
        now += gap
        world.dies(now, {name: given_at[name] for name in had})
        given_at |= dict.fromkeys(had, now + GRACE)
    assert not world.quarantined


@given(st.lists(st.tuples(st.floats(2, 60), CALLS), max_size=30))
def test_who_was_silent_or_leaving_quarantines_nothing(deaths: list[tuple[float, dict[str, float]]]) -> None:
    world, now = World(), 100.0
    for gap, had in deaths:
        now += gap
        world.dies(now, {name: now - before for name, before in had.items()}, is_sudden=False)
    assert not world.quarantined and not world.evidence.suspects


@given(st.lists(st.tuples(st.floats(2, 60), CALLS), max_size=30))
def test_networks_that_heal_quarantine_nothing_that_lasts(losses: list[tuple[float, dict[str, float]]]) -> None:
    """Whoever is lost comes back."""
    world, now = World(), 100.0
    lost: list[object] = []
    for gap, had in losses:
        now += gap
        loss = world.loss(now)
        lost.append(loss.process)
        world.death(loss, {name: now - before for name, before in had.items()})
    for process in lost:
        world.evidence.back(process)
    assert not world.evidence.quarantined and not world.evidence.suspects


def random_deaths(consumers: int, calls: int, seconds: float, between: float, deaths: int, seed: int = 1) -> int:
    """The number of quarantines in ``deaths`` by chance.

    Each of ``consumers`` has so many ``calls``, which take up to so many ``seconds``; a consumer, any of them, dies
    every ``between`` seconds on the average. Its calls go to others.
    """
    random, world, now = Random(seed), World(), 100.0
    world.consumers = consumers
    #: Of each consumer: call -> since when it has it, and when it is answered.
    has: list[dict[str, tuple[float, float]]] = [{} for _ in range(consumers)]
    numbers = count()
    for _ in range(deaths):
        now += random.expovariate(1 / between)
        for each in has:
            for name in [name for name, (_, end) in each.items() if end <= now]:
                del each[name]
                world.evidence.answered(name)
        victim = random.randrange(consumers)
        while len(has[victim]) < calls:
            takes = random.uniform(0, seconds)
            since = now - random.uniform(0, takes)
            has[victim][str(next(numbers))] = since, since + takes
        dead, has[victim] = has[victim], {}
        world.dies(now, {name: since for name, (since, _) in dead.items()})
        for name in dead:
            other = random.choice([each for each in range(consumers) if each != victim])
            has[other][name] = now + GRACE, now + GRACE + random.uniform(0, seconds)
    return len(world.quarantined)


@pytest.mark.parametrize(
    ("consumers", "calls", "seconds", "between"),
    [(3, 5, 0.1, 5.0), (10, 20, 1.0, 30.0), (10, 20, 20.0, 60.0), (3, 1, 20.0, 60.0), (50, 100, 5.0, 10.0)],
)
def test_deaths_by_chance_quarantine_next_to_nothing(
    consumers: int, calls: int, seconds: float, between: float
) -> None:
    assert random_deaths(consumers, calls, seconds, between, deaths=300) <= 1


# --- and data in which one call kills ------------------------------------------------------------


@given(st.integers(3, 20), st.integers(0, 10), st.floats(0.0, 8.0), st.integers(0, 1000))
def test_a_call_that_kills_is_found_beside_others(consumers: int, others: int, takes: float, seed: int) -> None:
    """It kills each consumer that is given it; those beside it are spread over the rest."""
    random, world, now = Random(seed), World(), 100.0
    beside = {f"b{number}": now - random.uniform(0, 1) for number in range(others)}
    world.dies(now + takes, {**beside, "poison": now})
    now += takes + GRACE
    second = {name: now for name in beside if random.randrange(consumers) == 0}
    world.dies(now + takes, {**second, "poison": now})
    for _ in range(12):
        if world.quarantined:
            break
        now += takes + GRACE
        second = {name: now for name in second if random.randrange(consumers) == 0}
        world.dies(now + takes, {**second, "poison": now})
    assert world.quarantined == ["poison"]
