"""A program that leaves it to rpcmq where its client lives. chooses.py ROUTER KIND

Kinds: "plain", in which gevent cannot be imported; "hub", whose main thread has a gevent hub; "gevent" and "eventlet",
which have patched it; "later" and "eventlet later", which are patched after the first call; "ended", threads of which
end while their greenlets wait.
"""

import os
import sys
import threading
import time
from collections.abc import Callable

os.environ["RPCMQ_ROUTER"], KIND = sys.argv[1:3]
sleep: Callable[[float], object] = time.sleep
if KIND == "plain":
    for name in ("gevent", "greenlet"):
        sys.modules[name] = None  # type: ignore[assignment]
elif KIND == "hub":
    import gevent

    sleep = gevent.sleep
    sleep(0)
elif KIND == "gevent":
    import gevent.monkey

    gevent.monkey.patch_all()
    sleep = time.sleep
elif KIND == "eventlet":
    import eventlet

    eventlet.monkey_patch()
    sleep = time.sleep

import rpcmq  # noqa: E402
from rpcmq import rpc  # noqa: E402
from rpcmq.errors import ConfigError, UsageError  # noqa: E402


class Endpoint:
    def add(self, ctx: object, a: int, b: int) -> int:
        return a + b

    def nap(self, ctx: object) -> None:
        sleep(0.01)

    def see_ticks(self, ctx: object) -> bool:
        end = time.monotonic() + 20
        while len(ticks) < 4 and time.monotonic() < end:
            sleep(0.01)
        return len(ticks) > 3

    def meet(self, ctx: object) -> str:
        met.append(1)
        while len(met) < 3:  # returns only if three run at once
            sleep(0.002)
        return "met"


def home(client: rpcmq.Client) -> str:
    return type(client.home).__name__


def call(method: str, **args: object) -> object:
    return rpc.call(None, "compute", {"method": method, "args": args}, timeout=30)


def calls_of_many_threads() -> None:
    answers: list[object] = []
    callers = [threading.Thread(target=lambda: answers.append(call("meet"))) for _ in range(3)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    print(answers, rpc.client().query("summary")["links"])


def chosen() -> None:
    try:
        service = rpcmq.Service("compute", Endpoint(), host="h")
        print("service", home(service.client))
        service.client.close()
    except ConfigError as error:
        print(error)
    print("client", home(rpc.client()), isinstance(rpc.client(), rpcmq.Client))
    if KIND == "hub":
        # One that runs while the main thread waits for others.
        import gevent

        threads = gevent.get_hub().threadpool
        with rpcmq.Service("compute", Endpoint(), host="h", client=rpc.client()):
            threads.apply(calls_of_many_threads)
        return
    with rpcmq.Service("compute", Endpoint(), host="h", client=rpc.client()):
        print(call("add", a=1, b=2))
        calls_of_many_threads()


def patched_later() -> None:
    own = rpcmq.Client()
    with rpcmq.threads.Service("compute", Endpoint(), host="h"):
        print(own.call(None, "compute", {"method": "add", "args": {"a": 1, "b": 2}}), call("add", a=1, b=2))
        rpc.cast(None, "compute", {"method": "nap"})
        import gevent.monkey

        before = home(rpc.client())
        gevent.monkey.patch_all()
        try:
            own.call(None, "compute", {"method": "add", "args": {"a": 1, "b": 2}})
        except UsageError as error:
            print(error)
        print(before, home(rpc.client()), call("add", a=1, b=3))

        def tick() -> None:
            while True:
                ticks.append(1)
                gevent.sleep(0.001)

        ticking = gevent.spawn(tick)
        print(call("see_ticks"))
        ticking.kill()


def patched_by_eventlet_later() -> None:
    """The default client is a new one, in whose thread green threads can wait beside one another."""
    rpc.call(None, "compute", {"method": "add", "args": {"a": 1}}, 20)
    before = rpc.client()
    import eventlet

    eventlet.monkey_patch()
    calls = [eventlet.spawn(rpc.call, None, "compute", {"method": "add", "args": {"a": n}}, 20) for n in range(3)]
    print([call.wait() for call in calls])
    before.close()
    print(home(rpc.client()), rpc.client() is not before, before.closed)


def ended_threads() -> None:
    """Threads with a gevent hub end while greenlets of theirs wait: their calls end when they are due."""
    import gevent

    def leave() -> None:
        for _ in range(3):
            gevent.spawn(rpc.call, None, "compute", {"method": "until_cancelled"}, 1)
        gevent.sleep(0.05)

    print("client", home(rpc.client()))
    threads = [threading.Thread(target=leave) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    end = time.monotonic() + 20
    while rpc.client().process.calls.open or rpc.client().query("summary")["calls_in_flight"]:
        assert time.monotonic() < end
        time.sleep(0.01)
    print("ended", rpc.client().process.connection.lost_wakeups)


met: list[int] = []
ticks: list[int] = []
{"later": patched_later, "eventlet later": patched_by_eventlet_later, "ended": ended_threads}.get(KIND, chosen)()
