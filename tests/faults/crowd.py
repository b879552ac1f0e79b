"""A crowd of clients in few processes, and services that write down what they start.

``python -m tests.faults.crowd service ROUTER FILE``

``python -m tests.faults.crowd clients NUMBER CLIENTS ROUTERS`` connects, says ``ready``, and does as it is told line by
line: ``load SECONDS COUNT`` and ``end``.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from itertools import count
from random import Random

import gevent
from gevent.fileobject import FileObjectThread

import rpcmq
from rpcmq.errors import RpcError

__all__ = ["TOPIC"]

TOPIC = "crowd"
#: Calls of a process that are under way, and the share of casts among the messages.
_WORKERS, _CASTS = 8, 0.25
_CONNECT_SECONDS = 120.0


class Starts:
    """Writes the number of each message that is started, in one call: nothing but the machine's end loses it."""

    def __init__(self, path: str) -> None:
        self._file = open(path, "ab", buffering=0)  # noqa: SIM115 - as long as the process lives

    def work(self, context: object, number: int) -> int:
        self._file.write(number.to_bytes(8))
        return number


class Crowd:
    """Many clients of this process.

    Args:
        number: of the process: its messages are numbered from that many millions of millions on.
        clients: how many.
        routers: urls; each client is given one of them in turn.
    """

    def __init__(self, number: int, clients: int, routers: list[str]) -> None:
        self._random = Random(number)
        self._numbers = count(number * 10**12)
        self._clients = [
            rpcmq.Client(routers[each % len(routers)], f"crowd-{number}-{each}", shell="gevent", timeout=60)
            for each in range(clients)
        ]
        for start in range(0, clients, 100):
            some = self._clients[start : start + 100]
            gevent.joinall([gevent.spawn(client.connect, _CONNECT_SECONDS) for client in some], raise_error=True)
        self._seen: Counter[str] = Counter()
        self._sent: list[int] = []

    def load(self, seconds: float, most: int) -> None:
        """Call and cast for so long, or so often, and say what came of it, and the numbers that were sent."""
        self._until, self._left = time.monotonic() + seconds, most
        workers = [gevent.spawn(self._work) for _ in range(_WORKERS)]
        gevent.joinall(workers, raise_error=True)

    def _work(self) -> None:
        while self._left > 0 and time.monotonic() < self._until:
            self._left -= 1
            client, number = self._random.choice(self._clients), next(self._numbers)
            message = {"method": "work", "args": {"number": number}}
            self._sent.append(number)
            try:
                if self._random.random() < _CASTS:
                    client.cast(None, TOPIC, message)
                    self._seen["casts"] += 1
                    continue
                answer = client.call(None, TOPIC, message)
            except RpcError as error:
                self._seen[f"{type(error).__name__}: {error}"] += 1
            else:
                self._seen["answers" if answer == number else "misrouted"] += 1

    def say(self) -> None:
        """Write a line with all that was seen."""
        sent = [self._sent[0], len(self._sent)] if self._sent else [0, 0]
        print("seen", json.dumps({"sent": sent, **self._seen}))

    def close(self) -> None:
        """Say goodbye for all."""
        gevent.joinall([gevent.spawn(client.close) for client in self._clients], raise_error=True)


def _live(crowd: Crowd) -> None:
    print("ready")
    for line in FileObjectThread(0, "rb"):
        verb, *words = line.decode().split()
        if verb == "end":
            break
        crowd.load(float(words[0]), int(words[1]))
        crowd.say()
    crowd.close()
    print("closed")


def _serve(router: str, path: str) -> None:
    with rpcmq.Service(TOPIC, Starts(path), router=router, concurrency=64, shell="gevent") as service:
        print("ready")
        service.wait()


if __name__ == "__main__":
    if sys.argv[1] == "service":
        _serve(*sys.argv[2:])
    else:
        _live(Crowd(int(sys.argv[2]), int(sys.argv[3]), sys.argv[4].split(",")))
