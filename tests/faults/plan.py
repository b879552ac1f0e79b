"""The plan of a simulated run, drawn from one seed before it begins.

A plan is plain data: it can be printed, and steps can be left out of it to find those that matter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from random import Random
from typing import Self, TypeVar

from rpcmq.core.router.settings import Settings

__all__ = ["FAULTS", "Fault", "Operation", "Plan", "Step", "minimised", "plan_of"]

#: The faults that a simulation knows.
FAULTS = (
    "reset", "half-open", "drop", "stop", "cut", "cut to router", "cut to process", "delay", "kill", "vanish",
    "leave", "restart router", "stop router",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Operation:
    """A caller sends something.

    Attributes:
        verb: call, cast or fanout; with several routers also stream, event, or declare (a topic).
        caller: number of the caller.
        server: the server of the topic; empty: any.
        seconds: that the handler takes.
        fails: the handler raises.
        timeout: seconds; of a cast, its ttl; None: none.
        cancel_after: seconds after which the caller gives up; None: it does not.
        items: of a stream, ``seconds`` apart.
        consumers: how many may have the call at a time, the next one ``hedge_after`` seconds after the one before.
    """

    verb: str
    id: str
    caller: int
    topic: str
    server: str = ""
    seconds: float = 0.0
    fails: bool = False
    timeout: float | None = None
    idempotent: bool = False
    confirm: bool = False
    mandatory: bool = False
    cancel_after: float | None = None
    items: int = 0
    consumers: int = 1
    hedge_after: float = 0.0


@dataclass(frozen=True, slots=True)
class Fault:
    """Something goes wrong.

    Attributes:
        kind: one of :data:`FAULTS`.
        target: ``c0`` (caller), ``s1`` (service) or ``router``.
        seconds: how long it lasts.
        amount: of delay (seconds), or by how much the wall clock steps when the router restarts.
    """

    kind: str
    target: str
    seconds: float = 0.0
    amount: float = 0.0


Step = tuple[float, Operation | Fault]


@dataclass(frozen=True)
class Plan:
    """A whole run.

    Attributes:
        callers, services: how many.
        credit: of each service.
        steps: (seconds after the start, what), by time.
    """

    seed: int
    settings: Settings
    callers: int
    services: int
    credit: int
    steps: tuple[Step, ...]

    def with_steps(self, steps: tuple[Step, ...]) -> Self:
        """The same with other steps."""
        return replace(self, steps=steps)


AnyPlan = TypeVar("AnyPlan", bound=Plan)


def plan_of(
    seed: int, faults: tuple[str, ...] = FAULTS, seconds: float = 10.0, operations: int = 40, hedges: bool = False
) -> Plan:
    """The plan that follows from ``seed``.

    Args:
        hedges: whether several consumers may have some calls.
        faults: the kinds that may occur.
        seconds: how long something new happens.
        operations: about how many messages are sent.
    """
    rng = Random(seed)
    callers, services = rng.randint(1, 3), rng.randint(1, 3)
    settings = Settings(
        heartbeat_seconds=rng.choice((1.0, 5.0)),
        unresponsive_seconds=rng.choice((2.5, 12.0)),
        resume_seconds=rng.choice((2.0, 30.0)),
        consumer_grace_seconds=rng.choice((0.0, 0.1, 0.5)),
        recovery_seconds=rng.choice((0.0, 1.0, 3.0)),
        queue_max_messages=rng.choice((3, 1000)),
        mailbox_max_seconds=rng.choice((10.0, 60.0)),
        max_calls_in_flight=rng.choice((5, 1_000_000)),
    )
    # Nobody is quick enough to be called unresponsive and answering at the same time.
    if settings.unresponsive_seconds < settings.heartbeat_seconds:
        settings.heartbeat_seconds = 1.0
    steps: list[Step] = []
    burst = rng.random() < 0.3
    at = 0.0
    for number in range(rng.randint(operations // 2, operations * 3 // 2)):
        at = at + rng.expovariate(operations / seconds) if not burst or rng.random() < 0.1 else at
        steps.append((at, _operation(rng, number, callers, services)))
    steps += [(rng.uniform(0.0, seconds), _fault(rng, faults, callers, services)) for _ in range(rng.randint(1, 8))]
    steps.sort(key=lambda step: step[0])
    plan = Plan(seed, settings, callers, services, rng.choice((1, 2, 8)), tuple(steps))
    return with_hedges(plan) if hedges else plan


def with_hedges(plan: AnyPlan) -> AnyPlan:
    """``plan`` with calls that several consumers may have, for which these are idempotent; some with a small budget."""
    rng = Random(f"hedges of {plan.seed}")
    steps: list[Step] = []
    for at, step in plan.steps:
        if isinstance(step, Operation) and step.verb == "call" and rng.random() < 0.7:
            after = rng.choice((0.0, 0.0, 0.005, 0.1, 1.0))
            step = replace(step, idempotent=True, consumers=rng.choice((2, 2, 3)), hedge_after=after)
        steps.append((at, step))
    settings = replace(
        plan.settings,
        hedge_unbounded=rng.choice(((), ("#",))),
        hedge_budget=rng.choice((0.0, 0.05, 1.0)),
        hedge_sample=rng.choice((0.0, 1.0)),
    )
    return replace(plan, steps=tuple(steps), settings=settings)


def _operation(rng: Random, number: int, callers: int, services: int) -> Operation:
    verb = rng.choices(("call", "cast", "fanout"), (6, 4, 1))[0]
    caller = rng.randrange(callers)
    topic = rng.choice(("compute", "compute", "network"))
    server = f"s{rng.randrange(services)}" if verb != "fanout" and rng.random() < 0.3 else ""
    return Operation(
        verb,
        f"c{caller}-{number}",
        caller,
        topic,
        server,
        seconds=rng.choice((0.0, 0.0, 0.01, 0.2, 2.0, 8.0)),
        fails=rng.random() < 0.1,
        timeout=rng.choice((0.3, 3.0, 20.0)) if verb == "call" else rng.choice((None, None, 0.5, 20.0)),
        idempotent=rng.random() < 0.3 and verb != "fanout",
        confirm=rng.random() < 0.5 and verb == "cast",
        mandatory=rng.random() < 0.1 and verb != "fanout",
        cancel_after=rng.uniform(0.0, 3.0) if verb == "call" and rng.random() < 0.1 else None,
    )


def _fault(rng: Random, faults: tuple[str, ...], callers: int, services: int) -> Fault:
    kind = rng.choice(faults)
    if kind.endswith(" router") and not kind.startswith("cut"):
        step = rng.choice((60.0, 0.5, 0.001, -3600.0))
        return Fault(kind, "router", rng.choice((0.0, 0.2, 1.0, 5.0)), step)
    target = rng.choice([f"c{n}" for n in range(callers)] + [f"s{n}" for n in range(services)])
    if kind in ("kill", "vanish", "leave"):
        target = f"s{rng.randrange(services)}" if kind == "leave" or rng.random() < 0.8 else target
    seconds = rng.choice((0.05, 0.3, 1.0, 3.0, 10.0))
    return Fault(kind, target, seconds, rng.choice((0.01, 0.3, 2.0)))


# --- making a plan small ------------------------------------------------------------------------


def minimised(plan: AnyPlan, fails: Callable[[AnyPlan], bool]) -> AnyPlan:
    """The plan with all steps left out without which it ``fails`` as well."""
    size = max(1, len(plan.steps) // 2)
    while True:
        for shorter in _shorter(plan, size):
            if fails(shorter):
                plan = shorter
                break
        else:
            if size == 1:
                return plan
            size //= 2


def _shorter(plan: AnyPlan, size: int) -> Iterator[AnyPlan]:
    for start in range(0, len(plan.steps), size):
        yield plan.with_steps(plan.steps[:start] + plan.steps[start + size :])
