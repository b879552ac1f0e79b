"""Turns of requests in an event loop, which consumers share."""

from __future__ import annotations

import asyncio

from rpcmq.aio.turns import Turns, TurnShare


async def take(share: TurnShare, name: str, order: list[str]) -> None:
    await share.acquire()
    order.append(name)


async def settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_a_consumer_with_much_that_waits_keeps_no_other_from_its_turn() -> None:
    async def main() -> list[str]:
        turns, order = Turns(1), list[str]()
        flooded, quiet = turns.share(), turns.share()
        names = [(flooded, f"much {n}") for n in range(4)] + [(quiet, "quiet"), (flooded, "late")]
        tasks = [asyncio.ensure_future(take(share, name, order)) for share, name in names]
        for taken in range(1, len(names) + 1):
            await settled()
            assert len(order) == taken
            flooded.release()
        await asyncio.gather(*tasks)
        return order

    assert asyncio.run(main()) == ["much 0", "much 1", "quiet", "much 2", "much 3", "late"]


def test_a_turn_is_not_lost_with_a_task_that_is_cancelled() -> None:
    async def main() -> list[str]:
        turns, order = Turns(1), list[str]()
        share = turns.share()
        await share.acquire()
        waits, given = (asyncio.ensure_future(take(share, name, order)) for name in ("waits", "given"))
        await settled()
        waits.cancel()
        await settled()
        share.release()
        given.cancel()  # before it goes on with the turn that it was given
        await settled()
        await asyncio.wait_for(take(share, "next", order), 20)
        return order

    assert asyncio.run(main()) == ["next"]
