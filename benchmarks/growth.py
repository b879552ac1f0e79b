"""The cost of a router's size: topics, idle connections and waiting messages."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from time import sleep

from benchmarks import crowd
from benchmarks.children import Child, child, cpu_seconds, router
from benchmarks.ends import both, sample
from benchmarks.report import Benchmark, Options, Row, Target, in_turns

__all__ = ["BENCHMARKS"]

_BUSY = [f"compute-{i}" for i in range(10)]
_WIDTHS = (1, 64)
_SHARE = 0.25
#: Rounds shorter than this mean that rough figures are enough: the largest sizes are left out (seconds).
_THOROUGH = 1.0
#: A connection is a file, and a DEALER needs two in the process that makes it.
_SOCKETS_A_PROCESS = 2_500
#: No link is given up for silence: in turn, most systems are quiet while one is measured.
_PATIENT = {"link_unresponsive_seconds": 300, "link_lost_seconds": 600}
_ENDLESS = {
    "queue_max_messages": 10_000_000,
    "queue_max_bytes": 1 << 33,
    "link_max_bytes": 1 << 33,
    "router_max_bytes": 1 << 33,
    "mailbox_unclaimed_seconds": 3600,
    "link_outbox_max_messages": 10_000_000,
}

#: Makes the crowd of so many in the router at the url, for as long as it is entered.
Crowd = Callable[[str, int], AbstractContextManager[list[Child]]]


def _sizes(options: Options, *sizes: int) -> tuple[int, ...]:
    return sizes if options.seconds >= _THOROUGH else sizes[:-1]


# --- calls in a crowded router -------------------------------------------------------------------


@contextmanager
def _topics(url: str, number: int) -> Iterator[list[Child]]:
    with child(crowd.topics, url=url, number=number) as made:
        made.line("ready", 120)
        yield [made]


@contextmanager
def _connections(url: str, number: int) -> Iterator[list[Child]]:
    with ExitStack() as stack:
        places = [min(_SOCKETS_A_PROCESS, number - start) for start in range(0, number, _SOCKETS_A_PROCESS)]
        made = [stack.enter_context(child(crowd.idle, url=url, number=n)) for n in places]
        for each in made:
            each.line("ready", 60)
        yield made


class _System:
    """A router with a crowd in it, and calls to ten topics beside the crowd."""

    def __init__(self, stack: ExitStack, crowded: Crowd, number: int) -> None:
        self._router, url = stack.enter_context(router(**_PATIENT))
        self._caller = stack.enter_context(both(url, _BUSY))
        self._crowd = stack.enter_context(crowded(url, number))

    def measure(self, width: int, seconds: float) -> dict[str, float]:
        """A round of calls while the crowd lives, and what the crowd alone costs.

        ``cpu_us`` is all of the router's CPU time, ``own_cpu_us`` what is left without the crowd's.
        """
        for each in self._crowd:
            each.ask(0, beat=True)
        before = cpu_seconds(self._router.pid)
        sleep(seconds / 2)
        idle = (cpu_seconds(self._router.pid) - before) / (seconds / 2)
        found = sample(self._caller, self._router, seconds, verb="call", width=width)
        for each in self._crowd:
            each.ask(0, beat=False)
        of_crowd = idle / found["calls_per_second"] * 1e6
        return found | {"own_cpu_us": found["cpu_us"] - of_crowd, "idle_cpu_percent": 100 * idle}


def _among(options: Options, crowded: Crowd, unit: str, sizes: tuple[int, ...]) -> list[Row]:
    seconds = options.seconds * _SHARE
    with ExitStack() as stack:
        systems = {f"{number:,} {unit}": _System(stack, crowded, number) for number in sizes}
        widths = _WIDTHS if options.seconds >= _THOROUGH else _WIDTHS[-1:]
        return in_turns(systems, widths, options.rounds, lambda name, width: systems[name].measure(width, seconds))


def _among_topics(options: Options) -> list[Row]:
    return _among(options, _topics, "topics", _sizes(options, 10, 1_000, 100_000))


def _among_connections(options: Options) -> list[Row]:
    return _among(options, _connections, "connections", _sizes(options, 10, 1_000, 10_000))


def _flat(*systems: str) -> tuple[Target, ...]:
    return tuple(
        target
        for system in systems
        for target in (
            Target(system, "calls_per_second", (64,), at_most=1.2),
            Target(system, "own_cpu_us", (64,), at_least=0.8),
        )
    )


# --- memory --------------------------------------------------------------------------------------


def _rss(pid: int) -> int:
    """Resident bytes of a process."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _memory(options: Options) -> list[Row]:
    few = options.seconds < _THOROUGH
    rows = []
    with router() as (daemon, url):
        number = 500 if few else 2_000
        before = _rss(daemon.pid)
        with _connections(url, number):
            rows.append(_bytes("idle connection", number, _rss(daemon.pid) - before))
    for case, call in ("queued message", False), ("queued call", True), ("pending call", True):
        number = 20_000 if few else 60_000
        with (
            router(**_ENDLESS) as (daemon, url),
            child(crowd.sender, url=url, topic="compute", call=call) as sender,
            child(crowd.consumer, url=url, topic="compute", settles=False) as consumer,
        ):
            sender.heard()
            consumer.heard()
            # What is made with the first ones is not theirs.
            sender.ask(1, number=1_000)
            before = _rss(daemon.pid)
            sender.ask(10, number=number)
            if case == "pending call":
                consumer.ask(10, number=number + 1_000)
            rows.append(_bytes(case, number, _rss(daemon.pid) - before))
    return rows


