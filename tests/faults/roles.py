"""Processes that only the scenarios have: ``python -m tests.faults.roles ROLE OPTIONS``, beside those of a drill."""

from __future__ import annotations

import os
import sys
import time
from typing import Any

import gevent
from gevent.event import Event as Flag

import rpcmq
from rpcmq.drill.common import TOPIC, Options, say
from rpcmq.drill.history import Recorder, What
from rpcmq.drill.load import ROLES, main, on_sigterm
from rpcmq.drill.names import traceparent_of
from rpcmq.drill.topology import Topology


def publish(options: Options, recorder: Recorder) -> None:
    """Events at an even rate, each with the time at which it was sent."""
    stopping = Flag()
    on_sigterm(stopping.set)
    rate = Topology(**options.topology).rate
    with rpcmq.Client(options.router, options.place, shell="gevent") as client:
        client.connect(30.0)
        say("ready")
        began = time.monotonic()
        sent = 0
        while not stopping.is_set():
            for _ in range(max(0, int((time.monotonic() - began) * rate) - sent)):
                client.publish(None, f"{TOPIC}.event", time.monotonic())
                sent += 1
            gevent.sleep(0.005)
        recorder.write(What.COUNTED, published=sent, seconds=round(time.monotonic() - began, 3))


def time_events(options: Options, recorder: Recorder) -> None:
    """Subscribe, and say how late the events of ``publish`` came."""
    stopping = Flag()
    on_sigterm(stopping.set)
    latency: list[float] = []

    def handle(ctx: Any, topic: str, sent_at: float) -> None:
        latency.append(time.monotonic() - sent_at)

    with rpcmq.Client(options.router, options.place, shell="gevent") as client:
        subscription = client.subscribe(f"{TOPIC}.#", handle)
        say("ready")
        stopping.wait()
        p99 = sorted(latency)[int(len(latency) * 0.99)]
        recorder.write(What.COUNTED, **{"events lost": subscription.lost, "p99": round(p99, 6)})


def come_and_go(options: Options, recorder: Recorder) -> None:
    """Run clients one after the other: each calls, subscribes and leaves, every third without GOODBYE."""
    for number in range(options.count):
        with rpcmq.Client(options.router, f"{options.place}-{number}", shell="gevent") as client:
            id = f"{options.name}-{number}"
            args = {"id": id, "topic": TOPIC, "seconds": 0.0, "fails": False, "hogs": False, "text": ""}
            recorder.write(What.SUBMIT, id, verb="call", topic=TOPIC, timeout=30.0)
            of = client.call(None, TOPIC, {"method": "work", "args": args}, 30.0, traceparent=traceparent_of(id))
            recorder.write(What.END, id, outcome="ok", of=of)
            if number % 4 == 0:
                client.subscribe(f"{TOPIC}.{number}.#", lambda ctx, topic, payload: None)
            if number % 3 == 0:
                # As if the process had died: the connection is gone, and nothing more is said.
                client.process.connection._dialed.close()
                client.close(0.0)
    recorder.write(What.DONE, left=0)


ROLES |= {"publisher": publish, "listener": time_events, "churn": come_and_go}

if __name__ == "__main__":
    main(*sys.argv[1:])
    os._exit(0)
