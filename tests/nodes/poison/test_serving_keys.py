"""The rule of two keys: who has one key cannot have calls quarantined that others would have answered."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rpcmq.core.router.rights import Key, Right
from rpcmq.nodes.poison import Poison
from rpcmq.nodes.poison.facts import Address
from rpcmq.nodes.poison.node import POISON_KIND
from rpcmq.nodes.poison.serving_keys import ServingKeys
from rpcmq.testing.mesh_network import Call, MeshNetwork
from rpcmq.testing.network import Network
from rpcmq.testing.nodes import engine_with, plan_of
from rpcmq.testing.process import Process
from rpcmq.wire import Flag, Kind

COMPUTE: Address = ("", "compute", "")
BOOM = b'{"a":0}'
#: Of the registration of each consumer.
TAG = 1


def key(name: str) -> Key:
    rights = (Right(frozenset({"admin", "call", "node", "serve"}), ("#",)),)
    return Key(name, name[0].upper() * 40, rights, ("*",))


class Village:
    """A router whose consumers have keys."""

    def __init__(self, *keys: str, **settings: Any) -> None:
        self.net: Any = Network(engine=engine_with(plan_of(Poison, settings=settings)))
        self.keys = [key(name) for name in ("ops", *keys)]
        self.allow(*self.keys)
        self.ops = self.net.process("ops", user="O" * 40)
        self.workers: dict[str, Process] = {}

    def allow(self, *keys: Key) -> None:
        self.net.router.set_authorized_keys(self.net.now, keys)

    def serve(self, key: str, count: int = 1, topic: str = "compute", server: str = "") -> None:
        for _ in range(count):
            name = f"{key}:{len(self.workers)}"
            worker = self.workers[name] = self.connect(name, key)
            worker.register(topic, server, credit=10, tag=TAG)

    def connect(self, name: str, key: str) -> Process:
        worker: Process = self.net.process(name, host=name, pid=1, user=key[0].upper() * 40)
        return worker

    def call(self, **address: str) -> Call:
        return self.ops.request("compute", "divide", BOOM, flags=Flag.IDEMPOTENT, ttl=600, **address)

    def kill(self, call: Call, only: str = "") -> str:
        """Have the consumer die that has the call, and return its key; not if that is another one than ``only``."""
        self.net.advance(0.01)
        holder = next((n for n, w in self.workers.items() if any(m.key == call.key for m in w.inbox)), "")
        if not holder or (only and not holder.startswith(only)):
            return ""
        self.workers.pop(holder).die()
        self.net.advance(0.6)
        return holder.partition(":")[0]

    def ask(self, **members: Any) -> list[dict[str, Any]]:
        (answer,) = self.ops.send(POISON_KIND, json.dumps(members).encode(), ttl=60_000).answers
        assert answer.kind is Kind.ANSWER, answer.body
        calls: list[dict[str, Any]] = json.loads(answer.payload)["calls"]
        return calls

    def states(self) -> list[str]:
        return [row["state"] for row in self.ask(do="show")]

    def kill_of(self, key: str, times: int) -> None:
        """Have ``times`` consumers of ``key`` die of the call, each given it first, whatever else there is."""
        for _ in range(times):
            others = [worker for name, worker in self.workers.items() if not name.startswith(key)]
            for worker in others:
                worker.unregister(TAG)
            call = self.call()
            for worker in others:
                worker.register("compute", credit=10, tag=TAG)
            assert self.kill(call) == key
            self.ops.cancel(call)


def test_deaths_of_one_key_do_not_quarantine_where_others_serve_too() -> None:
    village = Village("good", "rogue")
    village.serve("good", 2)
    village.serve("rogue", 5)
    village.kill_of("rogue", 4)
    assert village.states() == ["suspect"]
    # One of the others answers it: it has not died of it.
    village.serve("good")
    call = village.call()
    holder = next(w for w in village.workers.values() if any(m.key == call.key for m in w.inbox))
    holder.reply(holder.take(Kind.REQUEST), b"1")
    assert call.end.payload == b"1" and village.states() == []


def test_a_killer_is_quarantined_when_a_consumer_of_a_second_key_has_died() -> None:
    village = Village("blue", "green")
    village.serve("blue", 4)
    village.serve("green", 4)
    call = village.call()
    keys: list[str] = []
    while died := village.kill(call):
        keys.append(died)
    assert set(keys) == {"blue", "green"} and village.states() == ["quarantined"]
    assert len(keys) == max(2, 1 + min(keys.index("blue") or keys.index("green"), 5))


def test_where_each_consumer_has_a_key_of_its_own_two_deaths_are_enough() -> None:
    village = Village("ann", "bob", "cid")
    for name in ("ann", "bob", "cid"):
        village.serve(name)
    call = village.call()
    assert {village.kill(call), village.kill(call)} < {"ann", "bob", "cid"}
    assert village.states() == ["quarantined"] and not village.kill(call)


def test_where_all_have_one_key_two_deaths_are_enough_as_without_keys() -> None:
    village = Village("good", "other")
    village.serve("good", 4)
    village.serve("other", topic="volume")
    call = village.call()
    assert village.kill(call) == village.kill(call) == "good"
    assert village.states() == ["quarantined"]


def test_a_server_that_is_called_by_name_has_only_its_own_keys() -> None:
    """Others serve the topic, but nobody else can be given what is for this server."""
    village = Village("good", "other")
    village.serve("other", 2)
    for _ in range(2):
        village.serve("good", server="node-7")
        call = village.call(server="node-7")
        assert village.kill(call) == "good"
    assert village.states() == ["quarantined"]


def test_a_key_that_served_until_lately_counts() -> None:
    village = Village("good", "rogue")
    village.serve("good")
    village.serve("rogue", 3)
    village.kill_of("rogue", 1)
    village.workers.pop("good:0").stop()
    village.kill_of("rogue", 1)
    assert village.states() == ["suspect"]


def test_so_many_of_one_key_as_are_set_are_enough() -> None:
    village = Village("fleet", "odd", kills_of_one_key=4)
    village.serve("fleet", 6)
    village.serve("odd")
    village.kill_of("fleet", 3)
    assert village.states() == ["suspect"]
    village.kill_of("fleet", 1)
    assert village.states() == ["quarantined"]


def test_a_death_of_a_second_key_that_was_none_lifts_it() -> None:
    village = Village("good", "rogue")
    village.serve("rogue", 3)
    village.serve("good")
    village.kill_of("rogue", 2)
    victim = village.workers["good:3"]
    for name, worker in village.workers.items():
        if name.startswith("rogue"):
            worker.unregister(TAG)
    village.call()
    victim.lose()
    village.net.advance(1.5)
    assert village.states() == ["quarantined"]
    victim.connect()
    village.net.advance(0.1)
    assert village.states() == ["suspect"]


def test_a_quarantine_of_a_revoked_key_is_marked_and_released_with_all_of_its_sort() -> None:
    village = Village("agent", "rogue")
    village.serve("rogue", 3)
    village.kill_of("rogue", 2)
    (row,) = village.ask(do="show")
    assert (row["state"], row["revoked"], row["revoked_keys"]) == ("quarantined", False, [])
    assert village.ask(do="release", revoked=True) == []
    village.allow(*(each for each in village.keys if each.name != "rogue"))
    (row,) = village.ask(do="show")
    assert (row["state"], row["revoked"], row["revoked_keys"]) == ("quarantined", True, ["rogue"])
    assert [each["fingerprint"] for each in village.ask(do="release", revoked=True)] == [row["fingerprint"]]
    assert village.states() == []


def test_a_quarantine_that_holds_without_the_revoked_key_is_not_released_with_those() -> None:
    village = Village("ann", "bob", "cid")
    call = village.call()
    for name in ("ann", "bob"):
        village.serve(name)
        assert village.kill(call) == name
    village.serve("cid")
    assert village.states() == ["quarantined"]
    village.allow(*(each for each in village.keys if each.name != "cid"))
    assert not village.ask(do="show")[0]["revoked"] and village.ask(do="release", revoked=True) == []


# --- several routers -----------------------------------------------------------------------------


class Region(Village):
    """Two routers, a and b: the consumers of the key good are at b, those of others at a."""

    def __init__(self, *keys: str) -> None:
        self.net: Any = MeshNetwork(("a", "b"), engine=engine_with(plan_of(Poison)))
        self.net.advance(3)
        self.keys = [key(name) for name in ("ops", *keys)]
        self.allow(*self.keys)
        self.ops = self.net.process("ops", user="O" * 40, router="a")
        self.workers = {}

    def allow(self, *keys: Key) -> None:
        for host in self.net.hosts.values():
            host.router.set_authorized_keys(self.net.now, keys)

    def connect(self, name: str, key: str) -> Process:
        worker: Process = self.net.process(
            name, host=name, pid=1, user=key[0].upper() * 40, router="b" if key == "good" else "a"
        )
        return worker


@pytest.mark.parametrize("is_there_before", [True, False])
def test_keys_of_consumers_at_other_routers_count(is_there_before: bool) -> None:
    """Return whether they serve when the first consumer dies, or come after it."""
    region = Region("good", "rogue")
    region.serve("rogue", 4)
    if is_there_before:
        region.serve("good")
    region.net.advance(2)
    call = region.call()
    assert region.kill(call) == "rogue"
    if not is_there_before:
        region.serve("good")
        region.net.advance(5)
    assert region.kill(call) == "rogue"
    assert region.states() == ["suspect"], "b would have said what serves there"


def test_a_router_that_joins_tells_which_keys_serve_there() -> None:
    region = Region("good", "rogue")
    region.net.cut("a", "b")
    region.net.advance(30)
    region.serve("rogue", 4)
    region.serve("good")
    call = region.call()
    assert region.kill(call) == "rogue"
    region.net.heal()
    region.net.advance(10)
    assert region.kill(call, "rogue") == "rogue" and region.states() == ["suspect"]


# --- the memory of it ----------------------------------------------------------------------------


def test_keys_are_forgotten_in_time_and_bounded() -> None:
    known = ServingKeys(60.0)
    known.note(0.0, COMPUTE, ["old"])
    known.note(59.0, COMPUTE, ["new"])
    assert known.of(COMPUTE) == {"old", "new"}
    known.note(61.0, COMPUTE, ["new"])
    assert known.of(COMPUTE) == {"new"}
    known.note(62.0, COMPUTE, [f"k{number}" for number in range(100)])
    assert len(known.of(COMPUTE)) == 8
    for number in range(2000):
        known.note(70.0, ("", f"t{number}", ""), ["k"])
    assert len(known._seen) == 1000 and known.of(("", "t0", "")) == set()
    known.forget_old(131.0)
    assert not known._seen


def test_other_routers_are_told_what_is_new_once() -> None:
    known = ServingKeys(60.0)
    assert not known.is_news(0.0, COMPUTE, frozenset())
    assert known.is_news(0.0, COMPUTE, frozenset(["a"])) and not known.is_news(1.0, COMPUTE, frozenset(["a"]))
    assert known.is_news(2.0, COMPUTE, frozenset(["a", "b"])) and known.is_news(40.0, COMPUTE, frozenset(["a", "b"]))
    known.forget_told()
    assert known.is_news(41.0, COMPUTE, frozenset(["a", "b"]))