def _bytes(case: str, number: int, size: int) -> Row:
    return Row("rpcmq router", case, [{"bytes": size / number, "number": number}])


# --- depth of a queue ----------------------------------------------------------------------------

_MORE = 50_000


def _depth(options: Options) -> list[Row]:
    """Put some more into a queue that is so deep already, then take all out."""
    depths = _sizes(options, 0, 10_000, 100_000, 1_000_000)
    into = {depth: Row(f"{depth:,} waiting", "in", []) for depth in depths}
    out = {depth: Row(f"{depth:,} waiting", "out", []) for depth in depths}
    for number in range(options.rounds if options.seconds >= _THOROUGH else 1):
        for depth in depths:
            # The deep ones are measured over so many messages that a few times will do.
            if number * depth < 200_000:
                with router(**_ENDLESS) as (daemon, url):
                    _in_and_out(daemon, url, depth, into[depth], out[depth])
    return [*into.values(), *out.values()]


def _in_and_out(daemon: Child, url: str, depth: int, into: Row, out: Row) -> None:
    with (
        child(crowd.sender, url=url, topic="compute", call=False) as sender,
        child(crowd.consumer, url=url, topic="compute", settles=True) as consumer,
    ):
        sender.heard()
        consumer.heard()
        if depth:
            sender.ask(60, number=depth)
        for row, end, number in ((into, sender, _MORE), (out, consumer, depth + _MORE)):
            before = cpu_seconds(daemon.pid)
            seconds = end.ask(120, number=number)
            used = cpu_seconds(daemon.pid) - before
            row.samples.append({"messages_per_second": number / seconds, "cpu_us": used / number * 1e6})


BENCHMARKS = (
    Benchmark(
        name="growth-topics",
        title="Calls to 10 topics among so many others that are consumed, W outstanding",
        case="W",
        metric="calls_per_second",
        ours="10 topics",
        run=_among_topics,
        targets=_flat("1,000 topics", "100,000 topics"),
    ),
    Benchmark(
        name="growth-connections",
        title="Calls to 10 topics among so many idle connections that give signs of life, W outstanding",
        case="W",
        metric="calls_per_second",
        ours="10 connections",
        run=_among_connections,
        targets=_flat("1,000 connections", "10,000 connections"),
    ),
    Benchmark(
        name="growth-memory",
        title="Memory of the router (resident bytes, without the kernel's) for each",
        case="what",
        metric="bytes",
        ours="rpcmq router",
        run=_memory,
    ),
    Benchmark(
        name="growth-depth",
        title="50,000 casts of 200 bytes into a queue where so many wait, then all out",
        case="direction",
        metric="messages_per_second",
        ours="0 waiting",
        run=_depth,
        targets=tuple(
            Target(f"{depth} waiting", "cpu_us", ("in", "out"), at_least=0.8)
            for depth in ("10,000", "100,000", "1,000,000")
        ),
    ),
)
