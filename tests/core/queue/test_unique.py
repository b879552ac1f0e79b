"""Items of which one waits, without sockets and disks."""

from __future__ import annotations

from rpcmq.core.queue.cancelling import cancel
from rpcmq.core.queue.operators import Operators
from rpcmq.store.contract import Verdict
from tests.core.queue.virtual_store import World

KNOWN = [Verdict(is_known=True)]


def put(world: World, message: bytes, **fields: int) -> list[Verdict]:
    return world.put(message, unique=b"nightly", **fields)


def test_one_waits_until_it_is_given(world: World) -> None:
    assert put(world, b"a")[0].number and put(world, b"b") == KNOWN and put(world, b"c", priority=9) == KNOWN
    world.put(b"other", unique=b"hourly")
    first = world.taken()
    world.run()
    assert first.message == b"a" and put(world, b"d")[0].number and put(world, b"e") == KNOWN
    world.queue.failed(world.now, first.fence, "w", "raised")
    world.advance(10)
    # The one that is tried again has let go of its key for ever.
    assert sorted(world.take_all()) == [b"a", b"d", b"other"]
    world.run()
    assert put(world, b"f")[0].number


def test_it_holds_over_lives(world: World) -> None:
    put(world, b"a", due=World.wall(world.now + 50))
    world.kill()
    assert put(world, b"b") == KNOWN
    world.advance(51)
    world.taken()
    world.kill()
    world.advance(31)
    assert world.taken().message == b"a"
    world.run()
    assert put(world, b"c")[0].number


def test_whatever_takes_it_away_frees_its_key(world: World) -> None:
    put(world, b"cancelled")
    cancel(world.queues, world.now, "billing", 0, 1, lambda answer: None)
    world.run()
    assert put(world, b"expired", expires=World.wall(world.now + 5))[0].number
    world.advance(6)
    assert world.take() is None
    world.run()
    assert put(world, b"moved")[0].number
    Operators(world.queues).move_ready(world.now, "billing", "other", lambda count: None)
    world.run()
    assert put(world, b"last")[0].number
