"""Uses every verb and prints what came of it: with and without monkey-patching the same.

every_verb.py plain|patched
"""

import sys

if sys.argv[1] == "patched":
    from gevent import monkey

    monkey.patch_all()

import contextlib
import socket
import threading
import time

import gevent

import rpcmq
import rpcmq.testing
from rpcmq import rpc
from rpcmq.errors import RpcError


class Compute:
    def __init__(self) -> None:
        self.seen: list[object] = []

    def add(self, ctx: object, a: int, b: int) -> int:
        return a + b

    def count(self, ctx: object, n: int) -> object:
        yield from range(n)

    def note(self, ctx: object, value: object) -> None:
        self.seen.append(value)

    def fail(self, ctx: object) -> None:
        raise ValueError("x")

    def hold(self, ctx: object) -> None:
        gevent.sleep(30)


def outcome(verb: object, *args: object, **options: object) -> str:
    try:
        return repr(verb(*args, **options))  # type: ignore[operator]
    except (RpcError, ValueError) as error:
        return type(error).__name__


with rpcmq.testing.router() as router:
    compute = Compute()
    service = rpcmq.Service("compute", compute, host="n", router=router.url)
    service.start()
    print(outcome(rpc.call, {"user": "u"}, "compute", {"method": "add", "args": {"a": 1, "b": 2}}))
    print(outcome(rpc.call, None, "compute", {"method": "fail"}))
    print(outcome(rpc.call, None, "compute", {"method": "hold"}, timeout=0.1))
    print(outcome(rpc.call, None, "nobody", {"method": "add"}, mandatory=True))
    print(outcome(rpc.call, None, "nobody", {"method": "add"}, timeout=0.1))
    print(outcome(rpc.call, None, "", {"method": "add"}))
    print(list(rpc.multicall(None, "compute", {"method": "count", "args": {"n": 40}})))
    for n in range(200):
        rpc.cast(None, "compute", {"method": "note", "args": {"value": n}})
    print(outcome(rpc.fanout_cast, None, "compute", {"method": "note", "args": {"value": 200}}, confirm=True))
    rpcmq.testing.eventually(lambda: len(compute.seen) == 201)
    print(compute.seen == list(range(201)))
    events: list[object] = []
    rpc.subscribe("notifications.#", lambda ctx, topic, payload: events.append((topic, payload["payload"])))
    rpc.notify(None, "a.b", 1)
    rpcmq.testing.eventually(lambda: events)
    print(events)
    greenlets = [
        gevent.spawn(rpc.call, None, "compute", {"method": "add", "args": {"a": n, "b": n}}) for n in range(100)
    ]
    gevent.joinall(greenlets)
    print([g.value for g in greenlets] == [2 * n for n in range(100)])
    with contextlib.suppress(gevent.Timeout), gevent.Timeout(0.05):
        rpc.call(None, "compute", {"method": "hold"})
        print("not reached")
    print(rpc.query("summary")["calls_in_flight"] if hasattr(rpc, "query") else router.query("summary")["refused"])
    print(rpc.client().process.connection.lost_wakeups, router.lost_wakeups)
    print(socket.gethostname() != "", threading.active_count() >= 1, time.monotonic() > 0)
    print(service.stop(0.05))
