"""One of several routers says what it likes: processes go on with the others."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import gevent
import pytest
import zmq

import rpcmq.aio
from rpcmq.client import Client, Service
from rpcmq.errors import CallError
from rpcmq.testing import InProcessRouter, eventually
from rpcmq.transport.batches import BatchSocket, new_context
from rpcmq.wire import KEY, KIND_AT, Address, Kind, control, pack, split
from tests import from_threads
from tests.from_threads import each_blocking_shell
from tests.integration.cluster import message

client_shell = each_blocking_shell

COMPUTE = Address("compute", "node-7").encode()
Answer = Callable[["HostileRouter", bytes, bytes], bool]


class HostileRouter:
    """Welcomes everybody, takes every registration, and does to each message what ``answer`` does.

    Attributes:
        welcome: members of its WELCOME.
        answer: called with this, route and message; whether it has dealt with that.
        registered: route and tag of each consumer, in the order in which they came.
        counts: messages that came, by kind.
    """

    def __init__(self, context: zmq.Context[Any]) -> None:
        self._socket = BatchSocket(context, zmq.ROUTER, max_bytes=1 << 26)
        self._socket.socket.bind("tcp://127.0.0.1:0")
        self.url = self._socket.socket.last_endpoint.decode()
        self.welcome: dict[str, Any] = {}
        self.answer: Answer = lambda router, route, message: False
        self.registered: list[tuple[bytes, int]] = []
        self.counts: Counter[int] = Counter()
        self._greenlet = gevent.spawn(self._run)

    def say(self, route: bytes, *messages: bytes) -> None:
        self._socket.send(route, messages)

    def close(self) -> None:
        self._greenlet.kill()
        self._socket.close()

    def _run(self) -> None:
        while True:
            if not self._socket.readable():
                gevent.sleep(0.002)
                continue
            route, batch, payloads = self._socket.receive()
            for received in split(batch, payloads):
                self.counts[received[KIND_AT]] += 1
                if not self.answer(self, route, received):
                    self._answer(route, received)

    def _answer(self, route: bytes, message: bytes) -> None:
        kind, tag = message[KIND_AT], message[11]
        if kind == Kind.HELLO:
            body = {"router_id": 1, "boot": 5, "handle": 1001, "token": "t", "received": 0, "resumed": False}
            self.say(route, control(Kind.WELCOME, body | self.welcome))
        elif kind == Kind.HEARTBEAT:
            self.say(route, control(Kind.HEARTBEAT))
        elif kind in (Kind.REGISTER, Kind.UNREGISTER):
            if kind == Kind.REGISTER:
                self.registered.append((route, tag))
            self.say(route, control(Kind.REGISTERED, {"topic": ""}, key=message[KEY], consumer=tag))


@pytest.fixture
def hostile() -> Iterator[HostileRouter]:
    with ExitStack() as stack:
        context = new_context()
        stack.callback(context.destroy, linger=0)
        router = HostileRouter(context)
        stack.callback(router.close)
        yield router


class Work:
    def nap(self, ctx: Any) -> str:
        gevent.sleep(0.05)
        return "napped"

    def quick(self, ctx: Any) -> str:
        return "done"


class AsyncWork:
    async def nap(self, ctx: Any) -> str:
        await asyncio.sleep(0.05)
        return "napped"

    async def quick(self, ctx: Any) -> str:
        return "done"


def deliver_much(hostile: HostileRouter) -> None:
    """Deliver a thousand times the credit, of work that takes seconds."""
    eventually(lambda: hostile.registered)
    ((route, tag),) = hostile.registered
    fields: dict[str, Any] = {"format": 1, "address": COMPUTE, "method": b"nap", "consumer": tag}
    for batch in range(40):
        keys = [bytes(12) + (batch * 100 + n + 1).to_bytes(8) for n in range(100)]
        hostile.say(route, *(pack(Kind.REQUEST, b'{"context":null,"args":{}}', key=key, **fields) for key in keys))
    eventually(lambda: hostile.counts[Kind.REPLY])


def check_others_are_served(hostile: HostileRouter, router: InProcessRouter) -> None:
    with Client(router.url, shell="gevent") as caller:
        for _ in range(5):
            assert caller.call(None, "compute", message("quick"), 20) == "done"
    # The honest router's calls did not wait until all that work was done, and not all of it was taken.
    assert hostile.counts[Kind.REPLY] < 1000


def test_a_router_that_delivers_beyond_the_credit_keeps_no_other_from_its_share(
    hostile: HostileRouter, router: InProcessRouter, client_shell: str
) -> None:
    given: dict[str, Any] = {"router": f"{hostile.url},{router.url}", "concurrency": 4, "shell": client_shell}
    service = Service("compute", Work(), host="node-7", **given)
    service.start()
    try:
        deliver_much(hostile)
        check_others_are_served(hostile, router)
        process = next(each for each in service.client.consumer_links().processes() if each.uplink.discarded)

        def is_within() -> bool:
            # The bound lets in as many more as were done before the last of them came.
            (reason, count), *_ = process.uplink.discarded.items()
            return reason == "credit" and 4000 - 1024 - hostile.counts[Kind.REPLY] <= count <= 4000 - 1024

        eventually(is_within)
    finally:
        service.stop(0.0)


def test_nor_does_it_in_an_event_loop(hostile: HostileRouter, router: InProcessRouter) -> None:
    ready, done = from_threads.Event(), from_threads.Event()

    async def main() -> None:
        urls = f"{hostile.url},{router.url}"
        service = rpcmq.aio.Service("compute", AsyncWork(), host="node-7", router=urls, concurrency=4)
        await service.start()
        ready.set()
        while not done.is_set():
            await asyncio.sleep(0.01)
        await service.stop(0.0)

    runs = gevent.spawn(from_threads.in_thread, asyncio.run, main())
    try:
        assert ready.wait()
        deliver_much(hostile)
        check_others_are_served(hostile, router)
    finally:
        done.set()
        runs.get(timeout=30)


@pytest.mark.parametrize("welcome", [{"lost_seconds": 3e6}, {"lost_seconds": 1e300}, {"max_message_bytes": 10**30}])
def test_a_welcome_with_impossible_values_leaves_the_way_to_the_next_router_open(
    hostile: HostileRouter, router: InProcessRouter, welcome: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rpcmq.transport.connection._first_router", lambda: 0)
    hostile.welcome = welcome
    with (
        Service("compute", Work(), host="node-7", router=router.url, shell="gevent"),
        Client([hostile.url, router.url], shell="gevent", reconnect_max_seconds=0.1) as caller,
    ):
        caller.connect(20)
        assert hostile.counts[Kind.HELLO]
        hostile.close()
        connection = caller.process.connection
        eventually(lambda: connection.url == router.url and connection.connected)
        assert caller.call(None, "compute", message("quick"), 20) == "done"


def refuse_formats(hostile: HostileRouter, route: bytes, message: bytes) -> bool:
    if message[KIND_AT] != Kind.REQUEST:
        return False
    body = {"outcome": 7, "text": "another format", "details": {"accepts": 1 << 2}}
    hostile.say(route, control(Kind.ERROR, body, key=message[KEY]))
    return True


def test_a_stream_that_is_refused_for_its_format_again_and_again_ends(
    hostile: HostileRouter, client_shell: str
) -> None:
    hostile.answer = refuse_formats
    with (
        Client(hostile.url, shell=client_shell) as client,  # type: ignore[arg-type]
        pytest.raises(CallError, match="another format"),
    ):
        list(client.multicall(None, "compute", message("count"), 20))
    assert hostile.counts[Kind.REQUEST] == 2


def test_so_does_one_of_an_event_loop(hostile: HostileRouter) -> None:
    hostile.answer = refuse_formats

    async def main() -> None:
        async with rpcmq.aio.Client(hostile.url) as client, asyncio.timeout(20):
            with pytest.raises(CallError, match="another format"):
                async for _ in client.multicall(None, "compute", message("count"), 20):
                    pass

    from_threads.in_thread(asyncio.run, main())
    assert hostile.counts[Kind.REQUEST] == 2
