"""The router alone: bare clients and an echo server, through our router and through libzmq's proxy."""

from __future__ import annotations

from contextlib import ExitStack

from benchmarks import raw
from benchmarks.children import Child, child, router
from benchmarks.ends import sample
from benchmarks.report import Benchmark, Options, Row, Target

__all__ = ["BENCHMARK"]

_OURS = "rpcmq router"
_PROXY = "libzmq proxy"
_PLAIN = "libzmq proxy, plain pyzmq"
_WIDTHS = (1, 16, 64, 256)


def run(options: Options) -> list[Row]:
    """Calls/s and latency with W calls outstanding."""
    with ExitStack() as stack:
        enter = stack.enter_context
        daemon, url = enter(router())
        enter(child(raw.batch_echo, url=url)).heard()
        clients = {_OURS: (enter(child(raw.batch_client, url=url)), daemon)}
        for name, plain in ((_PROXY, False), (_PLAIN, True)):
            middle = enter(child(raw.proxy))
            front, back = middle.heard()
            enter(child(raw.proxy_echo, url=back, plain=plain)).heard()
            clients[name] = (enter(child(raw.proxy_client, url=front, plain=plain)), middle)
        for client, _ in clients.values():
            client.heard()
        return [row for width in _WIDTHS for row in _rounds(options, width, clients)]


def _rounds(options: Options, width: int, clients: dict[str, tuple[Child, Child]]) -> list[Row]:
    rows = [Row(system, width, []) for system in clients]
    for _ in range(options.rounds):
        for row in rows:
            client, broker = clients[row.system]
            row.samples.append(sample(client, broker, options.seconds, width=width))
    return rows


BENCHMARK = Benchmark(
    name="router-alone",
    title="Router alone: bare DEALER clients, an echo server, W calls outstanding",
    case="W",
    metric="calls_per_second",
    ours=_OURS,
    run=run,
    targets=(
        Target(_PROXY, "calls_per_second", (64, 256), at_least=1.5),
        Target(_PROXY, "p50_us", (1,), at_most=1.3),
    ),
)
