"""Events of ``rpcmq.aio``: handlers in the event loop, in order, with a bounded window."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from typing import Any

import pytest

import rpcmq.testing
from rpcmq import aio
from rpcmq.aio.bridge import Bridge
from rpcmq.errors import PayloadError, UsageError
from rpcmq.testing import eventually

name: ContextVar[str] = ContextVar("name")


def test_an_async_handler_gets_the_events_one_after_the_other(router, run):
    async def main() -> Any:
        seen: list[Any] = []
        running = 0

        async def handler(ctx: Any, topic: str, payload: Any) -> None:
            nonlocal running
            running += 1
            assert running == 1
            await asyncio.sleep(0.001)
            running -= 1
            seen.append((topic, payload, name.get()))
            if payload == 3:
                raise ValueError("the next one comes all the same")

        async with aio.Client(router.url) as client:
            name.set("subscriber")
            subscription = await client.subscribe("compute.#", handler)
            for number in range(20):
                assert await client.publish(None, f"compute.{number}", number, confirm=number == 0) in (None, 1)
            while len(seen) < 20:
                await asyncio.sleep(0.005)
            await subscription.close()
            assert await client.publish(None, "compute.x", 21, confirm=True) == 0
        return seen, subscription.received

    assert run(main) == ([(f"compute.{n}", n, "subscriber") for n in range(20)], 20)


def test_an_event_that_need_not_wait_takes_no_thread_and_keeps_its_place(router, run, monkeypatch):
    async def main() -> list[int]:
        seen: list[int] = []
        async with aio.Client(router.url) as client:
            await client.subscribe("#", lambda ctx, topic, payload: seen.append(payload))
            in_thread, taken = Bridge.in_thread, []

            async def counted(self: Bridge, *args: Any, **options: Any) -> Any:
                taken.append(args)
                return await in_thread(self, *args, **options)

            monkeypatch.setattr(Bridge, "in_thread", counted)
            for number in range(200):
                await client.publish(None, "a", number, confirm=number % 50 == 49)
            assert len(taken) == 4, "those to be confirmed"
            await client.notify(None, "a", None)
            with pytest.raises(UsageError, match="topic"):
                await client.publish(None, "", 1)
            with pytest.raises(PayloadError):
                await client.publish(None, "a", lambda: None)
            assert len(taken) == 4
            while len(seen) < 201:
                await asyncio.sleep(0.005)
        with pytest.raises(UsageError, match="closed"):
            await client.publish(None, "a", 1)
        return seen[:200]

    assert run(main) == list(range(200))


def test_a_handler_that_awaited_what_was_cancelled_gets_the_next_event(router, run):
    async def main() -> Any:
        seen: list[int] = []

        async def handler(ctx: Any, topic: str, payload: int) -> None:
            seen.append(payload)
            if payload == 0:
                other = asyncio.ensure_future(asyncio.sleep(60))
                other.cancel()
                await other
            if payload == 1:
                raise asyncio.CancelledError

        async with aio.Client(router.url) as client:
            await client.subscribe("compute.#", handler)
            for number in range(3):
                await client.publish(None, "compute.x", number, confirm=True)
            async with asyncio.timeout(20):
                while len(seen) < 3:
                    await asyncio.sleep(0.005)
        return seen

    assert run(main) == [0, 1, 2]


def test_a_plain_handler_and_notifications(router, run):
    async def main() -> Any:
        seen: list[Any] = []
        done = asyncio.Event()

        def handler(ctx: Any, topic: str, payload: Any) -> None:
            seen.append((ctx, topic, payload["payload"]))
            done.set()

        async with aio.Client(router.url) as client:
            await client.subscribe("notifications.info.#", handler)
            await client.notify({"user": "u"}, "compute.started", 5)
            await done.wait()
        return seen

    assert run(main) == [({"user": "u"}, "notifications.info.compute.started", 5)]


def test_a_subscriber_that_is_too_slow_holds_a_window_of_events_and_loses_the_rest(run):
    async def main(url: str) -> Any:
        go_on = asyncio.Event()
        seen: list[int] = []

        async def handler(ctx: Any, topic: str, payload: int) -> None:
            await go_on.wait()
            seen.append(payload)

        async with aio.Client(url) as client, aio.Client(url) as publisher:
            subscription = await client.subscribe("a", handler, window=5)
            for number in range(100):
                await publisher.publish(None, "a", number, confirm=True)
            go_on.set()
            while len(seen) < 15 or subscription.lost < 85:
                await asyncio.sleep(0.005)
        return seen, subscription.lost

    with rpcmq.testing.router(pubsub_max_messages=10) as router:
        assert run(lambda: main(router.url)) == ([0, 1, 2, 3, 4, *range(90, 100)], 85)


def test_the_end_of_the_event_loop_ends_the_subscription(router, run):
    clients: list[aio.Client] = []

    async def main() -> None:
        clients.append(aio.Client(router.url))
        await clients[0].subscribe("#", lambda ctx, topic, payload: None)

    run(main)

    async def count() -> Any:
        return await clients[0].publish(None, "x", 1, confirm=True)

    eventually(lambda: run(count) == 0)
    run(clients[0].close)


def test_wrong_arguments_are_named(router, run):
    async def main() -> None:
        async with aio.Client(router.url) as client:
            with pytest.raises(UsageError, match="handler must be callable, not 5"):
                await client.subscribe("#", 5)  # type: ignore[arg-type]
            with pytest.raises(UsageError, match="window must be an integer"):
                await client.subscribe("#", print, window=0)
            with pytest.raises(UsageError, match="pattern"):
                await client.subscribe("a..b", print)

    run(main)
