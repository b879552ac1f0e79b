"""The node type poison at several routers: what one knows the others know, also those that join later."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rpcmq.errors import CallQuarantined, error_for
from rpcmq.nodes.poison import Poison
from rpcmq.nodes.poison.node import POISON_KIND
from rpcmq.testing.mesh_network import Call, MeshNetwork, Process
from rpcmq.testing.nodes import engine_with, plan_of, plug_in_of
from rpcmq.wire import Flag, Kind
from rpcmq.wire.mesh_bodies import NodeNewsBody

BOOM = b'{"a":0}'


class Country:
    """Routers with the node, a caller at each, and consumers where a test wants them."""

    def __init__(self, *names: str) -> None:
        self.net = MeshNetwork(names or ("a", "b"), engine=engine_with(plan_of(Poison)))
        self.net.advance(3)
        self.callers = {name: self.net.process(f"api-{name}", router=name) for name in self.net.hosts}
        self.workers: dict[str, Process] = {}

    def start(self, router: str, *names: str, host: str = "") -> None:
        for name in names:
            worker = self.net.process(name, router=router, host=host or name, pid=len(self.workers))
            worker.register("compute", credit=10)
            self.workers[name] = worker
        self.net.advance(2)

    def call(self, router: str, payload: bytes = BOOM, **options: Any) -> Call:
        options = {"flags": Flag.IDEMPOTENT, "ttl": 600} | options
        return self.callers[router].request("compute", "divide", payload, **options)

    def holder(self, call: Call) -> str:
        holders = (name for name, each in self.workers.items() if any(m.key == call.key for m in each.inbox))
        return next(holders, "")

    def kill_with(self, call: Call, wait: float = 0.6) -> str:
        self.net.advance(0.05)
        name = self.holder(call)
        assert name, call.answers
        self.workers.pop(name).die()
        self.net.advance(wait)
        return name

    def ask(self, router: str, **members: Any) -> list[dict[str, Any]]:
        (answer,) = self.callers[router].send(POISON_KIND, json.dumps(members).encode(), ttl=60_000).answers
        assert answer.kind is Kind.ANSWER, answer.body
        calls: list[dict[str, Any]] = json.loads(answer.payload)["calls"]
        return calls

    def states(self, router: str) -> list[str]:
        return [row["state"] for row in self.ask(router, do="show")]


def is_stopped(call: Call) -> bool:
    if not call.answers:
        return False
    end = call.end
    return end.kind is Kind.ERROR and isinstance(
        error_for(end.outcome, end.body["text"], end.body.get("details")), CallQuarantined
    )


def test_kills_at_two_routers_are_counted_together() -> None:
    country = Country("a", "b", "c")
    country.start("a", "a1")
    country.start("b", "b1")
    call = country.call("c")
    first = country.kill_with(call)
    assert [country.states(router) for router in "abc"] == [["suspect"]] * 3
    second = country.kill_with(call)
    assert {first, second} == {"a1", "b1"}
    assert [country.states(router) for router in "abc"] == [["quarantined"]] * 3
    country.start("c", "c1")
    assert is_stopped(call) and not country.workers["c1"].got(Kind.REQUEST)
    for router in "abc":
        assert is_stopped(country.call(router)) and country.holder(country.call(router, b"other"))
    (row,) = country.ask("b", do="show")
    assert [kill["router"] for kill in row["kills"]] == [first[0], second[0]]


def test_consumers_at_other_routers_that_had_it_and_lived_are_counted_together() -> None:
    country = Country()
    country.start("a", "a1", "a2", "a3")
    country.start("b", "b1", "b2", "b3")
    call = country.call("a", ttl=6000)
    country.net.advance(700)
    for states in ([], ["suspect"], ["suspect"], ["quarantined"]):
        country.kill_with(call, wait=1)
        assert country.states("a") == country.states("b") == states
    assert is_stopped(call)


def test_a_release_at_one_router_is_one_at_all() -> None:
    country = Country()
    country.start("a", "a1", "a2", "a3")
    call = country.call("b")
    country.kill_with(call)
    country.kill_with(call)
    assert is_stopped(call) and country.states("a") == country.states("b") == ["quarantined"]
    country.ask("b", do="release")
    country.net.advance(0.1)
    assert country.states("a") == country.states("b") == []
    assert country.holder(country.call("a")) == "a3"
    notes = [note.text for note in country.net.hosts["a"].notes if note.event == "poison: released"]
    assert len(notes) == 1 and "api-b has released 'divide' of 'compute' at router b" in notes[0]


def test_an_answer_at_one_router_ends_suspicion_at_all() -> None:
    country = Country()
    country.start("a", "a1", "a2")
    call = country.call("b")
    country.kill_with(call)
    assert country.states("a") == country.states("b") == ["suspect"]
    worker = country.workers[country.holder(call)]
    worker.reply(worker.take(Kind.REQUEST), b"1")
    country.net.advance(0.1)
    assert call.end.payload == b"1" and country.states("a") == country.states("b") == []


def test_a_router_that_joins_or_comes_back_learns_of_it() -> None:
    country = Country()
    country.start("a", "a1", "a2", "a3")
    call = country.call("a")
    country.kill_with(call)
    country.kill_with(call)
    country.net.add_router("c")
    country.callers["c"] = country.net.process("api-c", router="c")
    country.net.advance(5)
    assert country.states("c") == ["quarantined"] and is_stopped(country.call("c"))
    country.net.hosts["a"].restart()
    country.callers["a"].connect()
    country.net.advance(5)
    assert country.states("a") == ["quarantined"] and is_stopped(country.call("a"))
    country.start("a", "a4")
    assert country.holder(country.call("a", b"other")) == "a4"


def test_consumers_of_one_host_at_two_routers_are_one_failure() -> None:
    country = Country("a", "b", "c")
    for _ in range(3):
        country.start("a", "a1", "a2", host="node-7")
        country.start("b", "b1", host="node-7")
        call = country.call("a")
        country.net.advance(0.05)
        victims = country.holder(call), "b1"
        for name in set(victims):
            country.workers.pop(name).die()
        country.net.advance(3)
        for worker in country.workers.values():
            worker.stop()
        country.workers.clear()
    assert not any("quarantined" in country.states(router) for router in "abc")
    assert not any(country.states(router) for router in "ab")


def test_a_router_that_knows_nothing_of_it_is_told_nothing() -> None:
    country = Country()
    country.net.router_of("b").mesh.own.nodes = False
    country.net.hosts["a"].restart()
    country.callers["a"].connect()
    country.net.advance(5)
    link = next(iter(country.net.router_of("a").mesh.neighbours)).link
    country.start("a", "a1", "a2", "a3")
    call = country.call("a")
    country.kill_with(call)
    country.kill_with(call)
    assert is_stopped(call) and country.states("b") == [] and link.counters["refused kind"] == 0


@pytest.mark.parametrize(
    "news",
    [
        {}, {"do": 1}, {"do": "gone"}, {"do": "away", "loss": {"process": 1, "age": 0}},
        {"do": "away", "loss": {"process": "x", "age": -1}}, {"do": "away", "loss": {"process": "x", "age": 1e99}},
        {"do": "away", "loss": {"process": "x", "age": 0, "instance": [1, 2]}},
        {"do": "back", "process": "x" * 999}, {"do": "gone", "death": {"loss": []}, "flights": []},
        {"do": "gone", "flights": [{}] * 5}, {"do": "quarantined", "quarantine": {"call": [1]}},
        {"do": "quarantined", "quarantine": {"call": ["f", "", "t", "", "m", "json", 1], "kills": [], "age": 0}},
        {"do": "release", "fingerprint": None}, {"do": "serves"}, {"do": "serves", "serving": [["", "t", "", "k"]]},
        {"do": "serves", "serving": [["", "t"]]}, {"do": "serves", "serving": [["", "t", "", ["k"] * 9]]},
        {"do": "ended"}, {"do": "ended", "ends": [["f"]]}, {"do": "ended", "ends": [["f", -1]]},
        {"do": "ended", "ends": [["f", 1]] * 101},
    ],
)  # fmt: skip
def test_nonsense_of_another_router_costs_that_message_only(news: dict[str, Any]) -> None:
    country = Country()
    neighbour = next(iter(country.net.router_of("a").mesh.neighbours))
    neighbour.link.send(NodeNewsBody(node="poison", news=news).message())
    neighbour.link.send(NodeNewsBody(node="unknown", news=news).message())
    country.net.advance(1)
    assert not plug_in_of(country.net.router_of("b"), "poison").out
    (other,) = country.net.router_of("b").mesh.neighbours
    assert sum(count for name, count in other.link.counters.items() if name.startswith("refused")) == 1
    country.start("b", "b1")
    assert country.holder(country.call("a")) == "b1"
