"""One message to many: fanout casts and published events, until every subscriber has handled each."""

from __future__ import annotations

import os
from contextlib import ExitStack
from time import perf_counter
from typing import Any

import gevent

from benchmarks.children import Child, child, cpu_seconds, router, say
from benchmarks.ends import answer
from benchmarks.report import Benchmark, Options, Row
from benchmarks.workload import ARGUMENTS, CONTEXT, METHOD
from rpcmq import Client, Service

__all__ = ["BENCHMARK"]

_FANOUT = "fanout_cast"
_PUBLISH = "publish"
_SUBSCRIBERS = (1, 10, 100)
_PROCESSES = 4
#: Copies in a second of a round, so many that the rounds take about as long as they should.
_COPIES = 20_000
_SHARE = 0.5
#: No more messages than the router keeps for a subscriber that is behind: none may be lost.
_MESSAGES = 9_000
_TOGETHER = 20


def run(options: Options) -> list[Row]:
    """Copies/s that arrive and are handled."""
    rows = []
    with ExitStack() as stack:
        enter = stack.enter_context
        daemon, url = enter(router())
        sender = enter(child(send, url=url))
        sender.heard()
        for number in _SUBSCRIBERS:
            with ExitStack() as inner:
                places = [number // _PROCESSES + (i < number % _PROCESSES) for i in range(_PROCESSES)]
                takers = [
                    inner.enter_context(child(take, url=url, topic=f"nodes-{number}", clients=clients))
                    for clients in places
                    if clients
                ]
                for taker in takers:
                    taker.heard()
                messages = min(_MESSAGES, max(50, int(options.seconds * _SHARE * _COPIES) // number))
                rows += _rounds(options, daemon, sender, takers, number, messages)
    return rows


def _rounds(
    options: Options, daemon: Child, sender: Child, takers: list[Child], number: int, messages: int
) -> list[Row]:
    pair = [Row(_FANOUT, number, []), Row(_PUBLISH, number, [])]
    for _ in range(options.rounds):
        for row in pair:
            for taker in takers:
                taker.ask(0, messages=messages)
            before = cpu_seconds(daemon.pid)
            began = sender.ask(10, verb=row.system, topic=f"nodes-{number}", messages=messages)
            # perf_counter is the same clock in all processes of a Linux machine.
            seconds = max(taker.heard() for taker in takers) - began
            copies = messages * number
            row.samples.append(
                {
                    "copies_per_second": copies / seconds,
                    "messages_per_second": messages / seconds,
                    "cpu_us": (cpu_seconds(daemon.pid) - before) / copies * 1e6,
                }
            )
    return pair


# --- in the child --------------------------------------------------------------------------------


class _Counter:
    """Handles events and casts, and says when the last one that is expected has been handled."""

    def __init__(self) -> None:
        self._left = 0

    def expect(self, number: int) -> None:
        """Say when so many were handled."""
        self._left = number

    def reboot_instance(self, ctx: Any, instance_id: str, reboot_type: str) -> None:
        """Handle a cast."""
        self._handled()

    def on_event(self, ctx: Any, topic: str, payload: Any) -> None:
        """Handle an event."""
        self._handled()

    def _handled(self) -> None:
        self._left -= 1
        if self._left == 0:
            say(perf_counter())
        elif self._left < 0:
            print("more was delivered than was sent", flush=True)
            os._exit(1)


def take(url: str, topic: str, clients: int) -> None:
    """So many processes of the system, each with a link and an identity of its own, in one of the machine."""
    counter = _Counter()
    for _ in range(clients):
        client = Client(url, shell="gevent")
        Service(topic, counter, client=client).start()
        client.subscribe(topic, counter.on_event)
    say("ready")

    def expect(messages: int) -> str:
        counter.expect(messages * clients)
        return "armed"

    answer(expect)


def send(url: str) -> None:
    """Sends so many messages; says when it began."""
    client = Client(url, shell="gevent")
    client.connect()
    say("ready")

    def sent(verb: str, topic: str, messages: int) -> float:
        began = perf_counter()
        for number in range(messages):
            if not number % _TOGETHER:
                gevent.sleep(0)  # events have no window: they are sent when the hub gets its turn
            if verb == _PUBLISH:
                client.publish(CONTEXT, topic, ARGUMENTS)
            else:
                client.fanout_cast(CONTEXT, topic, {"method": METHOD, "args": ARGUMENTS})
        return began

    answer(sent)


BENCHMARK = Benchmark(
    name="fanout",
    title="One message to N subscribers, until all have handled all",
    case="subscribers",
    metric="copies_per_second",
    ours=_FANOUT,
    run=run,
)
