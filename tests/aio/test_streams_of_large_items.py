"""Streams of large items in event loops: the service is only a few megabytes ahead, and all of it comes, in order."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from rpcmq import aio
from rpcmq.core.process.received_streams import WINDOW_BYTES

SIZE = 1 << 20


class Blocks:
    """Makes blocks of bytes, the number of each in front, in the event loop or in a thread."""

    def __init__(self) -> None:
        self.made = 0

    async def blocks(self, ctx: Any, n: int, size: int = SIZE) -> AsyncIterator[bytes]:
        for number in range(n):
            self.made += 1
            yield number.to_bytes(4) + bytes(size - 4)

    def plain(self, ctx: Any, n: int, size: int = SIZE) -> Iterator[bytes]:
        for number in range(n):
            self.made += 1
            yield number.to_bytes(4) + bytes(size - 4)


@pytest.mark.parametrize("method", ["blocks", "plain"])
def test_a_service_is_a_few_megabytes_ahead_and_all_comes_in_order(router, run, method):
    async def main() -> None:
        blocks = Blocks()
        service = aio.Service("blocks", blocks, router=router.url, host="here")
        await service.start()
        async with aio.Client(router.url) as client:
            items = client.multicall(None, "blocks", {"method": method, "args": {"n": 30}}, 30)
            taken = 0
            async for item in items:
                assert int.from_bytes(item[:4]) == taken
                taken += 1
                assert blocks.made <= taken + WINDOW_BYTES // SIZE + 2
            assert taken == 30
            for size in (4, 3_000, 40_000, 70_000):
                message = {"method": method, "args": {"n": 100, "size": size}}
                found = [item async for item in client.multicall(None, "blocks", message, 30)]
                assert [int.from_bytes(item[:4]) for item in found] == list(range(100))
        await service.stop()

    run(main)


def test_many_streams_at_once_all_come(router, run):
    async def main() -> None:
        service = aio.Service("blocks", Blocks(), router=router.url, host="here")
        await service.start()

        async def read(client: aio.Client) -> list[int]:
            message = {"method": "blocks", "args": {"n": 8}}
            return [int.from_bytes(item[:4]) async for item in client.multicall(None, "blocks", message, 30)]

        async with aio.Client(router.url) as client:
            assert await asyncio.gather(*(read(client) for _ in range(24))) == [list(range(8))] * 24
        await service.stop()

    run(main)
