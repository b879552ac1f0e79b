"""Items that users have put in transactions of their own: each is put once, or is dead and says why."""

from __future__ import annotations

from rpcmq.core.queue.story import Story
from rpcmq.store.contract import Incoming, Lane, Maker, Position, Stored
from tests.core.queue.virtual_store import World

LANE = Lane("billing", 0)


def incoming(
    place: int, message: bytes, id: bytes = b"", digest: bytes = b"", due: int = 0, at: int = 5, unique: bytes = b""
) -> Incoming:
    return Incoming(place, LANE, at, due, 0, id, Maker(9, place), digest, b"", message, unique)


def test_what_comes_in_is_put_soon() -> None:
    world = World(has_incoming=True)
    for round_ in range(3):
        messages = [b"%d" % n for n in range(round_ * 300, round_ * 300 + 300)]
        for n, message in enumerate(messages):
            world.store.incoming[round_ * 300 + n + 1] = incoming(round_ * 300 + n + 1, message)
        world.advance(0.3)
        assert world.store.incoming == {} and world.take_all() == messages
    (item,) = world.store.read(LANE, 899, 1, 100)
    assert isinstance(item, Stored)
    assert (item.at, item.maker) == (5, Maker(9, 900))


def test_one_that_is_due_later_waits() -> None:
    world = World(has_incoming=True)
    world.store.incoming[1] = incoming(1, b"later", due=world.wall(world.now + 60))
    world.advance(0.3)
    assert world.take_all() == [] and world.store.incoming == {}
    world.advance(61)
    assert world.take_all() == [b"later"]


def test_an_id_is_put_once_and_one_of_other_content_is_dead() -> None:
    world = World(has_incoming=True)
    world.put(b"a", id=b"i", digest=b"A")
    world.store.incoming |= {1: incoming(1, b"a", b"i", b"A"), 2: incoming(2, b"b", b"i", b"B"), 3: incoming(3, b"c")}
    world.advance(0.3)
    assert world.take_all() == [b"a", b"c"] and world.store.incoming == {}
    (dead,) = world.store.read_dead("billing", Position(), 10, 1 << 20)
    assert isinstance(dead, Stored)
    assert dead.id == b"i" and dead.body.endswith(b"b")
    assert "another content" in Story.from_bytes(dead.state).endings[0].text
    counters = world.queues.queue("billing").counters
    assert (counters["dead"], counters["refused"]) == (1, 1)


def test_while_an_item_with_the_unique_key_waits_another_one_is_dropped() -> None:
    world = World(has_incoming=True)
    world.store.incoming |= {place: incoming(place, b"%d" % place, unique=b"u") for place in (1, 2)}
    world.advance(0.3)
    assert world.take_all() == [b"1"] and world.store.incoming == {}
    world.store.incoming[3] = incoming(3, b"3", unique=b"u")
    world.advance(0.3)
    assert world.take_all() == [b"3"]  # a worker has had the first one


def test_a_router_that_dies_while_it_takes_them_up_puts_each_once() -> None:
    for steps in range(8):
        world = World(has_incoming=True)
        world.store.incoming = {place: incoming(place, b"%d" % place) for place in range(1, 6)}
        world.advance(0.0)
        world.now += 0.3
        world.queues.tick(world.now)
        for _ in range(min(steps, len(world.port.waiting))):
            world.port.answer()
            world.queues.tick(world.now)
        world.kill()
        world.advance(60.0)
        assert world.take_all() == [b"1", b"2", b"3", b"4", b"5"]


def test_nothing_is_looked_for_where_nothing_can_come_in() -> None:
    world = World()
    world.store.incoming[1] = incoming(1, b"a")
    world.advance(100.0)
    assert world.take_all() == [] and len(world.store.incoming) == 1


def test_an_idle_one_looks_seldom() -> None:
    world = World(has_incoming=True)
    looks = 0
    until = world.now + 60
    while world.now < until:
        world.now = max(world.now + 1e-6, world.queues.next_deadline())
        world.queues.tick(world.now)
        looks += len(world.port.waiting)
        world.run()
    assert 230 <= looks <= 260


def test_times_are_those_of_the_clock_by_which_they_were_written() -> None:
    world = World(has_incoming=True)
    for place, ahead in enumerate((-30 * 86_400_000, 3_600_000, 30 * 86_400_000), 1):
        clock = world.wall(world.now) + ahead
        item = incoming(place, b"%d" % place, at=clock - 2000, due=clock + 10_000)
        world.store.incoming[place] = item._replace(now=clock, expires=clock + 60_000)
    world.advance(0.3)
    assert world.take_all() == []
    world.advance(11)
    assert world.take_all() == [b"1", b"2", b"3"]
    for number in (1, 2, 3):
        found = world.store.find(LANE, number)
        assert found is not None and isinstance(found.item, Stored)
        assert 12_000 < world.wall(world.now) - found.item.at < 16_000
