"""A program that knows nothing of gevent: each scenario prints what came of it.

without_gevent.py ROUTER SCENARIO
"""

import asyncio
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import rpcmq
from rpcmq import rpc

os.environ["RPCMQ_ROUTER"] = sys.argv[1]


def add(a: int, b: int = 0, **options: object) -> object:
    return rpc.call(None, "compute", {"method": "add", "args": {"a": a, "b": b}}, **options)  # type: ignore[arg-type]


def note(value: object) -> None:
    rpc.cast(None, "compute", {"method": "note", "args": {"value": value}})


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def casts() -> None:
    add(1)
    for n in range(20):
        note(n)
    rpc.publish(None, "a.b", "event")
    rpc.notify(None, "c.d", "notified")
    print("sent")
    time.sleep(60)  # to be killed in this


def computes() -> None:
    add(1)
    print("computing", rpc.client().identity)
    sys.setswitchinterval(0.1)  # as a C extension that seldom lets go of the interpreter's lock
    until = time.monotonic() + 60
    while time.monotonic() < until:
        sum(range(1000))


def threads() -> None:
    with ThreadPoolExecutor(64) as pool:
        print(list(pool.map(add, range(640))) == list(range(640)))
        for n in range(64):
            pool.submit(note, n)
    print(len([thread for thread in threading.enumerate() if thread is not threading.main_thread()]) <= 1)
    print(rpc.client().query("summary")["links"])


