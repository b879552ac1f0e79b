"""A program of plain threads in which gevent cannot be imported: each scenario prints what came of it.

plain.py ROUTER SCENARIO
"""

import atexit
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

for name in ("gevent", "greenlet"):
    sys.modules[name] = None  # type: ignore[assignment]

from rpcmq import current_request, threads  # noqa: E402
from rpcmq.core.process.uplink import Uplink  # noqa: E402
from rpcmq.errors import AccessDenied, CallTimeout, Overloaded, RpcError, UsageError  # noqa: E402

URL = sys.argv[1]


def message(method: str, **args: object) -> dict[str, object]:
    return {"method": method, "args": args}


def settled(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end, "not within 30 s"
        time.sleep(0.01)


class Endpoint:
    """Handlers that block as threads may."""

    def __init__(self) -> None:
        self.meeting = threading.Barrier(8)
        self.held = threading.Event()
        self.go_on = threading.Event()
        self.seen: list[Any] = []
        self.cancelled = threading.Event()
        self.made = 0

    def add(self, ctx: Any, a: int, b: int = 0) -> int:
        return a + b

    def note(self, ctx: Any, value: Any) -> None:
        self.seen.append(value)

    def meet(self, ctx: Any) -> int:
        self.meeting.wait(20)
        return threading.get_ident()

    def fail(self, ctx: Any) -> None:
        raise ValueError("x", 7)

    def exit(self, ctx: Any) -> None:
        raise SystemExit(3)

    def count(self, ctx: Any, n: int) -> Iterator[int]:
        for i in range(n):
            self.made = i + 1
            yield i

    def hold(self, ctx: Any) -> str:
        self.held.set()
        self.go_on.wait(30)
        return "held"

    def until_cancelled(self, ctx: Any) -> None:
        request = current_request()
        assert request is not None
        self.held.set()
        settled(lambda: request.cancelled)
        self.cancelled.set()

    def remaining(self, ctx: Any) -> float | None:
        request = current_request()
        assert request is not None
        request.progress("half")
        return request.remaining


def verbs() -> None:
    logging.disable()  # of the methods that raise; it would come between the lines
    endpoint = Endpoint()
    with (
        threads.Service("compute", endpoint, router=URL, host="n", concurrency=8, direct=True) as service,
        threads.Client(URL) as client,
    ):
        print(client.call(None, "compute", message("add", a=1, b=2)))
        print(client.call(None, "compute.n", message("add", a=1), direct=True))
        calls = [threading.Thread(target=client.call, args=(None, "compute", message("meet"))) for _ in range(8)]
        for thread in calls:
            thread.start()
        for thread in calls:
            thread.join()
        print("met", endpoint.meeting.broken)
        for method in ("fail", "exit", "missing"):
            try:
                client.call(None, "compute", message(method))
            except (ValueError, RpcError) as error:
                print(type(error).__name__)
        client.cast(None, "compute", message("note", value=1))
        client.cast(None, "compute", message("note", value=2), confirm=True)
        print(client.fanout_cast(None, "compute", message("note", value=3), confirm=True))
        settled(lambda: sorted(endpoint.seen) == [1, 2, 3])
        print(list(client.multicall(None, "compute", message("count", n=200))) == list(range(200)))
        items = client.multicall(None, "compute", message("count", n=10_000))
        print(next(items), next(items))
        time.sleep(0.3)
        print("back-pressure", endpoint.made < 100)
        items.close()  # type: ignore[attr-defined]
        told: list[object] = []
        left = client.call(None, "compute", message("remaining"), timeout=20, on_progress=told.append)
        print(0 < left <= 20, told)
        events: list[object] = []
        subscription = client.subscribe("a.#", lambda ctx, topic, payload: events.append((topic, payload)))
        print(client.publish(None, "a.b", 1, confirm=True))
        settled(lambda: events == [("a.b", 1)])
        subscription.close()
        # On a machine that stands still a timeout may be over before the method begins.
        for timeout in (0.2, 2.0, 20.0):
            try:
                client.call(None, "compute", message("until_cancelled"), timeout=timeout)
            except CallTimeout:
                if endpoint.held.is_set():
                    break
        print("cancelled", endpoint.cancelled.wait(20))
        print(client.describe("compute")["server"], client.query("summary")["links"])
        assert service.stop(10)
    try:
        client.call(None, "compute", message("add", a=1))
    except UsageError as error:
        print(error)
    print("gevent" in sys.modules and sys.modules["gevent"] is not None)


def with_keys() -> None:
    """CURVE to the router and between peers, a group of the topic, and a key without rights."""
    logging.disable()
    node, web, guest = sys.argv[3:6]
    endpoint, copies = Endpoint(), Endpoint()
    with (
        threads.Client(URL, key_file=node) as own,
        threads.Service("compute", endpoint, client=own, host="n", direct=True),
        threads.Service("compute", copies, client=own, group="audit"),
        threads.Client(URL, key_file=web) as client,
        threads.Client(URL, key_file=guest) as other,
    ):
        print([client.call(None, "compute", message("add", a=n), direct=True) for n in range(5)])
        print(dict(client.process.direct.fallbacks))
        client.cast(None, "compute", message("note", value=1), confirm=True)
        settled(lambda: endpoint.seen == copies.seen == [1])
        for direct in (False, True):
            try:
                other.call(None, "compute", message("add", a=1), direct=direct, timeout=20)
            except AccessDenied:
                print("denied")


def many_threads() -> None:
    """Threads that call, cast and subscribe at once, and end; one client, one connection."""
    endpoint = Endpoint()
    service = threads.Service("compute", endpoint, router=URL, host="n")
    service.start()
    client = threads.Client(URL)
    wrong: list[object] = []

    def work(n: int) -> None:
        for i in range(50):
            if client.call(None, "compute", message("add", a=n, b=i), timeout=60) != n + i:
                wrong.append((n, i))
            client.cast(None, "compute", message("note", value=(n, i)))

    workers = [threading.Thread(target=work, args=(n,)) for n in range(40)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    settled(lambda: len(endpoint.seen) == 2000)
    print(wrong, len(set(endpoint.seen)), client.query("summary")["links"], client.process.connection.lost_wakeups)
    service.stop()
    client.close()


def ended_threads() -> None:
    """Threads that end in the middle of a stream: the service is told, and nothing is left."""
    endpoint = Endpoint()
    with threads.Service("compute", endpoint, router=URL, host="n"), threads.Client(URL) as client:

        def begin() -> None:
            items = client.multicall(None, "compute", message("count", n=1_000_000))
            assert next(items) == 0

        beginning = [threading.Thread(target=begin) for _ in range(8)]
        for thread in beginning:
            thread.start()
        for thread in beginning:
            thread.join()
        settled(lambda: client.query("calls")["calls"] == [])
        print(client.call(None, "compute", message("add", a=1), timeout=20), client.process.calls.open)


def forks() -> None:
    """Parent and child use the client that both have, also while a call of the parent is under way."""
    client = threads.Client(URL)
    print(client.call(None, "compute", message("add", a=1), timeout=20))
    held: list[object] = []
    holding = threading.Thread(target=lambda: held.append(client.call(None, "compute", message("hold"), timeout=60)))
    holding.start()
    settled(lambda: client.query("calls")["calls"] != [])
    identity = client.identity
    pid = os.fork()
    if not pid:
        own = threads.Client(URL)
        print(client.call(None, "compute", message("add", a=2), timeout=20), client.identity != identity)
        print(own.call(None, "compute", message("add", a=3), timeout=20))
        own.close()
        client.close()
        sys.stdout.flush()
        os._exit(0)
    print("child", os.waitpid(pid, 0)[1])
    print(client.call(None, "compute", message("add", a=4), timeout=20), client.identity == identity)
    client.cast(None, "compute", message("release"))
    holding.join(30)
    print(held, client.process.connection.lost_wakeups)


def interrupted() -> None:
    client = threads.Client(URL)
    client.connect()
    print("calling")
    try:
        client.call(None, "compute", message("until_cancelled"), timeout=60)
    except KeyboardInterrupt:
        print("interrupted")
    print(client.call(None, "compute", message("add", a=1), timeout=20))


def interrupted_often() -> None:
    """Signals at any moment of calls and casts: the client goes on."""
    client = threads.Client(URL)
    client.connect()
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    done = interrupts = 0
    while interrupts < 100:
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.0001 + 0.0007 * (interrupts % 10) / 10)
            while True:
                client.call(None, "compute", message("add", a=1), timeout=20)
                client.cast(None, "compute", message("add", a=1))
                done += 1
        except KeyboardInterrupt:
            interrupts += 1
    print(client.call(None, "compute", message("add", a=1), timeout=20))
    client.cast(None, "compute", message("add", a=1), confirm=True)
    # One whose verb was interrupted ends all the same.
    settled(lambda: not client.process.calls.open and not client.process.casts.open)
    print("nothing left")


def computes() -> None:
    client = threads.Client(URL)
    print("computing", client.call(None, "compute", message("add", a=1)), client.identity)
    until = time.monotonic() + 60
    while time.monotonic() < until:
        sum(range(1000))


def ends_with_casts() -> None:
    """The program ends at once: its window is full, and what it sent arrives all the same."""
    client = threads.Client(URL, cast_window=200)
    for n in range(1000):
        client.cast(None, "compute", message("note", value=n))
    client.publish(None, "last", 1)


def ends_with_waiting_threads() -> None:
    """Threads that wait for answers that never come do not keep the program from its end."""
    client = threads.Client(URL)
    client.connect()
    for _ in range(4):
        threading.Thread(
            target=lambda: client.call(None, "compute", message("until_cancelled"), timeout=60), daemon=True
        ).start()
    settled(lambda: len(client.query("calls")["calls"]) == 4)
    print("ends")


def ends_with_direct_links() -> None:
    """Neither end is closed, and the thread of the sockets lives on for a while after those of rpcmq are."""
    atexit.register(time.sleep, 1.5)
    threads.Service("compute", Endpoint(), router=URL, host="n", direct=True).start()
    client = threads.Client(URL)
    print(
        client.call(None, "compute", message("add", a=1), timeout=20, direct=True),
        dict(client.process.direct.fallbacks),
    )


def ends_without_router() -> None:
    """The router is away, and the window full: the end comes, and says what may be lost."""
    client = threads.Client(URL, linger_seconds=0.2)
    client.connect()
    print("connected")
    sys.stdin.readline()
    for n in range(10):
        client.cast(None, "compute", message("note", value=n))


def large_casts() -> None:
    """The window counts large casts before the verb returns: the next one waits, and is refused in time."""
    client = threads.Client(URL, cast_window_bytes=1 << 20)
    client.connect()
    print("connected")
    sys.stdin.readline()
    sent = 0
    try:
        for _ in range(100):
            client.cast(None, "compute", message("note", value=bytes(300_000)), timeout=0.2)
            sent += 1
    except Overloaded as error:
        print(sent, error.details["limit"])
    client.close(0.0)


class Slow:
    """A context that takes its time to be encoded."""

    def to_dict(self) -> dict[str, object]:
        time.sleep(0.001)
        return {}


def many_casting_threads() -> None:
    """Threads that encode at the same time keep to the window together."""
    window, most = 10, 0
    client = threads.Client(URL, cast_window=window)
    client.connect()
    next_key = Uplink.next_key

    def watched(uplink: Uplink) -> bytes:
        nonlocal most
        most = max(most, client.process.casts.open + 1)
        return next_key(uplink)

    Uplink.next_key = watched  # type: ignore[method-assign, assignment]

    def cast() -> None:
        for n in range(50):
            client.cast(Slow(), "compute", message("note", value=n), timeout=30)

    casting = [threading.Thread(target=cast) for _ in range(8)]
    for thread in casting:
        thread.start()
    for thread in casting:
        thread.join()
    settled(lambda: client.statistics()["casts_open"] == 0)
    print("most", most)
    client.close()


def serves() -> None:
    endpoint = Endpoint()
    service = threads.Service("compute", endpoint, router=URL, host="n")
    service.start()
    print("serving")
    service.wait()
    print("stopped")


def calls_through_restarts() -> None:
    client = threads.Client(URL)
    done = 0
    print("calling")
    while True:
        try:
            client.call(None, "compute", message("add", a=1), timeout=5)
            done += 1
            if done % 20 == 0:
                print("done", done)
        except Exception as error:
            print("failed", type(error).__name__)
            time.sleep(0.05)


globals()[sys.argv[2]]()
