"""Calls with a stream as argument, in event loops: at the caller, at the service, and both."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

import rpcmq
from rpcmq import aio
from rpcmq.errors import CallerFailed, CallerGone, CallTimeout, RemoteError, RequestStreamError, UsageError


class Files:
    """Methods in the event loop, and in threads."""

    def __init__(self) -> None:
        self.ended: list[object] = []

    async def items(self, ctx: Any, body: aio.RequestStream) -> list[Any]:
        return [item async for item in body]

    def plain(self, ctx: Any, body: Iterator[Any]) -> list[Any]:
        return list(body)

    async def first(self, ctx: Any, body: aio.RequestStream) -> Any:
        return await anext(body)

    async def stop(self, ctx: Any, body: aio.RequestStream) -> tuple[Any, list[Any]]:
        first = await anext(body)
        await body.aclose()
        return first, [item async for item in body]

    async def double(self, ctx: Any, body: aio.RequestStream) -> AsyncIterator[int]:
        async for item in body:
            yield item * 2

    def plain_double(self, ctx: Any, body: Iterator[int]) -> Iterator[int]:
        for item in body:
            yield item * 2

    async def watch(self, ctx: Any, body: aio.RequestStream) -> None:
        try:
            async for _ in body:
                pass
        except RequestStreamError as error:
            self.ended.append(error)
            raise


class Source:
    """An async generator that says how far it was read, and whether it was closed."""

    def __init__(self, count: int, waits: float = 0.0) -> None:
        self.count = count
        self.read = 0
        self.closed = False
        self._waits = waits

    async def __call__(self) -> AsyncIterator[int]:
        try:
            for number in range(self.count):
                self.read += 1
                yield number
                await asyncio.sleep(self._waits)
        finally:
            self.closed = True


def message(method: str, body: Any) -> dict[str, Any]:
    return {"method": method, "args": {"body": body}}


@pytest.fixture
def files() -> Files:
    return Files()


@pytest.fixture
def ends(router: Any, files: Files) -> Any:
    @asynccontextmanager
    async def ends() -> AsyncIterator[aio.Client]:
        async with aio.Service("files", files, router=router.url), aio.Client(router.url) as client:
            yield client

    return ends


@pytest.mark.parametrize("method", ["items", "plain"])
def test_items_of_each_kind_of_iterable(ends: Any, run: Any, method: str) -> None:
    async def main() -> None:
        async with ends() as client:
            for body in (Source(100)(), (n for n in range(100)), rpcmq.stream(range(100))):
                assert await client.call(None, "files", message(method, body)) == list(range(100))
            with tempfile.TemporaryFile() as file:
                file.write(bytes(300_000))
                file.seek(0)
                chunks = await client.call(None, "files", message(method, file))
                assert [len(chunk) for chunk in chunks] == [262_144, 37_856]

    run(main)


@pytest.mark.parametrize("method", ["double", "plain_double"])
def test_both_directions_at_once(ends: Any, run: Any, method: str) -> None:
    async def main() -> None:
        async with ends() as client:
            source = Source(300)
            found = [item async for item in client.multicall(None, "files", message(method, source()))]
            assert found == [2 * n for n in range(300)]

    run(main)


def test_a_conversation_is_prompt(ends: Any, run: Any) -> None:
    async def main() -> None:
        asked: asyncio.Queue[int] = asyncio.Queue()

        async def questions() -> AsyncIterator[int]:
            while True:
                yield await asked.get()

        async with ends() as client:
            await asked.put(1)
            answers = []
            async for answer in client.multicall(None, "files", message("double", questions())):
                answers.append(answer)
                if len(answers) == 15:
                    break
                await asked.put(answer)
            assert answers == [2**n for n in range(1, 16)]

    run(main)


def test_a_handler_that_ends_early_closes_the_iterable(ends: Any, run: Any) -> None:
    async def main() -> None:
        async with ends() as client:
            for method, wanted in (("first", 0), ("stop", (0, []))):
                source = Source(1_000_000)
                assert await client.call(None, "files", message(method, source())) == wanted
                assert source.closed and source.read < 1000

    run(main)


def test_a_wait_of_the_iterable_is_ended(ends: Any, run: Any) -> None:
    async def main() -> None:
        async with ends() as client:
            source, began = Source(10, waits=30.0), time.monotonic()
            assert await client.call(None, "files", message("first", source()), timeout=60) == 0
            assert source.closed and time.monotonic() - began < 25

    run(main)


class OwnError(Exception):
    """Of the caller."""


def test_an_exception_of_the_iterable(ends: Any, run: Any, files: Files) -> None:
    async def broken() -> AsyncIterator[int]:
        yield 1
        raise OwnError("no more")

    async def main() -> None:
        async with ends() as client:
            with pytest.raises(OwnError, match="no more"):
                await client.call(None, "files", message("watch", broken()))
            async with asyncio.timeout(20):
                while not files.ended:
                    await asyncio.sleep(0.01)

    run(main)
    (error,) = files.ended
    assert isinstance(error, CallerFailed) and isinstance(error.__cause__, RemoteError)


def test_a_stream_that_is_too_slow(ends: Any, run: Any, files: Files) -> None:
    async def main() -> None:
        async with ends() as client:
            source = Source(3, waits=5.0)
            with pytest.raises(CallTimeout, match="the stream 'body' of the caller has given no item for"):
                await client.call(None, "files", message("watch", source()), timeout=0.5)
            assert source.closed
            async with asyncio.timeout(20):
                while not files.ended:
                    await asyncio.sleep(0.01)

    run(main)
    assert isinstance(files.ended[0], CallerGone)


def test_a_task_that_is_cancelled_ends_the_stream(ends: Any, run: Any, files: Files) -> None:
    async def main() -> None:
        async with ends() as client:
            source = Source(1_000_000)
            calling = asyncio.create_task(client.call(None, "files", message("watch", source())))
            while source.read < 50:
                await asyncio.sleep(0.01)
            calling.cancel()
            with pytest.raises(asyncio.CancelledError):
                await calling
            assert source.closed
            async with asyncio.timeout(20):
                while not files.ended:
                    await asyncio.sleep(0.01)

    run(main)
    assert isinstance(files.ended[0], CallerGone)


def test_casts_refuse_it_and_retries_are_not_made(ends: Any, run: Any) -> None:
    async def main() -> None:
        async with ends() as client:
            with pytest.raises(UsageError, match="is a stream, which a cast cannot send"):
                await client.cast(None, "files", message("items", Source(3)()))
            assert await client.call(None, "files", message("items", Source(3)()), retry=3) == [0, 1, 2]

    run(main)


def test_an_async_iterable_needs_an_event_loop(client: Any) -> None:
    with pytest.raises(UsageError, match=r"only a client of rpcmq.aio"):
        client.call(None, "files", message("items", Source(3)()))