def ended_threads() -> None:
    def one() -> None:
        client = rpcmq.Client()
        assert client.call(None, "compute", {"method": "add", "args": {"a": 1}}) == 1

    def many(count: int) -> None:
        for _ in range(count // 20):
            batch = [threading.Thread(target=one) for _ in range(20)]
            for thread in batch:
                thread.start()
            for thread in batch:
                thread.join()

    many(20)
    observer = rpcmq.Client()
    settled(lambda: observer.query("summary")["links"] == 2)
    before = descriptors()
    many(200)
    settled(lambda: observer.query("summary")["links"] == 2 and descriptors() <= before)
    print("nothing left")


def settled(predicate: Callable[[], object]) -> None:
    deadline = time.monotonic() + 20
    while not predicate():
        assert time.monotonic() < deadline, (descriptors(), rpc.client().query("summary"))
        time.sleep(0.01)


def verbs() -> None:
    print(list(rpc.multicall(None, "compute", {"method": "count", "args": {"n": 40}})) == list(range(40)))
    here = threading.current_thread()
    seen: list[object] = []
    rpc.call(
        None,
        "compute",
        {"method": "report", "args": {"n": 3}},
        on_progress=lambda value: seen.append((value, threading.current_thread() is here)),
    )
    print(seen)
    blocked = threading.Event()
    events: list[object] = []

    def slow(ctx: object, topic: str, payload: object) -> None:
        blocked.wait(20)  # blocks its thread, and nothing else
        events.append((topic, payload, add(payload)))  # type: ignore[arg-type]

    subscription = rpc.subscribe("slow.#", slow)
    for n in range(3):
        rpc.publish(None, "slow.a", n, confirm=True)
    print(add(1), events)
    blocked.set()
    settled(lambda: len(events) == 3)
    print(events)
    subscription.close()
    try:
        rpc.call(None, "compute", {"method": "fail"})
    except ValueError as error:
        print(type(error).__name__, error.args)
    print(type(outcome(lambda: add(1, timeout=0.0))).__name__)
    closed = rpc.client()
    closed.close()
    print(outcome(lambda: closed.call(None, "compute", {"method": "add", "args": {"a": 1}})))
    print(add(2))


def outcome(function: Callable[[], object]) -> object:
    try:
        return function()
    except Exception as error:
        return error


def interrupted() -> None:
    print("calling")
    try:
        rpc.call(None, "compute", {"method": "hold"}, timeout=60)
    except KeyboardInterrupt:
        print("interrupted")
    print(add(1))


def loop() -> None:
    async def main() -> None:
        print(await asyncio.gather(*(asyncio.to_thread(add, n) for n in range(5))))
        note("from the loop")
        print(add(7))

    asyncio.run(main())


def service() -> None:
    class Blocking:
        def __init__(self) -> None:
            self.meeting = threading.Barrier(4, timeout=20)

        def meet(self, ctx: object) -> str:
            self.meeting.wait()  # returns only if four run at once
            return "met"

        def nested(self, ctx: object) -> object:
            request = rpcmq.current_request()
            assert request is not None
            request.progress("half")
            return add(1, 2), request.remaining is not None

        def items(self, ctx: object, n: int) -> object:
            for each in range(n):
                time.sleep(0.001)
                yield each

        def leave(self, ctx: object) -> None:
            sys.exit(3)

    # A client that lives in a plain thread; its service's handlers are threads.
    with rpcmq.Client() as client:
        server = rpcmq.Service("blocking", Blocking(), host="n", client=client)
        server.start()
        with ThreadPoolExecutor(4) as pool:
            meet = [pool.submit(rpc.call, None, "blocking", {"method": "meet"}, 20) for _ in range(4)]
            print([each.result() for each in meet])
        seen: list[object] = []
        print(rpc.call(None, "blocking", {"method": "nested"}, 20, on_progress=seen.append), seen)
        print(list(rpc.multicall(None, "blocking", {"method": "items", "args": {"n": 30}})) == list(range(30)))
        print(type(outcome(lambda: rpc.call(None, "blocking", {"method": "leave"}))).__name__)
        print("serving")
        server.wait()
    print("stopped")


def gevent_later() -> None:
    print(add(1))
    import gevent

    # Calls wait in the hub of this thread from now on, and do not hold each other up.
    held = [gevent.spawn(rpc.call, None, "compute", {"method": "hold"}, 30) for _ in range(3)]
    gevent.sleep(0.05)
    print(add(2))
    with rpcmq.Service("own", Own(), host="n"):
        print(rpc.call(None, "own", {"method": "ping"}, 10))
    rpc.call(None, "compute", {"method": "release"})
    gevent.joinall(held, timeout=10)
    print([greenlet.value for greenlet in held])


class Own:
    def ping(self, ctx: object) -> str:
        return "pong"


def in_child(function: Callable[[], object]) -> int:
    """The exit code of a forked child that runs ``function``."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            function()
            rpc.client().close()
            code = 0
        except BaseException:
            traceback.print_exc(file=sys.stdout)
        finally:
            sys.stdout.flush()
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def calls_and_casts() -> None:
    assert [add(n) for n in range(20)] == list(range(20))
    note("child")


def forks() -> None:
    print(add(1))
    for _ in range(3):
        print(in_child(calls_and_casts), add(2))


class Here:
    def here(self, ctx: object) -> object:
        return add(3)


def forks_after_a_service() -> None:
    """The hub of the service's thread is another than that of the client, and gone with the thread."""

    def serve() -> None:
        with rpcmq.Service("here", Here(), host="one"):
            print(rpc.call(None, "here", {"method": "here"}))

    print(add(1))
    own = rpcmq.Client()
    print(own.call(None, "compute", {"method": "add", "args": {"a": 4}}))
    thread = threading.Thread(target=serve)
    thread.start()
    thread.join()
    later = rpcmq.Client()

    def both() -> None:
        calls_and_casts()
        for client in (own, later):
            assert client.call(None, "compute", {"method": "add", "args": {"a": 5}}) == 5
            client.close()

    print(in_child(both), add(2))


def forks_beside_a_service() -> None:
    """The thread whose hub the service lives in is not there in the child."""
    started = threading.Event()

    def serve() -> None:
        with rpcmq.Service("here", Here(), host="one") as service:
            print(add(1))  # the client of the process lives in this thread's hub
            started.set()
            service.wait()

    threading.Thread(target=serve, daemon=True).start()
    started.wait(20)
    print(in_child(calls_and_casts), add(2), rpc.call(None, "here", {"method": "here"}))
    print(rpc.client().process.connection.lost_wakeups)


_kept: list[object] = []


class _SlowToGo:
    def __del__(self, sleep: Callable[[float], None] = time.sleep) -> None:
        sleep(1.5)


def ends_slowly_beside_a_service() -> None:
    """The hub of the service's thread would wake up several times while the interpreter is finalized."""
    started = threading.Event()

    def serve() -> None:
        with rpcmq.Service("here", Here(), host="one") as service:
            print(add(1))
            started.set()
            service.wait()

    threading.Thread(target=serve, daemon=True).start()
    started.wait(20)
    print(rpc.call(None, "here", {"method": "here"}))
    _kept.append(_SlowToGo())


globals()[sys.argv[2]]()
