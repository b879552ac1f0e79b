"""Middleware, retries and default options of ``rpcmq.aio.Client``."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from rpcmq import CallOptions, Middleware, OutgoingRequest, Tracing, aio, current_request, threads
from rpcmq.errors import CallTimeout, LinkLost, Overloaded, UsageError
from tests.client.endpoints import Compute, message
from tests.from_threads import in_thread


class Noted(aio.Middleware):
    def __init__(self, notes: list[str], name: str) -> None:
        self.notes, self.name = notes, name

    async def __call__(self, request: OutgoingRequest, send: Any) -> Any:
        self.notes.append(f"{self.name} {request.verb}")
        try:
            await asyncio.sleep(0)
            return await send(request)
        finally:
            self.notes.append(f"{self.name} ends")


class Attempt(Noted):
    each_attempt = True


class Plain(Middleware):
    """Of plain functions: blocks, and looks at what comes of it."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    def __call__(self, request: OutgoingRequest, send: Any) -> Any:
        self.seen.append(threading.current_thread().name)
        try:
            result = send(request)
        except LookupError as error:
            return f"instead of {error}"
        return result + 1 if isinstance(result, int) else result


class Doubled(Middleware):
    def __call__(self, request: OutgoingRequest, send: Any) -> Any:
        items = send(request)
        return self.doubled(items) if request.verb == "multicall" else items

    def doubled(self, items: Iterator[int]) -> Iterator[int]:
        for item in items:
            yield 2 * item


def test_middleware_stands_around_each_verb_in_its_order(router, serve, run):
    serve(Compute())

    async def main() -> list[str]:
        notes: list[str] = []
        middleware = [Noted(notes, "one"), Attempt(notes, "within"), Noted(notes, "two")]
        async with aio.Client(router.url, middleware=middleware) as client:
            assert await client.call(None, "compute", message("add", a=1)) == 1
            await client.cast(None, "compute", message("note"), confirm=True)
            assert await client.fanout_cast(None, "compute", message("note"), confirm=True) == 1
            stream = client.multicall(None, "compute", message("count", n=3))
            assert [item async for item in stream] == [0, 1, 2]
        return notes

    steps = "one {0}, two {0}, within {0}, within ends, two ends, one ends"
    expected = ", ".join(steps.format(verb) for verb in ("call", "cast", "fanout_cast", "multicall"))
    assert ", ".join(run(main)) == expected


def test_middleware_of_plain_functions_runs_in_a_thread(router, serve, run):
    serve(Compute())

    async def main() -> None:
        plain = Plain()
        async with aio.Client(router.url, middleware=[plain, Doubled(), Plain()]) as client:
            calls = [client.call(None, "compute", message("add", a=number)) for number in range(200)]
            assert await asyncio.gather(*calls) == [number + 2 for number in range(200)]
            assert threading.current_thread().name not in plain.seen
            assert len(set(plain.seen)) <= 64
            assert await client.call(None, "compute", message("fail", error=LookupError("x"))) == "instead of x"
            stream = client.multicall(None, "compute", message("count", n=40))
            assert [item async for item in stream] == [2 * number for number in range(40)]
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05):
                    await client.call(None, "compute", message("until_cancelled"))
            while (await client.query("calls"))["calls"]:
                await asyncio.sleep(0.01)

    run(main)


def test_tracing_and_the_context_of_the_task_reach_what_is_sent(router, run):
    trace = "00-" + "1" * 32 + "-" + "2" * 16 + "-01"

    class Endpoint:
        async def trace(self, ctx: Any) -> str:
            request = current_request()
            assert request is not None
            return request.trace.decode()

    async def main() -> None:
        for middleware in ([Tracing(lambda: trace)], [Plain(), Tracing(lambda: trace)]):
            async with (
                aio.Service("compute", Endpoint(), router=router.url),
                aio.Client(router.url, middleware=middleware) as client,
            ):
                assert await client.call(None, "compute", message("trace")) == trace

    run(main)


def test_retries_pause_in_the_task_and_end_with_their_attempts(router, run):
    class Busy:
        def __init__(self) -> None:
            self.left = 2

        async def work(self, ctx: Any) -> str:
            self.left -= 1
            if self.left >= 0:
                raise Overloaded("later", {"retry_after": 0.01})
            return "done"

    class Fails(aio.Middleware):
        each_attempt = True

        def __init__(self) -> None:
            self.attempts = 0

        async def __call__(self, request: OutgoingRequest, send: Any) -> Any:
            self.attempts += 1
            if self.attempts % 3:
                raise LinkLost("on purpose", {})
            return await send(replace(request))

    async def main() -> None:
        fails = Fails()
        async with (
            aio.Service("compute", Busy(), router=router.url),
            aio.Client(router.url, middleware=[fails], options=CallOptions(retry=3, timeout=20)) as client,
        ):
            beside = asyncio.create_task(asyncio.sleep(0))
            with pytest.raises(Exception, match="later"):
                await client.call(None, "compute", message("work"))
            assert fails.attempts == 3 and beside.done()
            with pytest.raises(LinkLost):
                await client.call(None, "compute", message("work"), retry=2)

            def give_up(value: Any) -> None:
                raise LinkLost("of the callback", {})

            with pytest.raises(UsageError):
                await client.call(None, "compute", message("work"), retry=-1, on_progress=give_up)

    run(main)


def test_options_of_a_client_and_of_topics_are_defaults(router, run):
    async def main() -> None:
        options = {"options": CallOptions(timeout=0.05), "topic_options": {"quick": CallOptions(mandatory=True)}}
        async with aio.Client(router.url, **options) as client:  # type: ignore[arg-type]
            await client.connect(20)
            with pytest.raises(CallTimeout):
                await client.call(None, "nobody", message("add"))
            with pytest.raises(Exception, match=r"nobody consumes|no consumer"):
                await client.call(None, "quick", message("add"))

    run(main)


def test_a_shared_client_brings_its_options_and_middleware(router, serve, run):
    serve(Compute())
    shared = in_thread(threads.Client, router.url, middleware=[Plain()])

    async def main() -> Any:
        return await aio.Client(client=shared).call(None, "compute", message("add", a=1))

    assert run(main) == 2
    in_thread(shared.close)


def test_something_else_is_no_middleware(router):
    with pytest.raises(UsageError, match=r"must derive from rpcmq\.aio\.Middleware or rpcmq\.Middleware"):
        aio.Client(router.url, middleware=[print])  # type: ignore[list-item]
