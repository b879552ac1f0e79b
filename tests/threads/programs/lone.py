"""Programs of plain threads in which one call at a time is waited for: each scenario prints what came of it.

lone.py ROUTER SCENARIO
"""

import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from rpcmq import threads
from rpcmq.client.thread_process import ThreadProcess
from rpcmq.core.process.call import Call
from rpcmq.errors import CallTimeout, LinkLost, UsageError
from rpcmq.transport.thread_loop import ThreadLoop
from rpcmq.transport.wake_loop import WakeLoop

URL = sys.argv[1]


def message(method: str, **args: object) -> dict[str, object]:
    return {"method": method, "args": args}


def add(client: threads.Client, n: int) -> int:
    result: int = client.call(None, "compute", message("add", a=n), timeout=20)
    return result


def is_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


def settled(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end, "not within 30 s"
        time.sleep(0.01)


def waits_at_the_socket(client: threads.Client) -> bool:
    process: Any = client.process
    return not process._lone_caller.is_free


def waiting_alone(client: threads.Client, ended: list[Any]) -> threading.Thread:
    """A thread that waits, at the socket, for an answer that does not come by itself."""

    def call() -> None:
        try:
            ended.append(client.call(None, "compute", message("wait_here"), timeout=60))
        except Exception as error:
            ended.append(type(error).__name__)

    thread = threading.Thread(target=call)
    thread.start()
    settled(lambda: waits_at_the_socket(client))
    return thread


def alone() -> None:
    """The loop's thread has nothing to do for a call that is alone."""
    client = threads.Client(URL)
    assert add(client, 0) == 0
    rings, ring = [0], ThreadLoop.ring

    def counted(self: ThreadLoop) -> None:
        rings[0] += 1
        ring(self)

    ThreadLoop.ring = counted  # type: ignore[method-assign]
    print([add(client, n) for n in range(200)] == list(range(200)), rings[0] < 20)


def beside_one_another() -> None:
    """Others call while one waits at the socket, which is then the loop's again."""
    client, ended = threads.Client(URL), list[Any]()
    add(client, 0)
    thread = waiting_alone(client, ended)
    print([add(client, n) for n in range(50)] == list(range(50)), ended)
    client.call(None, "compute", message("release"))
    thread.join(30)
    print(ended, add(client, 1), waits_at_the_socket(client), client.process.connection.lost_wakeups)


def timed_out() -> None:
    client = threads.Client(URL)
    add(client, 0)
    try:
        client.call(None, "compute", message("wait_here"), timeout=0.3)
    except CallTimeout:
        print("timeout", add(client, 1))


def closed() -> None:
    client, ended = threads.Client(URL), list[Any]()
    add(client, 0)
    thread = waiting_alone(client, ended)
    client.close()
    thread.join(30)
    print(ended == [LinkLost.__name__])


def closed_on_the_way() -> None:
    """Another thread closes the client after a verb has found it open."""
    for verb in ("call", "cast"):
        client = threads.Client(URL)
        add(client, 0)

        class Context:
            def to_dict(self, client: threads.Client = client) -> dict[str, object]:
                closing = threading.Thread(target=client.close)
                closing.start()
                closing.join(30)
                return {}

        over = threading.Event()
        beside = threading.Thread(target=over.wait)
        beside.start()
        try:
            getattr(client, verb)(Context(), "compute", message("add", a=1))
        except (LinkLost, UsageError) as error:
            print(error)
        print("left over:", len(client.process._posted))  # type: ignore[attr-defined]
        over.set()
        beside.join(30)


def forked() -> None:
    """The child of a fork leaves the wait of its parent's thread whole."""
    client, ended = threads.Client(URL), list[Any]()
    add(client, 0)
    thread = waiting_alone(client, ended)
    process = client.process
    child = os.fork()
    if not child:
        process.close()
        print("child", add(client, 2), flush=True)
        client.call(None, "compute", message("release"))
        client.close()
        os._exit(0)
    os.waitpid(child, 0)
    thread.join(30)
    print(ended, add(client, 3))


def interrupted() -> None:
    client = threads.Client(URL)
    add(client, 0)
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    try:
        client.call(None, "compute", message("wait_here"), timeout=60)
    except KeyboardInterrupt:
        settled(lambda: not client.process.calls.open)
        print("cancelled", add(client, 1))


def interrupted_often() -> None:
    """Signals at any moment of calls that are alone: the client goes on."""
    client = threads.Client(URL)
    add(client, 0)
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    interrupts = 0
    while interrupts < 200:
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.0001 + 0.0007 * (interrupts % 10) / 10)
            while True:
                add(client, 1)
        except KeyboardInterrupt:
            interrupts += 1
    signal.signal(signal.SIGALRM, signal.SIG_IGN)
    print(add(client, 1))
    # One whose verb was interrupted ends all the same.
    settled(lambda: not client.process.calls.open)
    print("nothing left")


def left_behind() -> None:
    """A thread that could not leave its place, because signals interrupted it there: the loop takes it back."""
    client = threads.Client(URL)
    add(client, 0)
    process: Any = client.process
    lone = process._lone_caller

    def stay() -> None:
        lone._call = Call("nobody's", 0, 60.0)
        lone._loop.mute(lone._fd)

    client.home.run(stay)
    settled(lambda: not waits_at_the_socket(client))
    print("taken back", add(client, 1))


def by_turns() -> None:
    """Threads whose calls are alone now and then take the place from one that has not quite left it."""
    client = threads.Client(URL)
    random.seed(7)

    def call(n: int) -> int:
        time.sleep(random.random() * 0.003)
        return add(client, n)

    numbers = range(3000)
    with ThreadPoolExecutor(4) as pool:
        print(list(pool.map(call, numbers)) == list(numbers))


def interrupted_at_work() -> None:
    """A signal that comes while the main thread sends and receives is handled when that is done."""
    client, done = threads.Client(URL), list[str]()
    add(client, 0)
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    for name in ("flush", "_receive"):
        work = getattr(WakeLoop, name)

        def at_work(self: WakeLoop, *args: Any, work: Callable[..., Any] = work, name: str = name) -> Any:
            if is_main_thread():
                signal.raise_signal(signal.SIGALRM)
            result = work(self, *args)
            if is_main_thread():
                done.append(name)
            return result

        setattr(WakeLoop, name, at_work)
        process: Any = client.process
        process.connection.flush = process.connection._loop.flush
        try:
            # Not each time is it the main thread that receives.
            for _ in range(100):
                add(client, 1)
        except KeyboardInterrupt:
            print(done[:1] == [name])
        setattr(WakeLoop, name, work)
        done.clear()
        settled(lambda: not client.process.calls.open)
    print(add(client, 1))


def main_thread_among_others() -> None:
    """Where signals could go to another thread, the main one hands over whatever it wants done."""
    client, in_main = threads.Client(URL), [0]
    add(client, 0)
    do_posted = ThreadProcess.do_posted

    def counted(self: ThreadProcess) -> None:
        in_main[0] += is_main_thread()
        do_posted(self)

    ThreadProcess.do_posted = counted  # type: ignore[method-assign]
    over = threading.Event()
    thread = threading.Thread(target=over.wait)
    thread.start()
    for n in range(20):
        add(client, n)
        client.cast(None, "compute", message("add", a=n))
        client.cast(None, "compute", message("add", a=n), confirm=True)
        client.multicall(None, "compute", message("count", n=3)).close()  # type: ignore[attr-defined]
    print(in_main[0])
    over.set()
    thread.join()


globals()[sys.argv[2]]()
