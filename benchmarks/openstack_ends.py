"""Server and client of oslo.messaging: processes of the environment that has it, the same for each transport url."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from importlib import import_module
from itertools import count
from time import perf_counter, sleep
from typing import Any

from benchmarks.children import commands, say
from benchmarks.workload import ARGUMENTS, CONTEXT, METHOD, rebooted

__all__ = ["ask", "load", "serve", "work"]

#: Seconds of a call, for calls that wait for a broker too.
_TIMEOUT = 60.0
#: Numbers of the casts of a thread.
_MOST_CASTS = 10_000_000


class Endpoint:
    """Endpoint with a call, and with a cast that is written down."""

    def __init__(self) -> None:
        self.noted: list[int] = []
        self.last = 0.0

    def reboot_instance(self, ctxt: dict[str, Any], instance_id: str, reboot_type: str) -> dict[str, Any]:
        return rebooted(instance_id, reboot_type)

    def note(self, ctxt: dict[str, Any], n: int) -> None:
        self.noted.append(n)
        self.last = perf_counter()


def _transport(url: str) -> Any:
    import oslo_messaging
    from oslo_messaging import conffixture

    # Not that of compat/, which mypy knows.
    conf = import_module("oslo_config.cfg").ConfigOpts()
    conffixture.ConfFixture(conf)
    conf([])
    return oslo_messaging.get_rpc_transport(conf, url)


def _start(transport: Any, topic: str, name: str, endpoint: Endpoint) -> None:
    import oslo_messaging

    target = oslo_messaging.Target(topic=topic, server=name)
    oslo_messaging.get_rpc_server(transport, target, [endpoint], executor="threading").start()


def _client(transport: Any, topic: str, **target: Any) -> Any:
    import oslo_messaging

    return oslo_messaging.get_rpc_client(transport, oslo_messaging.Target(topic=topic, **target), timeout=_TIMEOUT)


def serve(url: str, topic: str, name: str) -> None:
    """Serves ``topic`` in threads; tells on demand what casts it has run, and forgets them."""
    endpoint = Endpoint()
    _start(_transport(url), topic, name, endpoint)
    say("ready")
    while True:
        if commands().get()["do"] == "forget":
            noted, endpoint.noted = endpoint.noted, []
        else:
            noted = endpoint.noted
        say({"handled": len(noted), "distinct": len(set(noted)), "last": endpoint.last})


def ask(url: str, topic: str) -> None:
    """Calls, casts and fanouts from W threads."""
    transport = _transport(url)
    one, all_of_them = _client(transport, topic), _client(transport, topic, fanout=True)
    # The first one connects.
    one.call(CONTEXT, METHOD, **ARGUMENTS)
    verbs: dict[str, Callable[[int], Any]] = {
        "call": lambda n: one.call(CONTEXT, METHOD, **ARGUMENTS),
        "cast": lambda n: one.cast(CONTEXT, "note", n=n),
        "fanout": lambda n: all_of_them.cast(CONTEXT, "note", n=n),
    }
    say("ready")
    while True:
        command = commands().get()
        say(_measured(verbs[command["do"]], command["width"], command["seconds"]))


def _measured(verb: Callable[[int], Any], width: int, seconds: float) -> dict[str, float]:
    """Use a verb in ``width`` threads for so many seconds."""
    times: list[list[float]] = [[] for _ in range(width)]
    failed: list[Exception] = []
    end = perf_counter() + seconds

    def go_on(number: int) -> None:
        mine, numbers = times[number], count(number * _MOST_CASTS)
        sent = perf_counter()
        while sent < end:
            try:
                verb(next(numbers))
            except Exception as error:
                failed.append(error)
                return
            received = perf_counter()
            mine.append(received - sent)
            sent = received

    began = perf_counter()
    _in_threads(go_on, width)
    took = perf_counter() - began
    if failed:
        print(f"{len(failed)} threads failed, the first with {failed[0]!r}")
        os._exit(1)
    all_times = sorted(time for mine in times for time in mine)
    return {
        "calls": len(all_times),
        "calls_per_second": len(all_times) / took,
        "p50_us": all_times[len(all_times) // 2] * 1e6,
        "p99_us": all_times[len(all_times) * 99 // 100] * 1e6,
        "began": began,
    }


def _in_threads(run: Callable[[int], None], width: int) -> None:
    threads = [threading.Thread(target=run, args=(number,)) for number in range(width)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def load(url: str, topic: str) -> None:
    """Calls and casts from four threads each, from one command to the next; tells what became of them."""
    client = _client(_transport(url), topic)
    client.call(CONTEXT, METHOD, **ARGUMENTS)
    over = threading.Event()
    calls: list[tuple[float, float, bool]] = []
    casts: list[tuple[float, float, bool]] = []

    def go_on(number: int) -> None:
        done, pause = (calls, 0.05) if number < 4 else (casts, 0.01)
        numbers = count(number * _MOST_CASTS)
        while not over.is_set():
            sent, is_good = perf_counter(), True
            try:
                if done is calls:
                    client.call(CONTEXT, METHOD, **ARGUMENTS)
                else:
                    client.cast(CONTEXT, "note", n=next(numbers))
            except Exception as error:
                print(repr(error))
                is_good = False
            done.append((sent, perf_counter(), is_good))
            sleep(pause)

    say("ready")
    commands().get()
    loading = threading.Thread(target=_in_threads, args=(go_on, 8))
    loading.start()
    say("loading")
    back = commands().get()["back"]
    over.set()
    loading.join()
    say(
        {
            "first_good": min((end - back for _, end, good in calls if good and end > back), default=float("inf")),
            "calls": len(calls),
            "calls_failed": sum(not good for _, _, good in calls),
            "longest_call": max(end - sent for sent, end, _ in calls),
            "casts": sum(good for _, _, good in casts),
            "casts_failed": sum(not good for _, _, good in casts),
            "longest_cast": max(end - sent for sent, end, _ in casts),
        }
    )
    commands().get()


def work(url: str, topic: str, asks: str, workers: int, widths: list[int]) -> None:
    """A service that makes its transport and then forks workers, which serve ``topic`` and call another one.

    At the first command all call, ``widths[0]`` at once, and so on.
    """
    transport = _transport(url)
    pipes = [os.pipe() for _ in range(workers)]
    children = []
    for number in range(workers):
        child = os.fork()
        if child == 0:
            _work(transport, topic, f"worker-{number}", asks, pipes[number][0], widths)
        children.append(child)
    say(children)
    while True:
        commands().get()
        for _, go_on in pipes:
            os.write(go_on, b".")
        say("told")


def _work(transport: Any, topic: str, name: str, asks: str, go_on: int, widths: list[int]) -> None:
    try:
        _start(transport, topic, name, Endpoint())
        _tell("serves")
        client = _client(transport, asks)
        for width in widths:
            os.read(go_on, 1)
            _in_threads(lambda number: client.call(CONTEXT, METHOD, **ARGUMENTS), width)
            _tell("called")
        os.read(go_on, 1)
    finally:
        os._exit(1)


def _tell(word: str) -> None:
    """Say it in one piece: others write to the same output."""
    os.write(1, f"worker: {word}\n".encode())
