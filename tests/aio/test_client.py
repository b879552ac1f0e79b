"""The verbs of ``rpcmq.aio.Client``."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from typing import Any

import pytest

import rpcmq.testing
from rpcmq import aio, threads
from rpcmq.errors import CallTimeout, NoConsumer, Overloaded, RouterUnreachable, UnknownMethod, UsageError
from rpcmq.testing import eventually
from tests.aio.limits import time_out_when
from tests.client.endpoints import Compute
from tests.from_threads import in_thread


def message(method: str, **args: Any) -> dict[str, Any]:
    return {"method": method, "args": args}


def test_a_call_returns_what_the_method_returns(router, serve, run):
    serve(Compute())

    async def main() -> Any:
        async with aio.Client(router.url) as client:
            return await client.call(None, "compute", message("add", a=1, b=2))

    assert run(main) == 3


def test_many_tasks_share_a_connection(router, serve, run):
    serve(Compute())

    async def main() -> Any:
        async with aio.Client(router.url) as client:
            calls = [client.call(None, "compute", message("add", a=number, b=1)) for number in range(500)]
            return await asyncio.gather(*calls), len((await client.query("processes"))["processes"])

    results, processes = run(main)
    assert results == list(range(1, 501))
    assert processes == 2


def test_failures_are_raised_in_the_task(router, serve, run):
    serve(Compute())

    async def main() -> Any:
        async with aio.Client(router.url) as client:
            await client.connect(20)
            for method, error in (("fail", ValueError), ("missing", UnknownMethod)):
                with pytest.raises(error):
                    await client.call(None, "compute", message(method))
            with pytest.raises(NoConsumer):
                await client.call(None, "nobody", message("add"), mandatory=True)
            with pytest.raises(CallTimeout, match="queued"):
                await client.call(None, "nobody", message("add"), timeout=1.0)
            with pytest.raises(UsageError, match="topic must be"):
                await client.call(None, 5, message("add"))  # type: ignore[arg-type]

    run(main)


def test_a_task_that_is_cancelled_cancels_its_call(router, serve, run):
    compute = Compute()
    serve(compute)

    async def main() -> Any:
        async with aio.Client(router.url) as client:
            task = asyncio.create_task(client.call(None, "compute", message("until_cancelled")))
            while not compute.started.is_set():
                await asyncio.sleep(0.005)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            compute.started.clear()
            with pytest.raises(TimeoutError):
                await time_out_when(compute.started.is_set, client.call(None, "compute", message("until_cancelled")))
            while compute.ended != ["cancelled", "cancelled"]:
                await asyncio.sleep(0.005)

    run(main)
    eventually(lambda: router.query("calls")["calls"] == [])


def test_casts_and_their_confirmations(router, serve, run):
    compute = Compute()
    serve(compute)

    async def main() -> Any:
        async with aio.Client(router.url, cast_window=100) as client:
            for number in range(1000):
                await client.cast(None, "compute", message("note", value=number))
            await client.cast(None, "compute", message("note", value=1000), confirm=True)
            count = await client.fanout_cast(None, "compute", message("note", value=1001), confirm=True)
            with pytest.raises(NoConsumer):
                await client.cast(None, "nobody", message("note"), confirm=True, mandatory=True)
            return count

    assert run(main) == 1
    eventually(lambda: len(compute.seen) == 1002)
    assert sorted(compute.seen) == list(range(1002))


def test_a_thousand_tasks_wait_for_the_first_connection_without_threads_of_their_own(free_port, run):
    before = threading.active_count()

    async def main() -> Any:
        async with aio.Client(f"tcp://127.0.0.1:{free_port}", connect_timeout=1.0) as client:
            calls = [asyncio.create_task(client.call(None, "compute", message("add"))) for _ in range(1000)]
            await asyncio.sleep(0.5)
            threads_then = threading.active_count() - before
            errors = await asyncio.gather(*calls, return_exceptions=True)
            return threads_then, {type(error) for error in errors}

    more, errors = run(main)
    assert errors == {RouterUnreachable}
    assert more < 10


def test_a_client_of_threads_shares_its_connection(router, serve, run):
    serve(Compute())
    shared = in_thread(threads.Client, router.url)

    async def main() -> Any:
        async with aio.Client(client=shared) as client:
            assert client.identity == shared.identity
            return await client.call(None, "compute", message("add", a=1))

    assert run(main) == 1
    assert not shared.closed
    assert in_thread(shared.call, None, "compute", message("add", a=2)) == 2
    with pytest.raises(UsageError, match="give router to the client that is shared"):
        aio.Client(router.url, client=shared)
    with pytest.raises(UsageError, match="give identity, timout to the client that is shared"):
        aio.Service("x", Compute(), client=aio.Client(client=shared), identity="y", timout=5)  # type: ignore[call-arg]
    in_thread(shared.close)


def test_outside_of_an_event_loop(router):
    client = aio.Client(router.url)
    coroutine = client.call(None, "compute", message("add"))
    with pytest.raises(UsageError, match="no event loop runs in this thread"):
        coroutine.send(None)


def test_clients_that_were_closed_or_dropped_leave_nothing_in_an_event_loop_that_goes_on(router, serve, run):
    serve(Compute())

    async def main() -> Any:
        processes = []
        for number in range(20):
            client = aio.Client(router.url)
            assert await client.call(None, "compute", message("add", a=number)) == number
            processes.append(weakref.ref(client.threads.process))
            if number % 2:
                await client.close()
            del client
        while any(process() is not None for process in processes):
            await asyncio.sleep(0.05)
            gc.collect()
        while len((await asyncio.to_thread(router.query, "processes"))["processes"]) > 1:
            await asyncio.sleep(0.05)

    run(main)


def test_tasks_wait_for_room_among_the_casts_without_threads_of_their_own(router, serve, run):
    compute = Compute()
    serve(compute)

    async def main() -> int:
        async with aio.Client(router.url, cast_window=10) as client:
            await client.connect()
            before = threading.active_count()
            casts = [client.cast(None, "compute", message("note", value=number)) for number in range(1000)]
            await asyncio.gather(*casts)
            return threading.active_count() - before

    assert run(main) < 5
    eventually(lambda: sorted(compute.seen) == list(range(1000)))


def test_a_cast_for_which_there_is_no_room_says_why(run):
    async def main(url: str) -> Any:
        async with aio.Client(url, cast_window=3, linger_seconds=0.05) as client:
            await client.connect(20)
            casts = [client.cast(None, "nobody", message("note"), timeout=0.3) for _ in range(20)]
            return await asyncio.gather(*casts, return_exceptions=True)

    with rpcmq.testing.router(queue_max_messages=2) as router:
        outcomes = run(lambda: main(router.url))
    errors = [outcome for outcome in outcomes if outcome is not None]
    assert errors and all(isinstance(error, Overloaded) for error in errors)
    assert "cast_window = 3" in str(errors[0])
