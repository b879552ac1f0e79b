"""Streams of large items: a service is only a few megabytes ahead of its reader, and all of it comes, in order."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from rpcmq.core.process.received_streams import WINDOW_BYTES
from rpcmq.testing import eventually
from tests.client.endpoints import message
from tests.from_threads import CLIENT_SHELL

SIZE = 1 << 20


class Blocks:
    """Makes blocks of bytes, the number of each in front."""

    def __init__(self) -> None:
        self.made = 0

    def blocks(self, ctx: Any, n: int, size: int = SIZE) -> Iterator[bytes]:
        for number in range(n):
            self.made += 1
            yield number.to_bytes(4) + bytes(size - 4)


def numbers(items: Iterator[bytes]) -> list[int]:
    return [int.from_bytes(item[:4]) for item in items]


@pytest.mark.skipif(CLIENT_SHELL == "aio", reason="sends the request when the first item is asked for")
def test_a_service_is_one_large_item_ahead_before_anything_is_read(client, serve):
    blocks = Blocks()
    serve(blocks)
    items = client.multicall(None, "compute", message("blocks", n=20))
    eventually(lambda: blocks.made == 2)  # one was sent, and one waits until it may be
    assert numbers(items) == list(range(20))


def test_it_is_a_window_of_bytes_ahead_of_a_reader(client, serve):
    blocks = Blocks()
    serve(blocks)
    items = client.multicall(None, "compute", message("blocks", n=40))
    ahead = WINDOW_BYTES // SIZE + 2
    for taken in range(1, 11):
        assert int.from_bytes(next(items)[:4]) == taken - 1
        assert blocks.made <= taken + ahead
    eventually(lambda: blocks.made >= 10 + ahead - 3)
    items.close()


def test_items_of_all_sizes_come_whole_and_in_order(client, serve):
    serve(Blocks())
    for size in (4, 3_000, 40_000, 70_000, 5 << 20):
        n = min(200, (20 << 20) // size)
        found = list(client.multicall(None, "compute", message("blocks", n=n, size=size)))
        assert numbers(iter(found)) == list(range(n)) and {len(item) for item in found} == {size}


def test_streams_that_are_read_in_turns_all_come(client, serve):
    serve(Blocks(), concurrency=16)
    streams = [client.multicall(None, "compute", message("blocks", n=12)) for _ in range(12)]
    for number in range(12):
        assert [int.from_bytes(next(items)[:4]) for items in streams] == [number] * 12
