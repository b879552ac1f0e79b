"""Quarantines outlive routers, and releases do, too: nobody brings back what has ended."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rpcmq.nodes.keeper import Keeper
from rpcmq.nodes.poison import Poison
from rpcmq.nodes.poison.node import POISON_KIND
from rpcmq.testing.mesh_network import MeshNetwork
from rpcmq.testing.network import Network
from rpcmq.testing.nodes import engine_with, node_of, plan_of, plug_in_of
from rpcmq.testing.process import Call, Process
from rpcmq.wire import Flag, Kind

BOOM = b'{"a":0}'


class Disks:
    """Routers of a mesh, or one, each with a file; a write is done when a test says so, or at once."""

    def __init__(self, *names: str, max_bytes: int = 1 << 20, **settings: Any) -> None:
        self.keepers = {name: Keeper(max_bytes) for name in names or ("",)}
        plan = plan_of(Poison, settings=settings)

        def engine(router: Any, *args: Any, **options: Any) -> Any:
            keeper = self.keepers[router.router_name if names else ""]
            return engine_with(plan, keepers={"poison": keeper})(router, *args, **options)

        self.net: Any = MeshNetwork(names, engine=engine) if names else Network(engine=engine)
        self.net.advance(3)
        self.booted = dict.fromkeys(self.keepers, self.net.now)
        self.ops: dict[str, Process] = {}
        self.workers: list[Process] = []
        for name in self.keepers:
            self.connect(name)

    def connect(self, name: str) -> None:
        at = {"router": name} if name else {}
        self.ops[name] = self.net.process(f"ops-{name}-{self.net.now}", **at)

    def serve(self, name: str = "") -> None:
        at = {"router": name} if name else {}
        host = f"w{len(self.workers)}"
        worker = self.net.process(host, host=host, pid=1, **at)
        worker.register("compute", credit=10)
        self.workers.append(worker)
        self.net.advance(2)

    def call(self, name: str = "", payload: bytes = BOOM) -> Call:
        return self.ops[name].request("compute", "divide", payload, flags=Flag.IDEMPOTENT, ttl=600)

    def kill(self, call: Call) -> None:
        self.net.advance(0.05)
        (holder,) = [worker for worker in self.workers if any(each.key == call.key for each in worker.inbox)]
        self.workers.remove(holder)
        holder.die()
        self.net.advance(1.5)

    def quarantine(self, name: str = "", payload: bytes = BOOM) -> None:
        call = self.call(name, payload)
        for _ in range(2):
            self.serve(name)
            self.kill(call)
        assert call.end.kind is Kind.ERROR

    def down(self, name: str = "") -> None:
        self.net.hosts[name].kill()
        self.net.advance(30)

    def up(self, name: str = "") -> None:
        now = self.net.now
        self.net.hosts[name].start(clock_step=now - self.booted[name])
        self.booted[name] = now
        self.connect(name)
        self.net.advance(10)

    def rows(self, name: str = "", **members: Any) -> list[dict[str, Any]]:
        call = self.ops[name].send(POISON_KIND, json.dumps({"do": "show", **members}).encode(), ttl=60_000)
        self.keepers[name].on_kept(self.net.now, "")
        self.net.run()
        rows: list[dict[str, Any]] = json.loads(call.answers[0].payload)["calls"]
        return rows

    def states(self) -> list[list[str]]:
        return [[row["state"] for row in self.rows(name)] for name in self.keepers]

    def log(self, event: str, name: str = "") -> list[str]:
        return [note.text for note in self.net.hosts[name].notes if note.event == f"poison: {event}"]


def test_quarantines_and_their_stories_survive_a_router_that_is_killed() -> None:
    disks = Disks()
    disks.quarantine()
    for _ in range(3):
        assert disks.call().end.kind is Kind.ERROR
    (before,) = disks.rows()
    disks.down()
    disks.up()
    (after,) = disks.rows()
    assert after["kills"] == before["kills"] and after["fingerprint"] == before["fingerprint"]
    assert abs(after["since_ms"] - before["since_ms"]) < 100 and after["state"] == "quarantined"
    assert "were in force when the router ended: 1" in disks.log("restored")[-1]
    disks.serve()
    stopped = disks.call()
    assert "has killed 2 consumers" in stopped.end.body["text"] and not disks.call(payload=b"other").answers


def test_how_many_were_stopped_survives_an_orderly_end() -> None:
    disks = Disks()
    disks.quarantine()
    disks.call()
    plug_in_of(disks.net.router, "poison").restart(disks.net.now)
    (row,) = disks.rows()
    assert row["stopped"] == 2 and disks.call().end.kind is Kind.ERROR


def test_a_release_is_answered_when_it_is_on_the_disk() -> None:
    disks = Disks()
    disks.quarantine()
    ask = json.dumps({"do": "release"}).encode()
    call = disks.ops[""].send(POISON_KIND, ask, ttl=60_000)
    assert call.answers == [] and disks.rows() == []
    (answer,) = call.answers
    assert len(json.loads(answer.payload)["calls"]) == 1 and "not_kept" not in json.loads(answer.payload)
    disks.down()
    disks.up()
    assert disks.rows() == []
    disks.serve()
    assert not disks.call().answers, "it was released"


@pytest.mark.parametrize(("problem", "says"), [("no space", "no space"), ("", "takes longer than 3 s")])
def test_who_releases_is_told_that_the_disk_does_not_have_it(problem: str, says: str) -> None:
    disks = Disks()
    disks.quarantine()
    call = disks.ops[""].send(POISON_KIND, json.dumps({"do": "release"}).encode(), ttl=60_000)
    if problem:
        disks.keepers[""].on_kept(disks.net.now, problem)
    disks.net.advance(4)
    (answer,) = call.answers
    assert says in json.loads(answer.payload)["not_kept"] and disks.rows() == []


def test_whoever_waits_no_more_for_its_release_is_forgotten() -> None:
    disks = Disks()
    disks.quarantine()
    disks.ops[""].send(POISON_KIND, json.dumps({"do": "release"}).encode(), ttl=60_000)
    disks.ops[""].stop()
    disks.keepers[""].on_kept(disks.net.now, "")
    disks.net.advance(5)
    assert not plug_in_of(disks.net.router, "poison").out


@pytest.mark.parametrize("are_linked", [True, False])
def test_a_release_while_a_router_was_down_holds_there_too(are_linked: bool) -> None:
    """Router a has the quarantine on its disk, and b the release: whoever hears of the other first."""
    disks = Disks("a", "b")
    disks.quarantine("a")
    assert disks.states() == [["quarantined"]] * 2
    disks.down("a")
    assert len(disks.rows("b", do="release")) == 1
    if not are_linked:
        disks.net.cut("a", "b")
    disks.up("a")
    if not are_linked:
        assert disks.states() == [["quarantined"], []]
        disks.net.heal()
        disks.net.advance(20)
    assert disks.states() == [[], []]
    assert "its quarantine has ended at router b meanwhile" in disks.log("lifted", "a")[-1]
    disks.down("b")
    disks.down("a")
    disks.up("a")
    disks.up("b")
    assert disks.states() == [[], []]


def test_a_call_that_is_quarantined_again_after_its_release_stays_so() -> None:
    disks = Disks("a", "b")
    disks.quarantine("a")
    disks.down("b")
    assert len(disks.rows("a", do="release")) == 1
    disks.quarantine("a")
    disks.up("b")
    assert disks.states() == [["quarantined"]] * 2
    disks.down("a")
    disks.down("b")
    disks.up("b")
    disks.up("a")
    assert disks.states() == [["quarantined"]] * 2


def test_all_routers_of_a_mesh_may_be_down_at_once() -> None:
    disks = Disks("a", "b")
    disks.quarantine("a")
    disks.quarantine("b", b"other")
    disks.down("a")
    disks.down("b")
    disks.up("b")
    assert [row["state"] for row in disks.rows("b")] == ["quarantined"] * 2
    disks.up("a")
    assert disks.states() == [["quarantined"] * 2] * 2


def test_an_answer_and_the_end_of_its_time_are_kept_too() -> None:
    disks = Disks(lasts=1000.0)
    disks.quarantine()
    disks.net.advance(1001)
    assert disks.rows() == [] and "quarantine" not in next(iter(disks.keepers[""].rows.values()))
    disks.down()
    disks.up()
    assert disks.rows() == []
    disks.net.advance(1001)
    assert disks.keepers[""].rows == {}, "ends are forgotten when what has ended would have"


def test_a_quarantine_whose_time_was_over_meanwhile_is_not_brought_back() -> None:
    disks = Disks(lasts=1000.0)
    disks.quarantine()
    disks.net.hosts[""].kill()
    disks.net.advance(2000)
    disks.up()
    assert disks.rows() == []


def rows_with(**changes: Any) -> dict[str, Any]:
    disks = Disks()
    disks.quarantine()
    (row,) = disks.keepers[""].rows.values()
    return row | changes


@pytest.mark.parametrize(
    ("change", "is_left"),
    [
        ({"version": 2}, True), ({"version": None}, True), ({"version": [1] * 1000}, True), ({"at_ms": -1}, False),
        ({"at_ms": "soon"}, False), ({"stopped": 1.5}, False), ({"quarantine": {}}, False),
        ({"quarantine": None}, False), ({"quarantine": [[]] * 99}, False),
    ],
)  # fmt: skip
def test_rows_that_make_no_sense_are_forgotten_and_later_ones_left_alone(change: dict[str, Any], is_left: bool) -> None:
    row = rows_with(**change)
    disks = Disks()
    disks.down()
    disks.keepers[""].keep("abcdef", row)
    disks.up()
    assert not plug_in_of(disks.net.router, "poison").out and disks.rows() == []
    assert len(disks.log("not restored")) == 1 and ("abcdef" in disks.keepers[""].rows) is is_left
    disks.quarantine()
    assert [each["state"] for each in disks.rows()] == ["quarantined"]


def test_where_there_is_no_room_it_is_quarantined_and_said() -> None:
    disks = Disks(max_bytes=100)
    disks.quarantine()
    assert [each["state"] for each in disks.rows()] == ["quarantined"]
    assert "exceed max_bytes = 100" in disks.log("not kept")[0]
    assert not plug_in_of(disks.net.router, "poison").out


def test_no_more_than_may_be_are_restored() -> None:
    disks = Disks()
    for payload in (b"1", b"2", b"3"):
        disks.quarantine(payload=payload)
    rows = list(disks.keepers[""].encoded.values())
    fewer = Disks(max_quarantined=2)
    fewer.down()
    fewer.keepers[""].restore(rows)
    fewer.up()
    assert len(fewer.rows()) == 2 and "max_quarantined" in fewer.log("not restored")[0]
    assert len(fewer.keepers[""].rows) == 2


def test_ends_are_bounded() -> None:
    disks = Disks()
    archive = node_of(disks.net.router, "poison")._archive
    for number in range(2100):
        archive.end(disks.net.now, f"{number:032x}", disks.net.now)
    assert len(archive._ends) == len(disks.keepers[""].rows) == 2000
    told = list(archive.told(disks.net.now))
    assert len(told) == 20 and max(map(len, told)) == 100
    assert not archive.has_ended("0" * 32, 0.0) and archive.has_ended(f"{2099:032x}", 0.0)
