"""``rpcmq.aio`` where payloads are signed, which takes the engines' lock."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from rpcmq import aio, current_request
from rpcmq.transport.mac_files import new_mac_key
from tests.client.endpoints import message


class Endpoint:
    def __init__(self) -> None:
        self.seen: list[Any] = []

    async def add(self, ctx: Any, a: int, b: int = 0) -> int:
        request = current_request()
        assert request is not None
        request.progress("half")
        return a + b

    async def count(self, ctx: Any, n: int) -> AsyncIterator[int]:
        for number in range(n):
            yield number

    def note(self, ctx: Any, value: Any) -> None:
        self.seen.append(value)

    async def fail(self, ctx: Any) -> None:
        raise ValueError("x")


def test_signed_calls_casts_streams_and_events(router, run, tmp_path: Path):
    new_mac_key(tmp_path / "mac.toml", "ours")
    (tmp_path / "trust.toml").write_text('[[topics]]\ntopics = ["#"]\nrequire = true\n')
    trust: dict[str, Any] = {"trust_file": str(tmp_path / "trust.toml"), "mac_file": str(tmp_path / "mac.toml")}

    async def main() -> None:
        endpoint = Endpoint()
        told: list[Any] = []
        events: list[Any] = []
        async with (
            aio.Service("compute", endpoint, router=router.url, **trust),
            aio.Client(router.url, **trust) as client,
        ):
            calls = [client.call(None, "compute", message("add", a=number)) for number in range(200)]
            assert await asyncio.gather(*calls) == list(range(200))
            assert await client.call(None, "compute", message("add", a=1), on_progress=told.append) == 1
            assert told == ["half"]
            stream = client.multicall(None, "compute", message("count", n=50))
            assert [item async for item in stream] == list(range(50))
            with pytest.raises(ValueError, match="x"):
                await client.call(None, "compute", message("fail"))
            await client.cast(None, "compute", message("note", value=1))
            await client.cast(None, "compute", message("note", value=2), confirm=True)
            await client.subscribe("x", lambda ctx, topic, payload: events.append(payload))
            await client.publish(None, "x", 3)
            while sorted(endpoint.seen) != [1, 2] or events != [3]:
                await asyncio.sleep(0.005)

    run(main)
