"""nova.rpc.matchmaker."""

from __future__ import annotations

import json

import pytest

RING = {"scheduler": ["one", "two", "three"], "cert": ["one"]}


@pytest.fixture
def matchmaker(at):
    return at("folsom")("nova.openstack.common.rpc.matchmaker")


def test_ring_takes_hosts_in_turn(matchmaker):
    ring = matchmaker.MatchMakerRing(RING)
    hosts = [ring.queues("scheduler") for _ in range(4)]
    assert hosts == [[(f"scheduler.{host}", host)] for host in ("one", "two", "three", "one")]
    assert ring.queues("cert") == [("cert.one", "one")]


def test_ring_reaches_all_by_fanout(matchmaker):
    ring = matchmaker.MatchMakerRing(RING)
    assert [host for _, host in ring.queues("fanout~scheduler")] == ["one", "two", "three"]
    assert ring.queues("fanout~cert") == [("fanout~cert.one", "one")]


@pytest.mark.parametrize("key", ["unknown", "fanout~unknown", "empty", "fanout~empty"])
def test_ring_knows_no_other_topics(matchmaker, key):
    assert matchmaker.MatchMakerRing(RING | {"empty": []}).queues(key) == []


def test_key_with_a_host(matchmaker):
    for maker in (matchmaker.MatchMakerRing(RING), matchmaker.MatchMakerLocalhost()):
        assert maker.queues("hello.server.example") == [("hello.server.example", "server.example")]


def test_localhost(matchmaker):
    maker = matchmaker.MatchMakerLocalhost()
    assert maker.queues("hello") == [("hello.localhost", "localhost")]
    assert maker.queues("fanout~hello.server") == [("fanout~hello.localhost", "localhost")]
    assert matchmaker.MatchMakerLocalhost("here").queues("hello") == [("hello.here", "here")]


def test_stub(matchmaker):
    for key in ("hello", "hello.server", "fanout~hello"):
        assert matchmaker.MatchMakerStub().queues(key) == [(key, None)]


def test_bindings_are_asked_in_order(matchmaker):
    maker = matchmaker.MatchMakerBase()
    maker.add_binding(matchmaker.FanoutBinding(), matchmaker.DirectExchange())
    assert maker.queues("hello.world") == []
    assert [host for _, host in maker.queues("fanout~fantasy.unicorn")] == ["unicorn"]
    maker.add_binding(matchmaker.TopicBinding(), matchmaker.StubExchange(), last=False)
    maker.add_negate_binding(matchmaker.DirectBinding(), matchmaker.LocalhostExchange())
    assert maker.queues("hello") == [("hello", None), ("hello.localhost", "localhost")]
    assert maker.queues("hello.world") == []


def test_own_exchange_and_binding(matchmaker):
    class Everything(matchmaker.Binding):  # type: ignore[misc, name-defined]
        def test(self, key: str) -> bool:
            return True

    class Nowhere(matchmaker.Exchange):  # type: ignore[misc, name-defined]
        def run(self, key: str) -> list[tuple[str, str]]:
            return [(key, "nowhere")]

    maker = matchmaker.MatchMakerBase()
    maker.add_binding(Everything(), Nowhere())
    assert maker.queues("any.thing") == [("any.thing", "nowhere")]


def test_ring_of_a_file(at, matchmaker, tmp_path, monkeypatch):
    file = tmp_path / "ring.json"
    file.write_text(json.dumps(RING))
    monkeypatch.setattr("compat.nova.options.value", {"matchmaker_ringfile": str(file)}.__getitem__)
    assert matchmaker.MatchMakerRing().queues("cert") == [("cert.one", "one")]
    file.unlink()
    with pytest.raises(matchmaker.MatchMakerException, match=r"ring\.json"):
        matchmaker.MatchMakerRing()


def test_havana_keeps_the_ring_elsewhere(at):
    load = at("havana")
    ring = load("nova.openstack.common.rpc.matchmaker_ring").MatchMakerRing
    assert ring is load("nova.rpc.matchmaker").MatchMakerRing
