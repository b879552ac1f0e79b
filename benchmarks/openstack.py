"""oslo.messaging over rpcmq beside RabbitMQ: calls, casts, fanouts, and a broker that is killed.

One server process (three of a fanout) and one client process, both of native threads, with the same script; both
brokers run all the time and are used in turns. `make .venv-oslo-18/.ready` installs what it needs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import perf_counter, sleep

from benchmarks.children import Child
from benchmarks.openstack_brokers import MESH, OURS, RABBIT, Broker, TwoRouters, brokers, oslo_child
from benchmarks.openstack_ends import ask, load, serve
from benchmarks.queue_cost import Cost, alone
from benchmarks.report import Benchmark, Options, Row, Target

__all__ = ["BENCHMARKS"]

_SERVERS, _THREADS = 3, 32
#: Longest wait until all that was sent has been handled (seconds), and the pause between two looks.
_PATIENCE, _LOOK_AGAIN = 60.0, 0.05
#: Seconds of load before the kill, and after the port is back; and those of the outage where RabbitMQ is not here.
_BEFORE, _AFTER, _AWAY = 2.0, 8.0, 5.0


@dataclass(frozen=True)
class _System:
    broker: Broker
    #: One serves a topic of its own, the others another one together.
    server: Child
    servers: list[Child]
    #: Calls and casts to the one, and to the others.
    asks_one: Child
    asks_all: Child


def run_calls(options: Options) -> list[Row]:
    """Calls from one thread, and from many."""
    cases: dict[int | str, _Measure] = {width: partial(_calls, width, options.seconds) for width in (1, _THREADS)}
    return _in_turns(options, cases)


def run_casts(options: Options) -> list[Row]:
    """Casts to one server, and fanouts to three."""
    return _in_turns(
        options,
        {
            "cast": lambda system: _casts(system.asks_one, "cast", [system.server], system.broker, options.seconds),
            "fanout": lambda system: _casts(system.asks_all, "fanout", system.servers, system.broker, options.seconds),
        },
    )


def run_kill(options: Options) -> list[Row]:
    """Each round kills the brokers, of fresh processes; routers are kept away as long as RabbitMQ takes to start."""
    away = _AWAY
    rows: dict[str, Row] = {}
    for _ in range(options.rounds):
        for name, new in (*brokers(options.notice).items(), (MESH, TwoRouters)):
            with new() as broker, _ends(broker, load) as (server, loading):
                sample = _killed(broker, server, loading, 0.0 if name == RABBIT else away)
            if name == RABBIT:
                away = sample["away_s"]
            rows.setdefault(name, Row(name, "kill -9", [])).samples.append(sample)
    return list(rows.values())


_Measure = Callable[[_System], dict[str, float]]


def _in_turns(options: Options, cases: dict[int | str, _Measure]) -> list[Row]:
    rows: dict[tuple[int | str, str], Row] = {}
    with ExitStack() as stack:
        systems = {name: stack.enter_context(_system(new())) for name, new in brokers(options.notice).items()}
        for _ in range(options.rounds):
            for case, measure in cases.items():
                for name, system in systems.items():
                    rows.setdefault((case, name), Row(name, case, [])).samples.append(measure(system))
    return sorted(rows.values(), key=lambda row: list(cases).index(row.case))


@contextmanager
def _system(broker: Broker) -> Iterator[_System]:
    with broker, _ends(broker, ask) as (server, asks_one), ExitStack() as stack:
        names = [f"node-{number}" for number in range(_SERVERS)]
        servers = [stack.enter_context(oslo_child(serve, url=broker.url, topic="many", name=name)) for name in names]
        for each in servers:
            each.heard()
        asks_all = stack.enter_context(oslo_child(ask, url=broker.url, topic="many"))
        asks_all.heard()
        yield _System(broker, server, servers, asks_one, asks_all)


@contextmanager
def _ends(broker: Broker, client: Callable[..., None]) -> Iterator[tuple[Child, Child]]:
    with oslo_child(serve, url=broker.url, topic="one", name="node") as server:
        server.heard()
        with oslo_child(client, url=broker.url, topic="one") as asking:
            asking.heard()
            yield server, asking


def _cost(asking: Child, servers: list[Child], broker: Broker) -> Callable[[float], dict[str, float]]:
    """Count CPU time from now on; the result, called with a number of messages, tells that of each of them."""

    def serving() -> list[int]:
        return [server.pid for server in servers]

    counted = Cost({"client": alone(asking.pid), "server": serving, "broker": broker.pids}, Path("/"))

    def each(messages: float) -> dict[str, float]:
        found = counted.of(messages)
        parts = {f"{name}_us": found[f"{name}_cpu_us"] for name in ("client", "server", "broker")}
        return {"all_cpu_us": sum(parts.values()), **parts}

    return each


def _calls(width: int, seconds: float, system: _System) -> dict[str, float]:
    cost = _cost(system.asks_one, [system.server], system.broker)
    found = system.asks_one.ask(seconds, do="call", width=width, seconds=seconds)
    return {name: found[name] for name in ("calls_per_second", "p50_us", "p99_us")} | cost(found["calls"])


def _casts(asking: Child, verb: str, servers: list[Child], broker: Broker, seconds: float) -> dict[str, float]:
    """Send for so many seconds, and wait until all has been handled; ``handled`` counts the copies of a fanout."""
    for server in servers:
        server.ask(0, do="forget")
    cost = _cost(asking, servers, broker)
    found = asking.ask(seconds, do=verb, width=_THREADS, seconds=seconds)
    sent, handled = found["calls"], _handled(servers, found["calls"])
    took = max(each["last"] for each in handled) - found["began"]
    return {
        "casts_per_second": found["calls_per_second"],
        "handled_per_second": sum(each["distinct"] for each in handled) / took,
        "p50_us": found["p50_us"],
        "p99_us": found["p99_us"],
        **cost(sent),
        "lost": sum(sent - each["distinct"] for each in handled),
        "doubled": sum(each["handled"] - each["distinct"] for each in handled),
    }


def _handled(servers: list[Child], sent: float) -> list[dict[str, float]]:
    """Counts of each of ``servers`` once all has come, or the time is over."""
    end = perf_counter() + _PATIENCE
    while True:
        handled = [server.ask(0, do="look") for server in servers]
        if all(each["distinct"] >= sent for each in handled) or perf_counter() > end:
            return handled
        sleep(_LOOK_AGAIN)


def _killed(broker: Broker, server: Child, loading: Child, away: float) -> dict[str, float]:
    """Kill ``broker`` under load, and start it again after so many seconds."""
    loading.ask(0)
    sleep(_BEFORE)
    killed = perf_counter()
    broker.kill()
    broker.await_port(is_open=False)
    sleep(away)
    # It says that it serves later than it does. It would end with the thread that has started it.
    with ThreadPoolExecutor() as pool:
        came_back = pool.submit(broker.await_port)
        broker.start()
        back = came_back.result()
    sleep(_AFTER)
    found = loading.ask(_PATIENCE, back=back)
    sent = found["casts"]
    handled = _handled([server], sent)[0]
    return {
        "away_s": back - killed,
        "first_good_ms": found["first_good"] * 1e3,
        "longest_call_ms": found["longest_call"] * 1e3,
        "longest_cast_ms": found["longest_cast"] * 1e3,
        "calls": found["calls"],
        "calls_failed": found["calls_failed"],
        "casts": sent,
        "casts_failed": found["casts_failed"],
        "lost": sent - handled["distinct"],
        "doubled": handled["handled"] - handled["distinct"],
    }


_WIDTHS = (1, _THREADS)
BENCHMARKS = (
    Benchmark(
        name="openstack-calls",
        title="Calls of oslo.messaging: one server process, one client process",
        case="threads",
        metric="calls_per_second",
        ours=OURS,
        run=run_calls,
        targets=(
            Target(RABBIT, "calls_per_second", _WIDTHS, at_least=3),
            Target(RABBIT, "p99_us", _WIDTHS, at_most=0.5),
            Target("", "all_cpu_us", _WIDTHS, at_most=800),
        ),
    ),
    Benchmark(
        name="openstack-casts",
        title=f"Casts of oslo.messaging to one server process, fanouts to {_SERVERS}: a client with {_THREADS} threads",
        case="verb",
        metric="handled_per_second",
        ours=OURS,
        run=run_casts,
        targets=(
            Target(RABBIT, "casts_per_second", ("cast",), at_least=2),
            Target(RABBIT, "handled_per_second", ("cast", "fanout"), at_least=2),
            Target(RABBIT, "p99_us", ("cast", "fanout"), at_most=0.5),
            Target("", "lost", ("cast", "fanout"), at_most=0),
            Target("", "doubled", ("cast", "fanout"), at_most=0),
        ),
    ),
    Benchmark(
        name="openstack-kill",
        title="The broker of oslo.messaging is killed and comes back: calls and casts from four threads each",
        case="fault",
        metric="first_good_ms",
        ours=OURS,
        run=run_kill,
        targets=(
            Target("", "first_good_ms", ("kill -9",), at_most=1000),
            Target("", "calls_failed", ("kill -9",), at_most=0),
            Target("", "casts_failed", ("kill -9",), at_most=0),
            Target("", "lost", ("kill -9",), at_most=0),
            Target("", "doubled", ("kill -9",), at_most=0),
            *(Target("", metric, ("kill -9",), at_most=0, ours=MESH) for metric in ("calls_failed", "lost", "doubled")),
        ),
    ),
)
