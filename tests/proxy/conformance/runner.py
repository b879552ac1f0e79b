"""Runs cases against a proxy by its address, all of them at once: they wait most of the time."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import gevent
from gevent.pool import Pool

from tests.proxy.conformance.case import Case, Step
from tests.proxy.conformance.wire import Broken, Message, Origin, Script, ask, filled

_numbers = itertools.count(1)
#: Cases that run at a time, and seconds after a response in which a request behind it may still reach the origin.
_AT_A_TIME, _SETTLE = 24, 0.1


@dataclass(frozen=True)
class Result:
    """The outcome of a case: ``problem`` is empty where all is as expected; ``is_untold`` where its preparation
    failed.
    """

    case: Case
    problem: str
    is_untold: bool = False

    @property
    def is_passed(self) -> bool:
        return not self.problem


def run_cases(cases: Iterable[Case], address: tuple[str, int], origin: Origin) -> list[Result]:
    """Run ``cases`` against the proxy at ``address``, whose origin is ``origin``."""
    return Pool(_AT_A_TIME).map(lambda case: run_case(case, address, origin), list(cases))


def run_case(case: Case, address: tuple[str, int], origin: Origin) -> Result:
    """Run one case under a path of its own."""
    path = f"/c/{os.getpid()}-{next(_numbers)}"
    script = Script([step.response for step in case.steps], f"http://{address[0]}:{address[1]}{path}")
    origin.scripts[path] = script
    for number, step in enumerate(case.steps):
        gevent.sleep(step.wait)
        problem = _take(step, number, path, address, script)
        if problem:
            return Result(case, f"step {number}: {problem}", is_untold=number < len(case.steps) - 1)
    return Result(case, "")


def _take(step: Step, number: int, path: str, address: tuple[str, int], script: Script) -> str:
    # Before it, so that the same date is in the request as it would have been in a response.
    request = (*((name, filled(value)) for name, value in step.request), ("X-Step", str(number)))
    try:
        answer = ask(address, step.method, path + step.suffix, request)
    except (Broken, OSError) as error:
        # With an origin that breaks off, so may a proxy.
        may_break = step.response.status == 0 or step.response.length is not None
        return "" if may_break and step.status is None else f"no response: {error}"
    if step.asked is not None:
        gevent.sleep(_SETTLE)
    return next(_problems(step, number, answer, script), "")


def _problems(step: Step, number: int, answer: Message, script: Script) -> Iterator[str]:
    asked = script.requests.get(number, [])
    if step.asked is not None and bool(asked) != step.asked:
        yield "the origin was asked" if asked else "the origin was not asked"
    if step.status is not None and answer.status != step.status:
        yield f"status {answer.status} in place of {step.status}"
    served = answer.get("x-served")
    if step.served is not None and served != str(step.served):
        yield f"the response of step {served} in place of {step.served}"
    if step.unserved is not None and served == str(step.unserved):
        yield f"the response of step {served}"
    yield from _wrong_body(step, answer, served, script)
    yield from _wrong_fields("the response", answer, step.has, step.lacks)
    if step.age is not None:
        age = answer.get("age") or ""
        if not age.isdigit() or not step.age[0] <= int(age) <= step.age[1]:
            yield f"Age {age or 'is missing'}, expected {step.age[0]} to {step.age[1]}"
    if asked:
        yield from _wrong_fields("the request to the origin", asked[0], step.sent, step.unsent)
        has_condition = any(asked[0].get(name) for name in ("if-none-match", "if-modified-since"))
        if step.conditional is not None and has_condition != step.conditional:
            yield "the origin got a condition" if has_condition else "the origin got no condition"


def _wrong_body(step: Step, answer: Message, served: str | None, script: Script) -> Iterable[str]:
    body = answer.body.decode("latin-1")
    if step.body is not None and body != step.body:
        yield f"the body {body[:40]!r} in place of {step.body[:40]!r}"
    if step.method != "HEAD" and served is not None and answer.status not in (204, 206, 304, 416):
        origins = script.responses[int(served)].body
        expected = f"step {served}" if origins is None else origins
        if body != expected:
            yield f"the body {body[:40]!r} with the head of step {served}"


def _wrong_fields(what: str, message: Message, has: Iterable[tuple[str, str]], lacks: Iterable[str]) -> Iterable[str]:
    for name, value in has:
        found = message.get(name)
        if found is None or value not in found:
            yield f"{what} has {name}: {found}, expected {value or 'any'}" if found else f"{what} lacks {name}"
    for name in lacks:
        if message.get(name) is not None:
            yield f"{what} has {name}"
