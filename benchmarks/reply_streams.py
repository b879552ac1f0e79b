"""Reply streams: their speed, with chunks and small items, and the memory of many with large items and slow readers."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from time import perf_counter
from typing import Any

import gevent

from benchmarks.children import Child, child, peak_mib, router, say
from benchmarks.ends import answer
from benchmarks.report import Benchmark, Options, Row, Target
from rpcmq import Client, Service

__all__ = ["BENCHMARK"]

_OURS = "rpcmq"
_MIB = 1 << 20
#: Streams at once, their items, and how long their readers pause after each (seconds).
_STREAMS, _ITEMS, _PAUSE = 64, 20, 0.3
#: Time that a case may take (seconds).
_TAKES = 60.0
_SLOW = f"{_STREAMS} slow readers of 1 MiB items"
_CASES = {
    "256 MiB": (1, _MIB // 4, 1024, 0.0),
    "small items": (1, 100, 50_000, 0.0),
    _SLOW: (_STREAMS, _MIB, _ITEMS, _PAUSE),
}


def run(options: Options) -> list[Row]:
    """Megabytes and items a second, and the growth of the memory of service, router and caller at most (MiB)."""
    rows = {case: Row(_OURS, case, []) for case in _CASES}
    for _ in range(options.rounds):
        for case, row in rows.items():
            row.samples.append(_sample(*_CASES[case]))
    return list(rows.values())


def _sample(streams: int, size: int, items: int, pause: float) -> dict[str, float]:
    with ExitStack() as stack:
        enter = stack.enter_context
        daemon, url = enter(router())
        service: Child = enter(child(serve, url=url))
        service.heard()
        caller: Child = enter(child(read, url=url))
        caller.heard()
        processes = {"service": service.pid, "router": daemon.pid, "caller": caller.pid}
        caller.ask(_TAKES, streams=1, size=size, items=4, pause=0.0)  # what is made once is no growth
        before = {name: peak_mib(pid) for name, pid in processes.items()}
        seconds = caller.ask(_TAKES, streams=streams, size=size, items=items, pause=pause)
        grown = {f"{name}_mib": peak_mib(pid) - before[name] for name, pid in processes.items()}
    count = streams * items
    return {"megabytes_per_second": count * size / seconds / 1e6, "items_per_second": count / seconds, **grown}


class Source:
    """Makes items."""

    def __init__(self) -> None:
        self._random = os.urandom(_MIB)

    def chunks(self, ctx: Any, size: int, items: int) -> Iterator[bytes]:
        """So many ``items`` of so many bytes."""
        for _ in range(items):
            yield self._random[: size - 1] + b"x"  # a new object each, as of a file


def serve(url: str) -> None:
    """The service."""
    service = Service("files", Source(), router=url, shell="gevent", concurrency=128)
    service.start()
    say("ready")
    service.wait()


def read(url: str) -> None:
    """The caller."""
    client = Client(url, shell="gevent")
    client.connect()
    say("ready")

    def take(streams: int, size: int, items: int, pause: float) -> float:
        def one() -> None:
            count = 0
            message = {"method": "chunks", "args": {"size": size, "items": items}}
            for item in client.multicall(None, "files", message, _TAKES):
                count += len(item)
                if pause:
                    gevent.sleep(pause)
            if count != size * items:
                raise RuntimeError("not everything has come")

        began = perf_counter()
        gevent.joinall([gevent.spawn(one) for _ in range(streams)], raise_error=True)
        return perf_counter() - began

    answer(take)


BENCHMARK = Benchmark(
    name="reply-streams",
    title="Answers item by item; growth of the memory of each process (MiB)",
    case="answer",
    metric="megabytes_per_second",
    ours=_OURS,
    run=run,
    targets=tuple(Target("", f"{name}_mib", (_SLOW,), at_most=192) for name in ("service", "router", "caller")),
)
