"""Routers know which addresses the others have consumers for."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rpcmq.core.router.mesh import announcer
from rpcmq.errors import Outcome
from rpcmq.testing.mesh_network import MeshNetwork, Process
from rpcmq.wire import Address, Kind
from rpcmq.wire.interest import MAX_INLINE, InterestBody, place_key
from tests.core.router.mesh.interest import (
    QUIET,
    begin_to_link,
    consumer,
    declare,
    note_bodies,
    rows_of,
    three_routers,
)
from tests.core.router.mesh.known_addresses import Known, assert_known, interest_of, known, places
from tests.core.router.mesh.links import end_link, link_routers


@pytest.fixture
def net() -> Iterator[MeshNetwork]:
    yield from three_routers()


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[InterestBody]:
    return note_bodies(monkeypatch)


# --- what is told ----------------------------------------------------------------------------------


def test_consumers_are_known_to_all_with_their_number_credit_and_names(net: MeshNetwork):
    consumer(net, "b", "compute", "node-1", server="node-1", credit=3)
    consumer(net, "b", "compute", "node-2", server="node-2", credit=4)
    net.advance(QUIET)
    for router in "ac":
        assert known(net, router, "b") == {
            (Address("compute"), ""): Known(2, 7, True, frozenset({"node-1", "node-2"})),
            (Address("compute", "node-1"), ""): Known(1, 3, True, frozenset({"node-1"})),
            (Address("compute", "node-2"), ""): Known(1, 4, True, frozenset({"node-2"})),
        }


def test_a_consumer_that_leaves_is_counted_no_more_and_its_address_is_remembered(net: MeshNetwork):
    node = consumer(net, "b", "compute", server="node", tag=3)
    net.advance(QUIET)
    node.unregister(3)
    net.advance(QUIET)
    assert known(net, "a", "b")[Address("compute", "node"), ""] == Known(0, 0, True, frozenset())


def test_a_declared_address_and_a_group_are_known_without_consumers(net: MeshNetwork):
    node = net.process("node", router="b")
    declare(node, "compute")
    declare(node, "compute", group="audit")
    net.advance(QUIET)
    nobody = Known(0, 0, True, frozenset())
    assert known(net, "a", "b") == {(Address("compute"), ""): nobody, (Address("compute"), "audit"): nobody}


def test_an_address_that_is_forgotten_is_forgotten_everywhere(net: MeshNetwork):
    node = consumer(net, "b", "compute", server="node")
    net.process("api", router="a").cast("compute", server="node")
    net.advance(QUIET)
    node.settle(node.take(Kind.CAST))
    node.stop()
    for router in "abc":
        net.hosts[router].settings.mailbox_max_seconds = 1.0
    net.advance(10.0)
    assert [len(net.router_of(router).directory) for router in "abc"] == [0, 0, 0]
    assert [len(interest_of(net, router).learner.table) for router in "abc"] == [0, 0, 0]
    assert interest_of(net, "b").own.rows == {}, "and so are the identities of its consumers"


def test_consumers_that_do_not_answer_have_no_capacity_and_those_that_are_away_are_not_counted(net: MeshNetwork):
    silent, away = consumer(net, "b", "compute", "silent"), consumer(net, "b", "compute", "away")
    net.advance(QUIET)
    settings = net.hosts["b"].settings
    settings.consumer_grace_seconds = 1000.0
    silent.pause()
    away.lose()
    net.advance(settings.unresponsive_seconds + 1.0)
    names = frozenset({"silent", "away"})
    assert known(net, "a", "b")[Address("compute"), ""] == Known(1, 0, True, names)
    silent.resume()
    away.connect()
    net.advance(QUIET)
    assert known(net, "a", "b")[Address("compute"), ""] == Known(2, 2, True, names)


def test_one_process_is_one_name_however_often_it_consumes(net: MeshNetwork):
    node = consumer(net, "b", "compute", server="node")
    node.register("compute", server="node")
    node.register("volume", server="node")
    net.advance(QUIET)
    assert known(net, "c", "b")[Address("compute"), ""] == Known(2, 2, True, frozenset({"node"}))
    names = [name for name in interest_of(net, "b").own.rows.values() if name.endswith(b"node")]
    assert len(names) == 1


def test_a_burst_costs_one_row_for_each_address_and_a_total_for_the_topic_in_each_batch(
    net: MeshNetwork, told: list[InterestBody]
):
    nodes = [net.process(f"node-{i}", router="b") for i in range(60)]
    net.advance(QUIET)
    told.clear()
    with net.together():
        for node in nodes:
            node.register("compute", server=node.identity)
    net.advance(QUIET)
    rows = rows_of(told)
    assert rows.count(place_key(Address("compute"))) == 2, "a and c are told"
    assert len(rows) == 2 * (1 + 60 + 60), "and the 60 names"


def test_more_places_than_fit_into_a_tick_are_told_in_several(net: MeshNetwork, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(announcer, "_PLACES_IN_ONE_TICK", 10)
    node = net.process("node", router="b")
    with net.together():
        for i in range(100):
            node.register(f"topic-{i}", server=f"server-{i}")
    net.advance(QUIET)
    assert len(known(net, "a", "b")) == 200


def test_long_changes_are_cut_into_messages_of_bounded_size(net: MeshNetwork, told: list[InterestBody]):
    node = net.process("node", router="b")
    with net.together():
        for i in range(200):
            node.register(f"{i}-{'topic' * 40}", tag=i)
    net.advance(QUIET)
    assert len(told) == 6 and len(rows_of(told)) == 2 * 201


# --- many consumers of one address -----------------------------------------------------------------


def crowd(net: MeshNetwork, router: str, count: int) -> list[Process]:
    made = []
    for i in range(count):
        process = net.process(f"worker-{i}", router=router)
        process.register("work", credit=2, tag=1)
        made.append(process)
    return made


def test_all_names_of_a_crowd_are_known_and_those_that_go_are_known_no_more(net: MeshNetwork):
    workers = crowd(net, "b", MAX_INLINE + 60)
    net.advance(QUIET)
    names = {worker.identity for worker in workers}
    assert known(net, "a", "b")[Address("work"), ""] == Known(160, 320, True, frozenset(names))
    for left in (130, 60, 40, 0):
        while len(workers) > left:
            worker = workers.pop(0)
            worker.stop() if len(workers) % 2 else worker.unregister(1)
            names.discard(worker.identity)
        net.advance(QUIET)
        assert known(net, "c", "b")[Address("work"), ""] == Known(left, 2 * left, True, frozenset(names))
    rows = interest_of(net, "b").own.rows
    assert list(rows) == [place_key(Address("work"))]


def test_one_more_in_a_crowd_costs_a_part_of_its_names(net: MeshNetwork, told: list[InterestBody]):
    crowd(net, "b", 1000)
    net.advance(QUIET)
    told.clear()
    consumer(net, "b", "work", "one-more")
    net.advance(QUIET)
    sizes = [InterestBody.size_of(row) for body in told for row in body.rows]
    assert len(sizes) == 2 * 3 and sum(sizes) < 2 * 200


def test_a_crowd_counts_those_that_answer(net: MeshNetwork):
    workers = crowd(net, "b", 150)
    net.advance(QUIET)
    for worker in workers[:20]:
        worker.pause()
    net.advance(net.hosts["b"].settings.unresponsive_seconds + 1.0)
    assert known(net, "a", "b")[Address("work"), ""][:2] == (150, 260)


# --- neighbours that come and go -------------------------------------------------------------------


def test_a_new_router_is_told_everything_in_chunks(net: MeshNetwork, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(announcer, "_MESSAGE_BYTES", 500)
    node = net.process("node", router="b")
    with net.together():
        for i in range(120):
            node.register(f"topic-{i}", tag=i)
    net.advance(QUIET)
    begin_to_link(net)
    assert not interest_of(net, "d").has_converged(net.now)
    assert len(known(net, "d", "b")) < 50
    net.advance(QUIET)
    assert interest_of(net, "d").has_converged(net.now)
    assert len(known(net, "d", "b")) == 120


def test_what_changes_while_a_new_router_is_told_is_right_in_the_end(net: MeshNetwork, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(announcer, "_MESSAGE_BYTES", 50)
    node = net.process("node", router="b")
    with net.together():
        for i in range(100):
            node.register(f"topic-{i}", tag=i)
    net.advance(QUIET)
    begin_to_link(net)
    changes = 0
    for i in range(0, 100, 3):
        node.unregister(i)
        if i % 2:
            node.register(f"topic-{i}", tag=i, credit=7)
        other = net.process(f"other-{i}", router="b")
        other.register(f"other-{i}")
        net.advance(0.003)
        changes += not interest_of(net, "d").has_converged(net.now)
    assert changes > 5, "were made meanwhile"


def test_a_router_with_topics_of_before_the_mesh_tells_them(net: MeshNetwork):
    alone = net.add_router("d", peers=())
    node = consumer(net, "d", "compute", server="node")
    declare(node, "old", group="audit")
    assert interest_of(net, "d").own.rows == {} and alone.router.mesh.next_deadline() == float("inf")
    net.add_router("e", peers=("d",))
    link_routers(net, "d", "e")
    net.advance(QUIET)
    assert set(known(net, "e", "d")) == {
        (Address("compute"), ""), (Address("compute", "node"), ""), (Address("old"), "audit"),
    }  # fmt: skip


def test_the_consumers_of_a_router_that_is_gone_are_void_and_their_names_remembered(net: MeshNetwork):
    node = consumer(net, "b", "compute", server="node")
    net.process("api", router="a").cast("compute", server="node")
    net.advance(QUIET)
    node.settle(node.take(Kind.CAST))
    place = places(net.router_of("a"))[Address("compute", "node"), ""]
    assert [remote.consumers for remote in place.remotes.values()] == [1]
    net.partition(["a", "c"], ["b"])
    end_link(net, "a", "b")
    net.advance(QUIET)
    assert not place.remotes
    interest = interest_of(net, "a")
    assert [(r, n.identity) for r, n in interest.names(Address("compute", "node"))] == [("b", "node")]
    net.advance(90.0)
    assert list(interest.names(Address("compute", "node"))) == [] and not len(interest.learner.table)
    net.heal()
    net.advance(30.0)


def test_a_router_that_comes_back_tells_everything_anew(net: MeshNetwork):
    node = consumer(net, "b", "compute", server="node")
    net.process("api", router="a").cast("compute", server="node")
    net.advance(QUIET)
    node.settle(node.take(Kind.CAST))
    for _ in range(5):
        end_link(net, "a", "b")
        link_routers(net, "a", "b")
        net.advance(QUIET)
        assert_known(net)
    names = [(r, n.identity) for r, n in interest_of(net, "a").names(Address("compute", "node"))]
    assert names == [("b", "node")] * 2, "one earlier life is remembered, not five"


def test_a_router_that_was_away_for_longer_than_consumers_are_waited_for_takes_work_again(net: MeshNetwork):
    node = consumer(net, "b", "compute")
    net.advance(QUIET)
    api = net.process("api", router="a")
    lost = api.request("compute", ttl=60)
    net.cut("a", "b")
    net.reset("a", "b")
    net.advance(2.0)
    net.heal()
    net.advance(QUIET)
    assert {name for name, _ in places(net.router_of("a"))} == {Address("compute")}, "the neighbour is no consumer"
    node.reply(node.take(Kind.REQUEST))
    net.advance(15.0)
    assert len(lost.ends) == 1
    call = api.request("compute", ttl=60)
    net.advance(QUIET)
    node.reply(node.take(Kind.REQUEST))
    net.advance(QUIET)
    assert call.end.outcome is Outcome.OK
