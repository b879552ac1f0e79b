"""The plan of a simulated run with several routers, drawn from one seed before it begins.

Some plans have no fault at all: there messages keep their order. Most have one at a time, each over before the next:
there no call may fail, and no cast be lost. In the others faults overlap, and processes die: there nothing may be
started twice, and each call ends.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from random import Random

from rpcmq.core.router.settings import Settings
from tests.faults.mesh_extras import PATTERNS, events_of, graceful_fault, operations_of, seconds_of
from tests.faults.plan import Fault, Operation, Plan, Step, with_hedges

__all__ = ["HEDGES", "MESH_FAULTS", "RINGS", "TWO_DEATHS", "MeshPlan", "mesh_plan_of"]

#: Those of routers, of the links between two, of a connection of a process, and of processes.
MESH_FAULTS = (
    "kill router", "kill router and deliver", "stop router", "isolate router",
    "cut routers", "cut routers one way", "reset routers", "delay routers",
    "reset", "drop", "cut", "stop", "move",
)  # fmt: skip
#: The guarantees name losses for these.
_DEADLY = ("kill",)
_NAMES = "abcdefg"
#: From this seed on the routers are a ring.
RINGS = 1_000_000
#: From this seed on a router and a service die within half a second, while messages end.
TWO_DEATHS = 2_000_000
#: From this seed on several consumers may have some calls.
HEDGES = 3_000_000
#: Seconds from the end of one fault to the next one, where they do not overlap.
_CALM = 25.0


@dataclass(frozen=True)
class MeshPlan(Plan):
    """A whole run.

    Attributes:
        routers: the names of the routers.
        homes: the router at which each process begins, by its place.
        groups: (place, topic, group): registrations beside those that each service has.
        mail_at: seconds until the first service serves the topic "mail", which the first caller declares; None: nobody
            does either.
        patterns: of each process that publishes and subscribes.
        is_gentle: whether there is one fault at a time, and all processes live.
        is_ring: whether each router connects to the one before only, and others carry the rest.
    """

    routers: str = "abc"
    homes: tuple[tuple[str, str], ...] = ()
    is_gentle: bool = True
    is_ring: bool = False
    groups: tuple[tuple[str, str, str], ...] = ()
    mail_at: float | None = None
    patterns: tuple[tuple[str, ...], ...] = ()

    @property
    def has_faults(self) -> bool:
        """Whether anything goes wrong."""
        return any(isinstance(step, Fault) for _, step in self.steps)

    @property
    def patience(self) -> float:
        """Seconds after which, at the earliest, what a router that is cut off from all others may have is given up.

        Others ask for it when the link is lost: where no way over others is left, that is when this is noticed.
        """
        before = self.settings.mesh_silence_seconds if self.is_ring else self.settings.mesh_lost_seconds
        return before + self.settings.mesh_recovery_seconds


def mesh_plan_of(
    seed: int, faults: tuple[str, ...] = MESH_FAULTS, mode: str = "", operations: int = 12, is_plain: bool = False
) -> MeshPlan:
    """The plan that follows from ``seed``.

    Args:
        faults: the kinds that may occur; processes are killed only where faults overlap.
        mode: quiet, gentle (one fault at a time) or rough; empty: any.
        operations: about how many messages are sent around each fault.
        is_plain: whether there are calls and casts only, and nothing happens in good order.
    """
    rng, extra = Random(seed), Random(f"more of {seed}")
    routers = _NAMES[: rng.choices((3, 4, 5, 7), (12, 3, 2, 1))[0]]
    callers, services = rng.randint(1, 3), rng.randint(1, 3)
    settings = _settings(rng)
    places = [f"c{n}" for n in range(callers)] + [f"s{n}" for n in range(services)]
    homes = [(place, rng.choice(routers)) for place in places]
    drawn = rng.choices(("quiet", "gentle", "rough"), (1, 6, 3))[0]
    has_deaths = TWO_DEATHS <= seed < HEDGES
    mode = mode or ("rough" if has_deaths else drawn)
    if mode == "rough" and faults is MESH_FAULTS:
        faults += _DEADLY
    publishers = 0 if is_plain else extra.randint(1, 3)
    steps: list[Step] = []
    at, number = 2.0, 0
    for _ in range(rng.randint(1, 2) if mode == "gentle" else 1):
        injected = list(_faults(rng, mode, faults, routers, places))
        if not is_plain:
            injected = _with_graceful(extra, mode, injected, routers, services, publishers)
        if has_deaths:
            injected = list(_two_deaths(extra, routers, callers, services))
            steps += _short_operations(extra, at, callers, services)
        span = max((begin + seconds_of(fault) for begin, fault in injected), default=0.0)
        steps += [(at + begin, fault) for begin, fault in injected]
        is_burst = rng.random() < 0.4
        for _ in range(rng.randint(operations // 2, operations * 3 // 2)):
            shift = rng.uniform(-1.0, 0.0) if is_burst else rng.uniform(-1.0, span + 3.0)
            steps.append((at + shift, _operation(rng, number, callers, services)))
            number += 1
        if not is_plain:
            steps += operations_of(extra, at, span, callers, services, 100 * number)
            steps += events_of(extra, at - 1.0, at + span + 3.0, publishers, 100 * number)
            steps += events_of(extra, at + span + 20.5, at + span + _CALM - 2.5, publishers, 100 * number + 50)
        at += span + _CALM
    steps.sort(key=lambda step: step[0])
    plan = MeshPlan(
        seed, settings, callers, services, rng.choice((1, 2, 8)), tuple(steps), routers, tuple(homes), mode != "rough"
    )
    if seed % 4 == 2 and not is_plain:
        plan = replace(plan, settings=replace(plan.settings, mesh_rebalance_seconds=2.0))
    if seed >= HEDGES:
        plan = with_hedges(plan)
    if RINGS <= seed < TWO_DEATHS and not is_plain:
        rings = replace(plan.settings, mesh_dial="peers")
        plan = replace(plan, routers=_NAMES[: max(len(routers), 4)], is_ring=True, settings=rings)
    return plan if is_plain else _with_more(extra, plan, publishers)


def _settings(rng: Random) -> Settings:
    return Settings(
        recovery_seconds=rng.choice((0.0, 1.0, 2.5)),
        consumer_grace_seconds=rng.choice((0.5, 2.0)),
        unresponsive_seconds=rng.choice((2.5, 12.0)),
        heartbeat_seconds=1.0,
        resume_seconds=rng.choice((10.0, 30.0)),
        mailbox_max_seconds=25.0,
        unclaimed_seconds=25.0,
        mesh_rebalance_seconds=0.0,
    )


def _with_graceful(
    rng: Random, mode: str, injected: list[tuple[float, Fault]], routers: str, services: int, publishers: int
) -> list[tuple[float, Fault]]:
    """Return ``injected``, or a fault of good order in the place of one, or beside those that overlap."""
    fault = graceful_fault(rng, routers, services, publishers)
    if mode == "gentle" and rng.random() < 0.4:
        return [(0.0, fault)]
    if mode == "rough" and rng.random() < 0.4 and fault.kind != "rolling restart":
        return [*injected, (rng.uniform(0.0, 6.0), fault)]
    return injected


def _with_more(rng: Random, plan: MeshPlan, publishers: int) -> MeshPlan:
    """Return ``plan`` with groups, a mailbox, and processes that publish and subscribe."""
    homes = tuple((f"e{n}", rng.choice(plan.routers)) for n in range(publishers))
    groups = tuple(
        (f"s{rng.randrange(plan.services)}", rng.choice(("compute", "network")), group)
        for group in ("audit", "audit", "log")[: rng.randint(0, 3)]
    )
    return replace(
        plan,
        homes=plan.homes + homes,
        groups=tuple(dict.fromkeys(groups)),
        mail_at=rng.choice((0.0, 3.0, 8.0)),
        patterns=tuple(tuple(rng.sample(PATTERNS, rng.randint(0, 2))) for _ in range(publishers)),
    )


def _operation(rng: Random, number: int, callers: int, services: int) -> Operation:
    verb = rng.choices(("call", "cast"), (6, 4))[0]
    caller = rng.randrange(callers)
    return Operation(
        verb,
        f"c{caller}-{number}",
        caller,
        rng.choice(("compute", "compute", "network")),
        f"s{rng.randrange(services)}" if rng.random() < 0.25 else "",
        seconds=rng.choice((0.0, 0.0, 0.01, 0.2, 2.0, 8.0)),
        fails=rng.random() < 0.1,
        timeout=300.0 if verb == "call" else None,
        idempotent=rng.random() < 0.25,
        confirm=verb == "cast" and rng.random() < 0.4,
    )


def _faults(
    rng: Random, mode: str, faults: tuple[str, ...], routers: str, places: list[str]
) -> Iterator[tuple[float, Fault]]:
    if mode == "gentle":
        yield 0.0, _fault(rng, mode, faults, routers, places)
    elif mode == "rough":
        for _ in range(rng.randint(2, 5)):
            yield rng.uniform(0.0, 6.0), _fault(rng, mode, faults, routers, places)


def _fault(rng: Random, mode: str, faults: tuple[str, ...], routers: str, places: list[str]) -> Fault:
    kind = rng.choice(faults)
    if kind in ("kill router", "kill router and deliver"):
        return Fault(kind, rng.choice(routers), rng.choice((0.05, 1.0, 4.0, 12.0)), rng.choice((60.0, 0.5, -3600.0)))
    if kind in ("stop router", "isolate router"):
        return Fault(kind, rng.choice(routers), rng.choice((0.3, 2.0, 5.0, 8.0, 15.0)))
    if kind.split()[-1] == "routers" or kind == "cut routers one way":
        one, other = rng.sample(routers, 2)
        return Fault(kind, one + other, rng.choice((0.05, 0.5, 2.0, 5.0, 8.0)), rng.choice((0.01, 0.1, 0.4)))
    place = rng.choice(places)
    return Fault(kind, place, rng.choice((0.05, 0.3, 1.0, 2.0)))


def _two_deaths(rng: Random, routers: str, callers: int, services: int) -> Iterator[tuple[float, Fault]]:
    """A router and a service die close together, in either order; callers may notice late, and answers be slow."""
    kind = rng.choice(("kill router", "kill router and deliver"))
    dies = rng.choice(routers)
    yield rng.uniform(0.3, 0.8), Fault(kind, dies, rng.choice((1.0, 12.0, 30.0)), 60.0)
    yield rng.uniform(0.3, 0.8), Fault("kill", f"s{rng.randrange(services)}", rng.choice((0.05, 1.0, 12.0)))
    for other in routers:
        if other != dies and rng.random() < 0.5:
            yield 0.0, Fault("delay routers", dies + other, 30.0, rng.choice((0.1, 0.4)))
    for caller in range(callers):
        if rng.random() < 0.7:
            yield rng.uniform(0.0, 0.8), Fault("stop", f"c{caller}", rng.choice((0.3, 1.0, 2.0, 4.0)))


def _short_operations(rng: Random, at: float, callers: int, services: int) -> Iterator[Step]:
    """Calls and casts some of which end just when a router dies."""
    for number in range(1000, 1040):
        operation = _operation(rng, number, callers, services)
        yield at + rng.uniform(-0.3, 1.0), replace(operation, seconds=rng.choice((0.0, 0.0, 0.05, 0.2)))
