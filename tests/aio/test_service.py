"""``rpcmq.aio.Service``: async methods and generators in the event loop, plain ones beside it."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from contextvars import ContextVar
from typing import Any

import pytest

from rpcmq import aio, current_request
from rpcmq.errors import CallTimeout, RemoteError, UsageError
from rpcmq.testing import eventually
from tests.aio.limits import time_out_when
from tests.client.endpoints import message

setting: ContextVar[str] = ContextVar("setting", default="unset")


class Endpoint:
    def __init__(self) -> None:
        self.made = 0
        self.ended: list[str] = []
        self.meeting = asyncio.Barrier(8)
        self.client: aio.Client | None = None
        self.seen: list[Any] = []
        self.begun = 0

    async def add(self, ctx: Any, a: int, b: int = 0) -> int:
        return a + b

    async def meet(self, ctx: Any) -> str:
        await self.meeting.wait()
        return threading.current_thread().name

    def plain(self, ctx: Any) -> tuple[str, str]:
        time.sleep(0.02)
        return threading.current_thread().name, setting.get()

    async def fail(self, ctx: Any) -> None:
        raise ValueError("x", 7)

    async def exit(self, ctx: Any) -> None:
        raise SystemExit(3)

    async def count(self, ctx: Any, n: int) -> AsyncIterator[int]:
        try:
            for number in range(n):
                self.made = number + 1
                yield number
        finally:
            self.ended.append("count")

    def plain_count(self, ctx: Any, n: int) -> Iterator[int]:
        yield from range(n)

    async def note(self, ctx: Any, value: Any) -> None:
        await asyncio.sleep(0.01)
        self.seen.append(value)

    async def until_cancelled(self, ctx: Any) -> None:
        request = current_request()
        assert request is not None
        self.begun += 1
        while not request.cancelled:
            await asyncio.sleep(0.005)
        self.ended.append("cancelled")

    async def nested(self, ctx: Any) -> tuple[float, str]:
        request = current_request()
        assert request is not None and request.remaining is not None and self.client is not None
        request.progress("half")
        trace = await self.client.call(ctx, "compute", message("trace"))
        return request.remaining, trace

    async def trace(self, ctx: Any) -> str:
        request = current_request()
        assert request is not None
        return f"{request.trace.decode()} {request.remaining is not None and request.remaining < 20} {setting.get()}"


async def until(condition: Any) -> None:
    while not condition():
        await asyncio.sleep(0.005)


def test_methods_run_beside_one_another_in_the_event_loop_and_plain_ones_beside_it(router, run):
    async def main() -> None:
        here = threading.current_thread().name
        setting.set("of the program")
        async with aio.Service("compute", Endpoint(), router=router.url) as service:
            client = service.client
            assert await client.call(None, "compute", message("add", a=1, b=2)) == 3
            met = await asyncio.gather(*[client.call(None, "compute", message("meet")) for _ in range(8)])
            assert met == [here] * 8
            began = time.monotonic()
            plain = await asyncio.gather(*[client.call(None, "compute", message("plain")) for _ in range(20)])
            assert time.monotonic() - began < 20
            assert here not in {name for name, _ in plain}
            assert {context for _, context in plain} == {"of the program"}
            assert (await client.describe("compute"))["endpoint"] == "Endpoint"
            with pytest.raises(ValueError, match="x"):
                await client.call(None, "compute", message("fail"))
            with pytest.raises(Exception, match="SystemExit"):
                await client.call(None, "compute", message("exit"))
            assert await client.call(None, "compute", message("add", a=1)) == 1

    run(main)


def test_streams_go_only_a_few_items_ahead_and_end_with_their_loop(router, run):
    async def main() -> None:
        endpoint = Endpoint()
        async with aio.Service("compute", endpoint, router=router.url) as service, aio.Client(router.url) as client:
            for method in ("count", "plain_count"):
                items = [item async for item in client.multicall(None, "compute", message(method, n=200))]
                assert items == list(range(200))
            assert [item async for item in service.client.multicall(None, "compute", message("count", n=0))] == []
            endpoint.ended.clear()
            async for item in client.multicall(None, "compute", message("count", n=10_000)):
                if item == 3:
                    await asyncio.sleep(0.2)
                    assert endpoint.made < 100
                    break
            await until(lambda: endpoint.ended == ["count"])
            async with aclosing(client.multicall(None, "compute", message("count", n=10_000))) as stream:  # type: ignore[type-var]
                assert await anext(stream) == 0
            await until(lambda: endpoint.ended == ["count", "count"])
            with pytest.raises(RemoteError, match="gives its result item by item"):
                await client.call(None, "compute", message("count", n=1))

    run(main)


def test_a_stream_whose_caller_waits_long_between_items(router, run):
    async def take(client: aio.Client, pause_after: int) -> int:
        taken = 0
        async for _ in client.multicall(None, "compute", message("count", n=40), 3.0):
            taken += 1
            if taken == pause_after:
                await asyncio.sleep(3.5)
        return taken

    async def main() -> None:
        async with aio.Service("compute", Endpoint(), router=router.url) as service:
            assert await asyncio.gather(*[take(service.client, n) for n in (1, 17, 40)]) == [40, 40, 40]

    run(main)


def test_deadline_trace_and_progress_of_a_request_reach_its_nested_calls(router, run):
    trace = "00-" + "1" * 32 + "-" + "2" * 16 + "-01"

    async def main() -> None:
        endpoint = Endpoint()
        async with aio.Service("compute", endpoint, router=router.url) as service:
            endpoint.client = client = service.client
            told: list[Any] = []

            async def on_progress(value: Any) -> None:
                await asyncio.sleep(0)
                told.append(value)

            for tell in (told.append, on_progress):
                left, nested = await client.call(
                    None, "compute", message("nested"), 20, on_progress=tell, traceparent=trace
                )
                assert 0 < left <= 20 and nested == f"{trace} True unset"
            assert told == ["half", "half"]

    run(main)


def test_a_request_whose_caller_gives_up_is_told(router, run):
    async def main() -> None:
        endpoint = Endpoint()
        async with aio.Service("compute", endpoint, router=router.url) as service:
            call = service.client.call(None, "compute", message("until_cancelled"))
            with pytest.raises(TimeoutError):
                await time_out_when(lambda: endpoint.begun, call)
            await until(lambda: endpoint.ended == ["cancelled"])
            # On a machine that stands still a timeout may be over before the method begins.
            for timeout in (0.1, 1.0, 10.0):
                with pytest.raises(CallTimeout):
                    await service.client.call(None, "compute", message("until_cancelled"), timeout)
                if endpoint.begun > 1:
                    break
            await until(lambda: len(endpoint.ended) == endpoint.begun > 1)

    run(main)


def test_stop_lets_all_that_runs_finish(router, run):
    async def main() -> Any:
        endpoint = Endpoint()
        async with aio.Client(router.url) as client:
            async with aio.Service("compute", endpoint, router=router.url, concurrency=4):
                for number in range(4):
                    await client.cast(None, "compute", message("note", value=number), confirm=True)
                await asyncio.sleep(0.005)
            return endpoint.seen, (await client.query("topics"))["topics"]

    seen, topics = run(main)
    assert len(seen) == 4 or sum(row["queued"] for row in topics) == 4 - len(seen)


def test_a_service_whose_event_loop_ends_without_stop_is_gone(router, run, caplog):
    client = aio.Client(router.url)

    async def main() -> None:
        await aio.Service("compute", Endpoint(), client=client).start()

    run(main)
    eventually(lambda: [row["consumers"] for row in router.query("topics")["topics"]] in ([], [[]], [0]))
    assert "was closed before the service was stopped" in caplog.text
    run(client.close)


def test_services_of_threads_say_where_async_methods_are_served(router):
    from rpcmq import threads

    with pytest.raises(UsageError, match=r"or use rpcmq\.aio, whose Service and Client run async methods"):
        threads.Service("compute", Endpoint(), router=router.url)
