"""Syslog over UDP: twenty machines that say little, beside one that sends as fast as one core can."""

from __future__ import annotations

import re
import socket
import sys
from contextlib import ExitStack
from itertools import cycle
from time import monotonic, sleep
from typing import Any

import gevent

from benchmarks.children import Child, child, peak_mib, program, router, say
from benchmarks.ends import answer
from benchmarks.report import Benchmark, Options, Row, Target
from rpcmq import Client

__all__ = ["BENCHMARK"]

_OURS = "rpcmq"
#: Machines, and the messages that each sends a second.
_MACHINES, _RATE = 20, 10
#: Where the flood comes from: addresses, and ports of each.
_CASES = {"no flood": (0, 0), "of one port": (1, 1), "of 64 ports": (1, 64), "of 4 addresses": (4, 1)}
#: Time within which the last message has come (seconds).
_SETTLES = 5.0
_FLOODED = tuple(case for case in _CASES if case != "no flood")
_FRONT_END = ("syslog", "--tcp", "", "--udp", "127.0.0.1:0", "--log-level", "info")


def run(options: Options) -> list[Row]:
    """Messages of the honest that became events (percent), those of the flood, and the front end's memory (MiB)."""
    rows = {case: Row(_OURS, case, []) for case in _CASES}
    for _ in range(options.rounds):
        for case, row in rows.items():
            row.samples.append(_sample(options.seconds, *_CASES[case]))
            options.progress(f"{case}: {row.samples[-1]}")
    return list(rows.values())


def _sample(seconds: float, addresses: int, ports: int) -> dict[str, float]:
    with ExitStack() as stack:
        enter = stack.enter_context
        _, url = enter(router())
        command = [sys.executable, "-m", "rpcmq", *_FRONT_END]
        front_end: Child = enter(program("syslog", command, {"RPCMQ_ROUTER": url}))
        found = re.search(r"messages at ([\d.]+):(\d+) \(udp\)", front_end.line("takes messages at "))
        assert found
        at = [found[1], int(found[2])]
        listener: Child = enter(child(listen, url=url))
        listener.heard()
        before = peak_mib(front_end.pid)
        honest: Child = enter(child(speak, at=at))
        honest.heard()
        if addresses:
            flooder: Child = enter(child(flood, at=at, addresses=addresses, ports=ports))
            flooder.heard()
        sent = honest.ask(seconds, seconds=seconds)
        flooded = flooder.ask(1.0, stop=True) if addresses else {"sent": 0, "seconds": 1.0}
        heard, counts = listener.ask(_SETTLES, expected=sent)
        return {
            "kept_percent": 100 * heard / sent,
            "flood_per_second": flooded["sent"] / flooded["seconds"],
            "published_per_second": (counts["messages"] - heard) / flooded["seconds"],
            **{name: float(counts[name]) for name in ("lost", "lost_in_kernel")},
            "front_end_mib": peak_mib(front_end.pid) - before,
        }


def listen(url: str) -> None:
    """Count what is heard of the honest."""
    heard: set[tuple[str, str]] = set()
    client = Client(url, shell="gevent")
    client.subscribe("syslog.*.*.honest.#", lambda ctx, topic, event: heard.add((event["host"], event["text"])))
    say("ready")

    def count(expected: int) -> tuple[int, Any]:
        end = monotonic() + _SETTLES
        while len(heard) < expected and monotonic() < end:
            gevent.sleep(0.05)
        return len(heard), client.call(None, "syslog", {"method": "statistics", "args": {}}, timeout=30.0)["udp"]

    answer(count)


def _sender(address: str, at: list[Any]) -> socket.socket:
    made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    made.bind((address, 0))
    made.connect((at[0], at[1]))
    return made


def speak(at: list[Any]) -> None:
    """The honest: each from an address of its own."""
    senders = [(_sender(f"127.1.0.{n + 1}", at), f"node-{n}") for n in range(_MACHINES)]
    say("ready")

    def send(seconds: float) -> int:
        began = monotonic()
        total = int(seconds * _RATE) * _MACHINES
        for number, (sender, name) in zip(range(total), cycle(senders), strict=False):
            sender.send(f"<14>1 - {name} honest - - - {number} {'x' * 60}".encode())
            sleep(max(0.0, began + (number + 1) / (_RATE * _MACHINES) - monotonic()))
        return total

    answer(send)


def flood(at: list[Any], addresses: int, ports: int) -> None:
    """Send without a pause until asked to stop."""
    from benchmarks.children import commands

    senders = [_sender(f"127.2.0.{n + 1}", at) for n in range(addresses) for _ in range(ports)]
    message = f"<14>1 - loud flood - - - {'x' * 60}".encode()
    say("ready")
    began, sent, asked = monotonic(), 0, commands()
    while asked.empty():
        for sender in senders:
            for _ in range(16):
                sender.send(message)
        sent += 16 * len(senders)
    say({"sent": sent, "seconds": monotonic() - began})


BENCHMARK = Benchmark(
    name="syslog-flood",
    title="Messages of twenty machines by UDP, 10/s each, that arrive beside a flood as fast as one core can send",
    case="flood",
    metric="kept_percent",
    ours=_OURS,
    run=run,
    targets=(Target("", "kept_percent", _FLOODED, at_least=99.0), Target("", "front_end_mib", _FLOODED, at_most=64)),
)
