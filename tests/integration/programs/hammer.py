"""Calls, casts and publishes as fast as it can until it is told to stop, and says what failed.

    hammer.py ROUTER CALLERS [NESTED]

NESTED: topic of a service that asks ``compute`` in its turn.
"""

import sys
from collections import Counter
from typing import Any

import gevent
from gevent.fileobject import FileObjectPosix

import rpcmq
from rpcmq.errors import RpcError

router, callers, *rest = sys.argv[1:]
client = rpcmq.Client(router, timeout=60)
client.connect()
counts: Counter[str] = Counter()
stopping = False


def call(n: int) -> None:
    while not stopping:
        counts["calls"] += 1
        try:
            if rest and n % 4 == 0:
                args = {"topic": "compute", "method": "where", "timeout": 60}
                client.call(None, rest[0], {"method": "ask", "args": args})
            else:
                client.call(None, "compute", {"method": "add", "args": {"a": n}}, mandatory=n % 2 == 0)
        except RpcError as error:
            counts["failed"] += 1
            print("failed", type(error).__name__, error)


def cast() -> None:
    while not stopping:
        client.cast(None, "compute", {"method": "run", "args": {"key": counts["casts"]}})
        counts["casts"] += 1
        gevent.sleep(0.002)


def stream() -> None:
    while not stopping:
        try:
            got = list(client.multicall(None, "compute", {"method": "count_to", "args": {"n": 50}}))
            assert got == list(range(50)), got
            counts["streams"] += 1
        except RpcError as error:
            counts["failed"] += 1
            print("failed stream", type(error).__name__, error)


greenlets: list[Any] = [gevent.spawn(call, n) for n in range(int(callers))]
greenlets += [gevent.spawn(cast), gevent.spawn(stream)]
print("started")
for line in FileObjectPosix(0, "rb"):
    if line.strip() == b"stop":
        break
    print("count", counts["calls"])
stopping = True
gevent.joinall(greenlets, raise_error=True)
print("ended", counts["calls"], counts["failed"], counts["casts"], counts["streams"])
client.close(30)
