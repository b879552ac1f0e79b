"""Stubs of services over ``rpcmq.aio``."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Protocol

import pytest

from rpcmq import aio, with_options
from rpcmq.errors import UsageError
from rpcmq.testing import eventually
from tests.client.endpoints import Compute


class ComputeApi(Protocol):
    async def add(self, ctx: Any, a: int, b: int = 0) -> int: ...
    async def note(self, ctx: Any, value: Any) -> None: ...
    async def fail(self, ctx: Any) -> None: ...
    def count(self, ctx: Any, n: int) -> AsyncIterator[int]: ...


def test_methods_are_awaited(router, serve, run):
    compute = Compute()
    serve(compute)

    async def main() -> None:
        async with aio.Client(router.url) as client:
            stub = client.stub(ComputeApi, "compute", timeout=20)
            assert await stub.add({"user": "u"}, 1, b=2) == 3
            assert [n async for n in stub.count(None, 40)] == list(range(40))
            with pytest.raises(ValueError, match="x"):
                await stub.fail(None)
            confirmed = with_options(stub, confirm=True)
            await aio.as_cast(confirmed.note)(None, 1)
            assert await aio.as_fanout(confirmed.note)(None, value=2) == 1
            with pytest.raises(TypeError, match=r"^ComputeApi\.add.*missing a required argument: 'a'"):
                stub.add(None)  # type: ignore[call-arg, unused-coroutine]

    run(main)
    eventually(lambda: compute.seen[-2:] == [1, 2])


def test_a_class_of_plain_methods_is_refused(router, run):
    async def main() -> None:
        async with aio.Client(router.url) as client:
            with pytest.raises(UsageError, match=r"Compute\.add is not async.* a Protocol can declare it"):
                client.stub(Compute, "compute").add(None, 1)

    run(main)
