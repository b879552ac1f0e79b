"""The contract of the stores, for each of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from rpcmq.proxy.caching import Purge, PurgeKind
from rpcmq.proxy.store import STEP_BYTES, FileStore, MemoryStore, Store, TieredStore
from rpcmq.proxy.store.mongo import MongoStore
from tests.proxy.store.entries import body_of, entry, maintain, put

ROOM = 64 << 20
SIZES = [0, 1, 1000, STEP_BYTES - 1, STEP_BYTES, STEP_BYTES + 1, 3 * STEP_BYTES + 5]


@pytest.fixture(params=["memory", "files", "tiers", "mongo"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    makers: dict[str, Callable[[], Store]] = {
        "memory": lambda: MemoryStore(ROOM),
        "files": lambda: FileStore(tmp_path, ROOM),
        "tiers": lambda: TieredStore(MemoryStore(ROOM, max_body=1000), FileStore(tmp_path, ROOM)),
        "mongo": lambda: MongoStore(
            request.getfixturevalue("mongo_uri"), request.getfixturevalue("mongo_database"), ROOM
        ),
    }
    made = makers[request.param]()
    yield made
    made.close()


@pytest.mark.parametrize("size", SIZES)
def test_a_body_is_found_as_it_was_stored(store: Store, size: int) -> None:
    body = bytes(range(256)) * (size // 256 + 1)
    body = body[:size]
    stored = entry()
    committed = put(store, stored, body, step=77_777)
    assert committed == stored.with_body_size(size)
    assert list(store.find(stored.key)) == [committed] and body_of(store, committed) == body


def test_parts_of_a_body_are_read(store: Store) -> None:
    body = b"".join(number.to_bytes(4) for number in range(3 * STEP_BYTES // 4 + 3))
    stored = put(store, entry(), body)
    assert stored is not None
    opened = store.open(stored)
    assert opened is not None
    for start, stop in [(0, 1), (5, 5), (STEP_BYTES - 1, STEP_BYTES + 1), (10, len(body)), (len(body) - 1, len(body))]:
        pieces = list(opened.read(start, stop))
        assert b"".join(pieces) == body[start:stop] and all(0 < len(piece) <= STEP_BYTES for piece in pieces)
    opened.close()
    opened.close()


def test_nothing_is_found_before_it_is_committed(store: Store) -> None:
    stored = entry()
    writer = store.create(stored)
    assert writer is not None and writer.write(b"1") and not store.find(stored.key)
    writer.abort()
    writer.abort()
    assert not store.find(stored.key) and writer.commit() is None and not writer.write(b"2")


@pytest.mark.parametrize("body", [b"", b"1234", b"123456"])
def test_a_body_of_another_length_than_declared_is_not_stored(store: Store, body: bytes) -> None:
    stored = entry(response={"Content-Length": "5"})
    assert put(store, stored, body) is None and not store.find(stored.key)
    assert put(store, stored, b"12345") is not None


def test_a_later_response_replaces_the_earlier_one(store: Store) -> None:
    first, second = put(store, entry(), b"1"), put(store, entry(), b"22")
    assert first is not None and second is not None
    assert list(store.find(first.key)) == [second] and body_of(store, second) == b"22"
    assert store.open(first) is None, "its head must not stand before the other one's body"


def test_an_open_body_outlasts_its_replacement(store: Store) -> None:
    """All small ones do; a large one in a database is an error then."""
    stored = put(store, entry(), b"1" * 2000)
    assert stored is not None
    opened = store.open(stored)
    assert opened is not None
    put(store, entry(), b"2" * 2000)
    store.remove(stored.key)
    assert b"".join(opened.read(0, 2000)) == b"1" * 2000
    opened.close()


def test_variants_stand_beside_one_another_the_latest_first(store: Store) -> None:
    stored = [
        put(store, entry(response={"Vary": "X"}, request={"X": value}), value.encode()) for value in ("1", "2", "3")
    ]
    assert list(store.find("https://example.com/a")) == stored[::-1]
    assert [body_of(store, each) for each in stored if each is not None] == [b"1", b"2", b"3"]
    assert store.remove("https://example.com/a") == 3 and not store.find("https://example.com/a")


def test_a_refreshed_response_has_a_new_head_and_its_body(store: Store) -> None:
    stored = put(store, entry(), b"1" * 2000)
    assert stored is not None
    new = replace(stored, fresh_for=999.0, headers=stored.headers.having("X-New", "1"))
    for _ in range(5):
        assert store.refresh(new) and list(store.find(stored.key)) == [new] and body_of(store, new) == b"1" * 2000


def test_a_refresh_of_what_is_not_there_does_nothing(store: Store) -> None:
    stored = entry()
    assert not store.refresh(stored)
    put(store, entry(), b"1")
    assert not store.refresh(stored), "the head of one body is not for another one"


@pytest.mark.parametrize("soft", [True, False])
@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (PurgeKind.URL, "https://example.com/a"),
        (PurgeKind.PREFIX, "https://example.com/a"),
        (PurgeKind.TAG, "t1"),
        (PurgeKind.ALL, ""),
    ],
)
def test_a_purge(store: Store, kind: PurgeKind, value: str, soft: bool) -> None:
    meant = put(store, entry("/a", {"Surrogate-Key": "t1 t2"}), b"1")
    other = put(store, entry("/b", {"Surrogate-Key": "t2"}), b"2")
    assert meant is not None and other is not None
    at = other.requested_at
    under_way = store.create(meant)
    assert under_way is not None
    purge = Purge(kind, value, at, soft)
    purged = store.purge(purge)
    assert purged.is_recorded and purged.count in (None, 1, 2) and not store.owed()
    found = list(store.find(meant.key))
    assert found == ([replace(meant, purged_at=at)] if soft else [])
    assert under_way.commit() is None, "its request was sent before the purge"
    if kind is not PurgeKind.ALL:
        assert list(store.find(other.key)) == [other]
    later = put(store, entry("/a", {"Surrogate-Key": "t1"}), b"3")
    assert list(store.find(meant.key)) == [later]
    maintain(store, at)
    assert list(store.find(meant.key)) == [later]
    assert not store.news([purge])
    # Each process that hears of it carries it out, some more than once.
    assert store.purge(purge, confirm=True).is_recorded
    store.settle()
    assert list(store.find(meant.key)) == [later]


def test_a_soft_purge_outlasts_the_maintenance(store: Store) -> None:
    stored = put(store, entry("/a", {"Surrogate-Key": "t1"}), b"1")
    assert stored is not None
    store.purge(Purge(PurgeKind.TAG, "t1", stored.requested_at, soft=True))
    maintain(store, stored.requested_at)
    assert [each.purged_at for each in store.find(stored.key)] == [stored.requested_at]


def test_what_is_too_old_is_removed(store: Store) -> None:
    stored = put(store, entry(), b"1")
    assert stored is not None
    maintain(store, stored.useless_at - 1)
    assert list(store.find(stored.key)) == [stored]
    maintain(store, stored.useless_at + 10_000)
    assert not store.find(stored.key)


def test_counters(store: Store) -> None:
    stored = entry()
    store.find(stored.key)
    put(store, stored, b"1")
    store.find(stored.key)
    statistics = store.statistics()
    assert statistics.entries == 1 and statistics.stored == 1 and 0 < statistics.size_bytes <= statistics.max_bytes
    assert statistics.failed == statistics.corrupt == 0


def test_tiers_find_what_another_process_has_stored(tmp_path: Path) -> None:
    one = TieredStore(MemoryStore(ROOM), FileStore(tmp_path, ROOM))
    other = TieredStore(MemoryStore(ROOM), FileStore(tmp_path, ROOM))
    stored = put(one, entry(), b"1")
    assert stored is not None and list(other.find(stored.key)) == [stored]
    assert body_of(other, stored) == b"1" and other.memory.has(stored)
    new = put(other, entry(), b"2")
    assert list(one.find(stored.key)) == [stored] and list(one.find_shared(stored.key)) == [new]
    one.close()
    other.close()


def test_memory_stays_within_its_room() -> None:
    store = MemoryStore(40_000, max_body=5000, max_variants=3)
    for number in range(100):
        put(store, entry(f"/{number}"), b"x" * 1000)
        store.find("https://example.com/0")
        assert store.statistics().size_bytes <= 40_000
    assert store.find("https://example.com/0") and store.find("https://example.com/99")
    assert not store.find("https://example.com/50")
    assert put(store, entry(), b"x" * 5001) is None
    for value in "12345":
        put(store, entry("/v", {"Vary": "X"}, {"X": value}), b"x")
    assert len(store.find("https://example.com/v")) == 3


def test_a_head_that_grows_keeps_memory_within_its_room() -> None:
    store = MemoryStore(6000)
    stored = put(store, entry(), b"x" * 1000)
    assert stored is not None
    store.refresh(replace(stored, headers=stored.headers.having("X", "x" * 5000)))
    assert store.statistics().size_bytes <= 6000


def test_values_of_requests_count_for_the_room(tmp_path: Path) -> None:
    # Clients choose them, and they are longer than all else of a small response.
    store = MemoryStore(1 << 20)
    for number in range(200):
        stored = entry("/a", {"Vary": "X"}, {"X": f"{number:05}" * 6000})
        assert stored.memory_size > 30_000 and stored.head_size > 30_000
        put(store, stored, b"body")
    assert 10 < store.statistics().entries < 40


def test_tags_and_the_reason_count_for_the_room() -> None:
    plain, tagged = entry(), entry(response={"Cache-Tag": ",".join(f"tag-{number}" for number in range(200))})
    assert tagged.memory_size - plain.memory_size > 200 * 60
    assert replace(plain, reason="x" * 10_000).memory_size > plain.memory_size + 9000
