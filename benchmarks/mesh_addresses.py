"""Memory for the addresses of other routers, and the time to take them in: 100,000, of 10, 50 and 100 routers."""

from __future__ import annotations

import gc
import time
import tracemalloc
from collections.abc import Iterator

from benchmarks.report import Benchmark, Options, Row
from rpcmq.core.router.mesh.interest_table import Holding, InterestTable
from rpcmq.core.router.model import Link
from rpcmq.wire import Address, origin_of
from rpcmq.wire.bodies import MESH_TYPE
from rpcmq.wire.consumer_name import ConsumerName
from rpcmq.wire.interest import PlaceState, identity_key, place_key

__all__ = ["BENCHMARK", "bytes_of_one", "filled"]

_NUMBER = 100_000
_ROUTERS = (10, 50, 100)
#: Consumers' routers of each address -> addresses of one process.
_CASES = {
    "1 home, 1 process each": (1, 1),
    "1 home, 10 of a process": (1, 10),
    "3 homes, 10 of a process": (3, 10),
    "3 homes, 1 process each": (3, 1),
}


def _rows(number: int, routers: int, homes: int, of_process: int) -> Iterator[tuple[int, bytes, int, bytes, bytes]]:
    """For each consumer: its router, the key, and number, name (if it is new) and state of the process."""
    counts = [0] * routers
    for i in range(number):
        address = Address("compute", f"node-{i:06d}.site")
        for home in range(homes):
            router = (i + home * 7) % routers
            process, known = divmod(counts[router], of_process)
            counts[router] += 1
            identity = f"node-{process:06d}.site-{router:03d}"
            name = b"" if known else ConsumerName(origin_of(router + 1, process + 1), identity).encode()
            yield router, place_key(address), process, name, PlaceState(1, 100, True, (process,)).encode()


def filled(number: int, routers: int, homes: int, of_process: int) -> tuple[InterestTable, list[Holding]]:
    """A table of ``number`` addresses, each with consumers at ``homes`` of ``routers``."""
    table = InterestTable()
    holdings = [table.open(Link([], f"r{i}", MESH_TYPE, i, 1), f"r{i}") for i in range(routers)]
    for router, key, process, name, state in _rows(number, routers, homes, of_process):
        if name:
            table.put_name(holdings[router], identity_key(process), process, name)
        table.put(holdings[router], key, state)
    return table, holdings


def bytes_of_one(number: int, routers: int, homes: int, of_process: int) -> float:
    """Bytes that the table takes for each address, names of processes included."""
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        table, holdings = filled(number, routers, homes, of_process)
        gc.collect()
        assert len(table) == number and len(holdings) == routers
        return (tracemalloc.get_traced_memory()[0] - before) / number
    finally:
        tracemalloc.stop()


def run(options: Options) -> list[Row]:
    """Bytes, and microseconds of CPU, for each address."""
    rows = []
    for case, (homes, of_process) in _CASES.items():
        for routers in _ROUTERS:
            before = time.process_time()
            filled(_NUMBER, routers, homes, of_process)
            used = time.process_time() - before
            sample = {"bytes": bytes_of_one(_NUMBER, routers, homes, of_process), "cpu_us": used / _NUMBER * 1e6}
            rows.append(Row(f"{routers} routers", case, [sample]))
    return rows


BENCHMARK = Benchmark(
    name="mesh-addresses",
    title="Memory of the table of other routers' addresses, for each of 100,000, names of consumers included",
    case="consumers",
    metric="bytes",
    ours="10 routers",
    run=run,
)
