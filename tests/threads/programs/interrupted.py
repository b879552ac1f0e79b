"""A program of plain threads in whose main thread a signal's handler raises, wherever Python runs such handlers.

interrupted.py ROUTER EVERY AGAIN SCENARIO...: a scenario is run for each step at which a handler can raise, or for one
of so many of them. A second signal comes AGAIN steps later; -1: none does.
"""

import gc
import logging
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import rpcmq
from rpcmq import threads
from rpcmq.errors import UsageError
from tests.core.interrupts import is_interrupted

URL = sys.argv[1]
EVERY, AGAIN = int(sys.argv[2]), int(sys.argv[3])
ROOT = Path(rpcmq.__file__).parent
#: Nothing is open yet while settings are read and payloads are encoded.
FILES = {path.name for folder in ("client", "core", "threads", "transport") for path in (ROOT / folder).rglob("*.py")}


class Interrupt(Exception):
    """As a handler of SIGALRM may raise it."""


class Endpoint:
    def add(self, ctx: Any, a: int) -> int:
        return a


def message(method: str, **args: object) -> dict[str, object]:
    return {"method": method, "args": args}


def settled_files(most: int, label: str) -> None:
    settled(lambda: open_files() <= most, label)


def settled(condition: Callable[[], bool], label: str) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end, f"{label}: not within 60 s"
        time.sleep(0.002)


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def each_step(operation: Callable[[], object]) -> Iterator[tuple[int, bool]]:
    """Run ``operation``, interrupted at one step after the other; yields the number and whether it was."""
    step, interrupted = 0, True
    while interrupted:
        interrupted = is_interrupted(
            step, operation, FILES, Interrupt, each_instruction=False, again=AGAIN if AGAIN >= 0 else None
        )
        yield step, interrupted
        step += EVERY
    assert step > EVERY


def verb(latest: list[Any], name: str) -> Callable[[], object]:
    """That of the object that is in ``latest`` when it is used."""

    def use() -> object:
        return getattr(latest[0], name)()

    return use


def is_usable(client: rpcmq.Client) -> bool:
    return bool(client.call(None, "compute", message("add", a=7), timeout=20) == 7)


def subscribers(client: threads.Client) -> int:
    return client.publish(None, "a.b", 1, confirm=True)


def made() -> None:
    """A client whose making was interrupted is closed."""
    first = threads.Client(URL)
    first.connect()
    before, links = open_files(), first.query("summary")["links"]
    for step, _ in each_step(lambda: threads.Client(URL)):
        gc.collect()
        settled_files(before, f"step {step}")
    assert first.query("summary")["links"] == links


def connected() -> None:
    clients: list[threads.Client] = []
    before = -1

    def connect() -> None:
        clients[0].connect(20)

    clients.append(threads.Client(URL))
    for step, _ in each_step(connect):
        assert is_usable(clients[0]), step
        clients[0].close()
        if before == -1:
            before = open_files()
        settled_files(before, f"step {step}")
        clients[0] = threads.Client(URL)


def subscribed() -> None:
    """A subscription whose verb was interrupted gets no events."""
    client, watching = threads.Client(URL), threads.Client(URL)
    subscriptions: list[rpcmq.Subscription] = []

    def subscribe() -> None:
        subscriptions.append(client.subscribe("a.#", lambda ctx, topic, payload: None))

    assert subscribers(watching) == 0
    for step, interrupted in each_step(subscribe):
        if subscriptions:
            assert not interrupted, step
            assert subscribers(watching) == 1, step
            subscriptions.pop().close()
        settled(lambda: subscribers(watching) == 0, f"step {step}")
        if step % 10 == 0:
            # Also the first one of a client.
            client.close()
            client = threads.Client(URL)
    assert is_usable(client)


def unsubscribed() -> None:
    client = threads.Client(URL)
    client.connect()
    subscriptions = [client.subscribe("a.#", lambda ctx, topic, payload: None)]
    for step, _ in each_step(verb(subscriptions, "close")):
        subscriptions[0].close()
        settled(lambda: subscribers(client) == 0, f"step {step}")
        assert is_usable(client)
        subscriptions[0] = client.subscribe("a.#", lambda ctx, topic, payload: None)


def closed() -> None:
    """A client whose closing was interrupted is closed all the same, and has nothing left open."""
    before = -1
    clients = [used()]
    for step, interrupted in each_step(verb(clients, "close")):
        client = clients[0]
        if before == -1:
            client.close()
            used_files()
            before = open_files()
        if interrupted and not client.closed:
            client.close()  # it was not begun
        settled_files(before, f"step {step}")
        client.close()
        clients[0] = used()


def used() -> threads.Client:
    """A client with a link of each kind."""
    client = threads.Client(URL)
    client.connect(20)
    client.subscribe("a.#", lambda ctx, topic, payload: None)
    client.cast(None, "compute", message("add", a=1))
    return client


def used_files() -> None:
    """Wait until no more of what was closed goes."""
    least, until = open_files(), time.monotonic() + 0.2
    while time.monotonic() < until:
        time.sleep(0.01)
        if (now := open_files()) < least:
            least, until = now, time.monotonic() + 0.2


def started() -> None:
    """A service whose start was interrupted can be started again, and stopped."""
    before = -1
    services = [threads.Service("other", Endpoint(), router=URL, host="n")]
    for step, interrupted in each_step(verb(services, "start")):
        service = services[0]
        if interrupted:
            # What is being undone may not be over: a second signal has ended the wait for it.
            settled(lambda service=service: starts(service), f"step {step}")  # type: ignore[misc]
        assert is_usable(service.client), step
        assert service.stop(20), step
        if before == -1:
            used_files()
            before = open_files()
        settled_files(before, f"step {step}")
        services[0] = threads.Service("other", Endpoint(), router=URL, host="n")


def starts(service: threads.Service) -> bool:
    try:
        service.start()
    except UsageError:
        return False
    return True


def stopped() -> None:
    before = -1
    services = [threads.Service("other", Endpoint(), router=URL, host="n")]
    services[0].start()
    for step, _ in each_step(verb(services, "stop")):
        assert services[0].stop(20), step
        settled(lambda: services[0].client.closed, f"step {step}")
        if before == -1:
            used_files()
            before = open_files()
        settled_files(before, f"step {step}")
        services[0] = threads.Service("other", Endpoint(), router=URL, host="n")
        services[0].start()
    services[0].stop()


def called(**options: Any) -> None:
    """A call that was interrupted does not stay open until its timeout."""
    client = threads.Client(URL)
    assert is_usable(client)
    told: list[object] = []

    def call() -> None:
        told.clear()
        assert client.call(None, "compute", message("report", times=2), timeout=600, **options) == 2

    for step, interrupted in each_step(call):
        settled(lambda: not client.process.calls.open, f"step {step}")
        assert interrupted or told in ([], [0, 1]), told
        assert is_usable(client), step


def reported() -> None:
    seen: list[object] = []
    called(on_progress=seen.append)
    assert {0, 1} == set(seen)


logging.disable()  # of what is interrupted
for scenario in sys.argv[4:]:
    globals()[scenario]()
    print(scenario, flush=True)
