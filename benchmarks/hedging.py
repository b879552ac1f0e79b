"""Calls of which 1 % meet a back end that stalls for a second: asked once, and a second one after a delay.

Five back ends. *handler*: the method itself takes a second, and what runs beside it goes on. *process*: the whole
process stands still, with all that was sent to it; what others have answered meanwhile must never begin there.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from time import monotonic
from typing import Any, NoReturn

import gevent

from benchmarks.children import child, commands, router, say
from benchmarks.report import Benchmark, Options, Row, Target
from rpcmq import Client, Service

__all__ = ["BENCHMARK"]

_BACK_ENDS, _STALL, _ONE_IN = 5, 1.0, 100
#: Greenlets that call.
_CALLERS = 16
#: Seconds after which a second back end is asked, and calls of one run; of a long one.
_DELAY, _CALLS, _MANY = 0.05, 5_000, 100_000
_ONCE, _HEDGED = "once", "hedged"


def run(options: Options) -> list[Row]:
    """Latency, deliveries beside the first, and which losers that had not begun have never begun."""
    calls = _MANY if options.is_long else _CALLS
    rows: list[Row] = []
    for stall in ("handler", "process"):
        for system, delay in ((_ONCE, None), (_HEDGED, _DELAY)):
            rows.append(Row(system, stall, [_measured(stall, calls, delay)]))
            options.progress(f"{system}, {stall}: {rows[-1].samples[0]}")
    return rows


def _measured(stall: str, calls: int, delay: float | None) -> dict[str, float]:
    with ExitStack() as stack:
        _, url = stack.enter_context(router(hedge_sample=0))
        ends = [stack.enter_context(child(back_end, url=url, name=f"end-{n}", stall=stall)) for n in range(_BACK_ENDS)]
        for end in ends:
            end.heard()
        caller = stack.enter_context(child(call_all, url=url))
        caller.heard()
        found = caller.ask(60.0 + calls / 20, calls=calls, delay=delay)
        began = [end.ask(10.0) for end in ends]
    times, ended = sorted(found["seconds"]), found["ended"]
    both = [item for item in ended if sum(item in each for each in began) > 1]
    late = sum(max(each[item] for each in began if item in each) > ended[item] for item in both)
    never = found["extra"] - len(both)
    return {
        **{f"{name}_ms": 1e3 * times[int(part * (calls - 1))] for name, part in _PARTS.items()},
        "extra_percent": 100 * found["extra"] / calls,
        "losers_that_never_began": never,
        "losers_that_began_late": late,
        "never_percent": 100 * never / max(1, never + late),
    }


_PARTS = {"p50": 0.5, "p99": 0.99, "p999": 0.999, "max": 1.0}


class Backend:
    """Stalls each so many calls, and notes when it has begun which."""

    def __init__(self, stall: str) -> None:
        self.began: dict[str, float] = {}
        self._pause = gevent.sleep if stall == "handler" else time.sleep

    def show(self, ctx: Any, item: int) -> int:
        """Return ``item``."""
        self.began[str(item)] = monotonic()
        if not len(self.began) % _ONE_IN:
            self._pause(_STALL)
        return item


def back_end(url: str, name: str, stall: str) -> NoReturn:
    """One back end; asked for it, it says when it has begun which call."""
    served = Backend(stall)
    Service("catalogue", served, host=name, identity=name, router=url).start()
    say(name)
    lines = commands()
    while True:
        if lines.empty():
            gevent.sleep(0.01)
        else:
            lines.get()
            say(served.began)


def call_all(url: str) -> NoReturn:
    """The caller: asked for so many calls, it says how long each took, and when it had ended."""
    client = Client(url)
    client.connect()
    say("here")
    lines = commands()
    while True:
        if lines.empty():
            gevent.sleep(0.01)
            continue
        asked = lines.get()
        seconds, ended = _called(client, asked["calls"], asked["delay"])
        gevent.sleep(1.5 * _STALL)  # those that stood still have begun what they were not told of
        rows = client.query("methods")["methods"]
        extra = sum(row["hedges"]["deliveries"] for row in rows if row["hedges"])
        say({"seconds": seconds, "ended": ended, "extra": extra})


def _called(client: Client, calls: int, delay: float | None) -> tuple[list[float], dict[str, float]]:
    """Make so many calls; how long each took, and when it had ended."""
    seconds: list[float] = []
    ended: dict[str, float] = {}
    items = iter(range(calls))

    def work() -> None:
        for item in items:
            began = monotonic()
            message = {"method": "show", "args": {"item": item}}
            client.call(None, "catalogue", message, 60, idempotent=True, hedge_after=delay)
            ended[str(item)] = monotonic()
            seconds.append(ended[str(item)] - began)

    gevent.joinall([gevent.spawn(work) for _ in range(_CALLERS)], raise_error=True)
    return seconds, ended


BENCHMARK = Benchmark(
    name="hedging",
    title="Calls of which 1 % stall for a second: a second back end after 50 ms",
    case="stall",
    metric="p999_ms",
    ours=_HEDGED,
    run=run,
    targets=(
        Target(_ONCE, "p999_ms", ("handler", "process"), at_most=0.1),
        Target("", "extra_percent", ("handler", "process"), at_most=5.0),
        Target("", "never_percent", ("process",), at_least=95.0),
    ),
)
