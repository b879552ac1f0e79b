"""The store in a MongoDB database: its bounds, several processes, and a server that is slow or away."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime

import pytest
from pymongo import MongoClient

from rpcmq.proxy.caching import Purge, PurgeKind
from rpcmq.proxy.store import STEP_BYTES, Purged
from rpcmq.proxy.store.mongo import MongoStore
from tests.proxy.store.entries import body_of, entry, maintain, put
from tests.proxy.store.mongo_server import Server

ROOM = 64 << 20
KEY = "https://example.com/a"
OWED = Purged(None, is_recorded=False)


@pytest.fixture
def database(mongo_uri: str, mongo_database: str) -> Iterator[MongoClient[dict[str, object]]]:
    with MongoClient[dict[str, object]](mongo_uri) as client:
        yield client


@pytest.fixture
def stores(mongo_uri: str, mongo_database: str) -> Iterator[list[MongoStore]]:
    made = [MongoStore(mongo_uri, mongo_database, ROOM) for _ in range(2)]
    yield made
    for each in made:
        each.close()


def test_small_bodies_are_in_the_document_and_large_ones_in_gridfs(
    stores: list[MongoStore], database: MongoClient[dict[str, object]], mongo_database: str
) -> None:
    put(stores[0], entry("/small"), b"x" * STEP_BYTES)
    put(stores[0], entry("/large"), b"x" * (STEP_BYTES + 1))
    files = database[mongo_database]["bodies.files"]
    assert files.count_documents({}) == 1
    stores[0].remove("https://example.com/large")
    assert files.count_documents({}) == 0 and database[mongo_database]["bodies.chunks"].count_documents({}) == 0


def test_processes_share_it(stores: list[MongoStore]) -> None:
    one, other = stores
    stored = put(one, entry("/a", {"Cache-Tag": "t"}), b"1" * 300_000)
    assert stored is not None and list(other.find(KEY)) == [stored] and body_of(other, stored) == b"1" * 300_000
    under_way = other.create(stored)
    assert under_way is not None
    one.purge(Purge(PurgeKind.TAG, "t", stored.requested_at))
    assert not other.find(KEY) and under_way.commit() is None and not one.find(KEY)


def test_it_stays_within_its_room(mongo_uri: str, mongo_database: str) -> None:
    store = MongoStore(mongo_uri, mongo_database, 200_000)
    for number in range(60):
        put(store, entry(f"/{number}"), b"x" * 10_000)
        assert store.statistics().size_bytes <= 200_000
    assert store.statistics().evicted >= 40 and store.find("https://example.com/59")
    assert not store.find("https://example.com/1")
    assert store.create(entry(response={"Content-Length": "200001"})) is None
    maintain(store, 1.8e9)
    counted = store.statistics()
    assert 0 < counted.size_bytes <= 200_000 and counted.entries <= 20
    store.close()


def test_what_belongs_to_nothing_is_removed(
    stores: list[MongoStore], database: MongoClient[dict[str, object]], mongo_database: str
) -> None:
    kept = put(stores[0], entry(), b"1" * 300_000)
    put(stores[0], entry("/gone"), b"2" * 300_000)
    # As the server's TTL index does it.
    database[mongo_database]["responses"].delete_one({"key": "https://example.com/gone"})
    files = database[mongo_database]["bodies.files"]
    maintain(stores[0], time.time())
    assert files.count_documents({}) == 2, "it might be on its way"
    files.update_many({}, {"$set": {"uploadDate": datetime.fromtimestamp(time.time() - 4000, UTC)}})
    maintain(stores[0], time.time())
    assert files.count_documents({}) == 1 and kept is not None and body_of(stores[0], kept) == b"1" * 300_000
    assert stores[0].statistics().entries == 1


def test_a_document_that_is_none_of_ours_is_a_miss(
    stores: list[MongoStore], database: MongoClient[dict[str, object]], mongo_database: str
) -> None:
    stored = put(stores[0], entry(), b"1")
    database[mongo_database]["responses"].update_many({}, {"$set": {"head": {"key": 7}}})
    assert stored is not None and not stores[0].find(KEY) and stores[0].statistics().corrupt == 1
    database[mongo_database]["responses"].update_many({}, {"$unset": {"body": 1, "file": 1}})
    assert stores[0].open(stored) is None


def test_a_response_that_took_too_long_is_not_stored(stores: list[MongoStore]) -> None:
    """The server no longer knows which purges came since."""
    assert put(stores[0], entry(at=time.time() - 700), b"1") is None and not stores[0].find(KEY)
    assert put(stores[0], entry(at=time.time() - 500), b"1") is not None


def test_a_server_that_is_away_is_a_miss_and_costs_its_time_once() -> None:
    store = MongoStore("mongodb://127.0.0.1:1/?serverSelectionTimeoutMS=300", "rpcmq", ROOM)
    stored = entry()
    began = time.monotonic()
    assert not store.find(KEY)
    waited = time.monotonic() - began
    for _ in range(20):
        assert store.open(stored) is None and not store.find(KEY) and not store.refresh(stored)
    assert store.remove(KEY) == 0 and store.purge(Purge(PurgeKind.URL, KEY, 0.0)) == OWED
    assert put(store, stored, b"x" * 600_000) is None and put(store, stored, b"x") is None
    assert maintain(store, 0.0) == 0 and store.statistics().failed >= 1
    assert time.monotonic() - began < 20 * waited + 5
    store.close()


def test_a_server_that_is_killed_is_used_again_when_it_is_back(mongo_server: Server, mongo_database: str) -> None:
    with closing(MongoStore(mongo_server.uri, mongo_database, ROOM)) as store:
        stored = put(store, entry(), b"1" * 600_000)
        assert stored is not None
        opened = store.open(stored)
        assert opened is not None
        mongo_server.kill()
        with pytest.raises(OSError, match="could not be read"):
            list(opened.read(0, 600_000))
        assert not store.find(KEY)
        mongo_server.start()
        end = time.monotonic() + 60
        while (again := put(store, entry(), b"2" * 600_000)) is None:
            assert time.monotonic() < end
        assert list(store.find(KEY)) == [again] and body_of(store, again) == b"2" * 600_000


def test_a_server_that_stands_still_is_a_miss(mongo_server: Server, mongo_database: str) -> None:
    with closing(MongoStore(mongo_server.uri, mongo_database, ROOM)) as store:
        stored = put(store, entry(), b"1")
        assert stored is not None
        with mongo_server.stopped():
            began = time.monotonic()
            assert not store.find(KEY) and store.open(stored) is None
            assert time.monotonic() - began < 20
        end = time.monotonic() + 60
        while not store.find(KEY):
            assert time.monotonic() < end


def test_a_purge_reaches_a_server_that_goes_on_and_is_still_left_alone(
    mongo_server: Server, mongo_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(MongoStore(mongo_server.uri, mongo_database, ROOM)) as other:
        monkeypatch.setattr("rpcmq.proxy.store.mongo_server._FIRST_PAUSE", 3600.0)
        with closing(MongoStore(mongo_server.uri, mongo_database, ROOM)) as store:
            stored = put(store, entry(), b"1")
            assert stored is not None
            with mongo_server.stopped():
                assert not store.find(KEY)
            end = time.monotonic() + 60
            while not other.find(KEY):
                assert time.monotonic() < end
            assert not store.find(KEY)
            assert store.purge(Purge(PurgeKind.URL, KEY, stored.requested_at + 1)) == Purged(1)
            assert not other.find(KEY)
            assert put(store, entry(at=stored.requested_at + 2), b"2") is not None


def test_a_purge_is_written_down_once_though_each_front_end_carries_it_out(
    stores: list[MongoStore], database: MongoClient[dict[str, object]], mongo_database: str
) -> None:
    stored = put(stores[0], entry(), b"1")
    assert stored is not None
    purge = Purge(PurgeKind.URL, KEY, stored.requested_at + 0.1)
    assert [store.purge(purge) for store in stores] == [Purged(1), Purged(0)]
    assert database[mongo_database]["purges"].count_documents({}) == 1


def test_purges_of_others_are_read_once(
    stores: list[MongoStore], database: MongoClient[dict[str, object]], mongo_uri: str, mongo_database: str
) -> None:
    one, other = stores
    assert not other.news(())
    made = [Purge(kind, "x", 1.8e9 + number, soft) for number, kind in enumerate(PurgeKind) for soft in (False, True)]
    for purge in made[:5]:
        one.purge(purge)
    assert set(other.news(())) == set(made[:5]) and not other.news(()) and not one.news(())
    for purge in made[5:]:
        one.purge(purge)
    assert set(other.news(made[5:7])) == set(made[7:])
    # A response that was asked for before is not stored by whoever has only read of it.
    assert other.create(late := entry(at=made[0].at - 1)) and put(other, late, b"x") is None
    # One that comes long afterwards sees the latest ones only; something else there is passed over.
    purges = database[mongo_database]["purges"]
    for soft, age in ((True, 300), (False, 0)):
        purges.update_many({"soft": soft}, {"$set": {"made": datetime.fromtimestamp(time.time() - age, UTC)}})
    purges.insert_one({"made": datetime.fromtimestamp(time.time(), UTC), "kind": "?"})
    with closing(MongoStore(mongo_uri, mongo_database, ROOM)) as third:
        assert set(third.news(())) == {purge for purge in made if not purge.soft}


def test_a_purge_that_is_under_way_counts_here_already(
    stores: list[MongoStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = stores[0]
    stored = put(store, entry(), b"1")
    assert stored is not None
    carry_out = store._carry_out

    def carried_out(purge: Purge, **options: bool) -> int:
        assert not store.find(KEY) and list(store.owed()) == [purge]
        assert put(store, entry(at=stored.requested_at), b"2") is None
        return carry_out(purge, **options)

    monkeypatch.setattr(store, "_carry_out", carried_out)
    assert store.purge(Purge(PurgeKind.URL, KEY, stored.requested_at + 1)) == Purged(1)


def test_what_is_purged_does_not_come_back_with_a_server_that_is_killed(
    mongo_server: Server, mongo_database: str
) -> None:
    with closing(MongoStore(mongo_server.uri, mongo_database, ROOM)) as store:
        put(store, entry("/stays"), b"0")
        for number in range(20):
            stored = put(store, entry(f"/{number}"), b"1")
            assert stored is not None
            purge = Purge(PurgeKind.URL, stored.key, stored.requested_at)
            assert store.purge(purge, confirm=True).is_recorded
        mongo_server.kill()
        mongo_server.start()
        end = time.monotonic() + 60
        while not store.find("https://example.com/stays"):
            assert time.monotonic() < end
        assert [number for number in range(20) if store.find(f"https://example.com/{number}")] == []


@pytest.mark.long
@pytest.mark.parametrize("soft", [False, True])
@pytest.mark.parametrize("kind", list(PurgeKind))
def test_a_purge_counts_though_the_server_is_away(
    mongo_server: Server, mongo_database: str, kind: PurgeKind, soft: bool
) -> None:
    value = {PurgeKind.URL: KEY, PurgeKind.PREFIX: "https://example.com/", PurgeKind.TAG: "t", PurgeKind.ALL: ""}[kind]
    with (
        closing(MongoStore(mongo_server.uri, mongo_database, ROOM)) as store,
        closing(MongoStore(mongo_server.uri, mongo_database, ROOM)) as other,
    ):
        stored = put(store, entry(response={"Surrogate-Key": "t"}), b"1")
        assert stored is not None
        purge = Purge(kind, value, stored.requested_at + 1, soft)

        def seen_by(each: MongoStore) -> list[float]:
            return [found.purged_at for found in each.find(KEY)]

        with mongo_server.stopped():
            assert store.purge(purge) == OWED and list(store.owed()) == [purge]
            store.settle()
            assert list(store.owed()) == [purge]
            late = entry(at=stored.requested_at)
            assert put(store, late, b"2") is None
        after = [purge.at] if soft else []
        end = time.monotonic() + 60
        # What it has missed is not seen meanwhile, and the server is told as soon as it is there.
        while seen_by(other) != after:
            assert seen_by(store) in ([], after) and time.monotonic() < end
            store.settle()
        assert seen_by(store) == after and not store.owed()
        assert put(store, entry(at=purge.at + 1), b"3") is not None


def test_purges_that_are_too_many_to_be_remembered_purge_everything(mongo_server: Server, mongo_database: str) -> None:
    with closing(MongoStore(mongo_server.uri, mongo_database, ROOM)) as store:
        stored = put(store, entry(), b"1")
        assert stored is not None
        with mongo_server.stopped():
            assert not store.find(KEY)
            for number in range(5000):
                purge = Purge(PurgeKind.URL, f"https://example.com/{number}", stored.requested_at + 1)
                assert store.purge(purge) == OWED
            # One stands for those that were forgotten.
            assert len(store.owed()) <= 4097 and store.owed()[0] == Purge(PurgeKind.ALL, "", stored.requested_at + 1)
        end = time.monotonic() + 60
        while store.statistics().removed == 0:
            assert not store.find(KEY) and time.monotonic() < end
            store.settle()
        assert not store.find(KEY) and not store.owed()
        assert put(store, entry(at=stored.requested_at + 2), b"2") is not None and store.find(KEY)
