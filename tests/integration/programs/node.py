"""A service that counts what it is asked to do.

node.py ROUTER HOST [CONCURRENCY [ROUTER_OF_NESTED_CALLS]]
"""

import sys
import time
from collections import Counter

import gevent

import rpcmq
from rpcmq.errors import RpcError

router, host, *rest = sys.argv[1:]


class Node:
    def __init__(self) -> None:
        self.runs: Counter[object] = Counter()
        self.order: list[object] = []

    def add(self, ctx: object, a: int, b: int = 0) -> int:
        return a + b

    def where(self, ctx: object) -> str:
        return host

    def run(self, ctx: object, key: object, seconds: float = 0.0) -> object:
        """Counts the run of ``key``; takes so long."""
        self.runs[key] += 1
        self.order.append(key)
        if seconds:
            gevent.sleep(seconds)
        return key

    def wait(self, ctx: object) -> None:
        gevent.sleep(60)

    def hog(self, ctx: object, seconds: float) -> str:
        """Lets nobody else of this process run for so long."""
        time.sleep(seconds)
        return host

    def counts(self, ctx: object) -> dict[object, int]:
        return dict(self.runs)

    def ordered(self, ctx: object) -> list[object]:
        return self.order

    def count_to(self, ctx: object, n: int) -> object:
        yield from range(n)

    def ask(self, ctx: object, topic: str, method: str, timeout: float) -> object:
        return service.client.call(ctx, topic, {"method": method, "args": {}}, timeout)

    def health(self, ctx: object) -> dict[str, object]:
        connection = service.client.process.connection
        return {"lost_wakeups": connection.lost_wakeups, "reconnects": connection.reconnects}


concurrency = int(rest[0]) if rest else 64
service = rpcmq.Service("compute", Node(), host=host, router=router, identity=host, concurrency=concurrency)
try:
    service.start()
except RpcError as error:
    sys.exit(f"{type(error).__name__}: {error}")
print("serving")
service.wait()
print("stopped")
