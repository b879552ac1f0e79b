"""Routers know which addresses the others have consumers for."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rpcmq.core.router.mesh import announcer
from rpcmq.errors import Outcome
from rpcmq.testing.mesh_network import MeshNetwork, Process
from rpcmq.wire import Address, Flag, Kind, json_bytes, pack
from rpcmq.wire.interest import MAX_INLINE, InterestBody, PlaceState, place_key
from tests.core.router.mesh.known_addresses import Known, assert_known, interest_of, known, places
from tests.core.router.mesh.links import end_link, link_all, link_routers, neighbour_of

QUIET = 1.0


@pytest.fixture
def net() -> Iterator[MeshNetwork]:
    """Three routers, each linked to each."""
    net = link_all(MeshNetwork())
    yield net
    net.advance(QUIET)
    assert_known(net)


def consumer(net: MeshNetwork, router: str, topic: str, name: str = "node", **registration: object) -> Process:
    process = net.process(name, router=router)
    process.register(topic, **registration)  # type: ignore[arg-type]
    return process


def declare(process: Process, topic: str, server: str = "", group: str = "") -> None:
    body = json_bytes({"group": group})
    process.send(Kind.DECLARE, body, format=1, address=Address(topic, server).encode())


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[InterestBody]:
    """What routers read."""
    bodies: list[InterestBody] = []
    read = InterestBody.of

    def of(message: bytes) -> InterestBody:
        bodies.append(read(message))
        assert len(message) < 32_000
        return bodies[-1]

    monkeypatch.setattr(InterestBody, "of", of)
    return bodies


def rows_of(told: list[InterestBody]) -> list[bytes]:
    return [key for body in told for key, _ in body.rows]


def begin_to_link(net: MeshNetwork) -> None:
    """Add a router, and link it to b: it is not told everything yet."""
    net.add_router("d", peers=("b",))
    while not len(net.router_of("d").mesh.neighbours):
        net.advance(0.001)


# --- what is told ----------------------------------------------------------------------------


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


# --- many consumers of one address -----------------------------------------------------------


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


# --- neighbours that come and go -------------------------------------------------------------


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
    net.cut("a", "b")
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


# --- faults ----------------------------------------------------------------------------------


def test_a_router_that_has_missed_a_change_asks_for_all_anew(net: MeshNetwork):
    consumer(net, "b", "compute", server="node")
    net.advance(QUIET)
    interest = interest_of(net, "b")
    reader = interest.announcer._readers[neighbour_of(net, "b", "a")]
    reader.has_begun = False  # a defect: it is not told
    consumer(net, "b", "volume", "other")
    net.advance(QUIET)
    reader.has_begun = True
    consumer(net, "b", "image", "third")
    net.advance(QUIET)
    assert neighbour_of(net, "a", "b").counters["interest asked for anew"] == 1
    notes = [note.text for note in net.hosts["a"].notes if note.event == "interest asked for anew"]
    assert notes == ["addresses of router b are asked for anew: version 3 after 2"]


def test_a_table_that_has_become_wrong_is_noticed_by_its_digest(net: MeshNetwork):
    consumer(net, "b", "compute", server="node")
    net.process("api", router="a").cast("compute", server="ghost", ttl=1)
    net.advance(QUIET)
    table = interest_of(net, "a").learner.table
    source = interest_of(net, "a").learner._sources[neighbour_of(net, "a", "b")]
    assert source.holding is not None
    table.put(source.holding, place_key(Address("compute", "ghost")), PlaceState(1, 1, True).encode())
    place = places(net.router_of("a"))[Address("compute", "ghost"), ""]
    interest_of(net, "a").learner._places.set_remote(net.now, place, source.link, 1, 1)
    assert len(known(net, "a", "b")) == 3 and place.remotes
    net.advance(31.0)
    assert len(known(net, "a", "b")) == 2 and not place.remotes
    assert neighbour_of(net, "a", "b").counters["interest asked for anew"] == 1


@pytest.mark.parametrize(
    ("key", "state", "text"),
    [
        (b"\0\1", b"", "address block of 2 bytes"),
        (Address("compute").encode(), b"\1", "has 1 bytes"),
        (Address("compute").encode() + b"\xff", PlaceState(1, 1).encode(), "not UTF-8"),
        (Address("compute", "node").encode() + b"group", PlaceState(1, 1).encode(), "one of a server"),
        (bytes(3) + b"\0\0\1", bytes(12) + b"\xff", "not UTF-8"),
        (bytes(3) + b"\0\0\1", b"node", "too few for the origin"),
        (bytes(3) + b"\0\0\1", bytes(12) + b"a\nb", "control character"),
        (bytes(3) + b"\1", b"node", "key of an identity"),
        (Address("compute").encode() + b"\0\1", bytes(16), "number of a part"),
        (Address("compute").encode() + b"\0\0\0\1", b"x", "part of the consumers"),
        (Address("compute").encode() + b"\0\xff\xff\xff", bytes(16), "beyond all numbers"),
    ],
)
def test_a_malformed_row_costs_the_message_and_all_rows_are_asked_for(
    net: MeshNetwork, key: bytes, state: bytes, text: str
):
    consumer(net, "b", "compute")
    net.advance(QUIET)
    link = neighbour_of(net, "b", "a")
    version = interest_of(net, "b").announcer.version
    rows = [(place_key(Address("good")), PlaceState(1, 1, True).encode()), (key, state)]
    link.send(InterestBody(False, False, True, version, version + 1, 9, 9, rows).message())
    net.advance(QUIET)
    assert (Address("good"), "") not in known(net, "a", "b")
    assert neighbour_of(net, "a", "b").counters["interest asked for anew"] == 1
    assert net.router_of("a").refused.total() == 1
    assert any(text in note.text for note in net.hosts["a"].notes), net.hosts["a"].notes


def test_a_router_that_is_wrong_again_and_again_is_asked_ever_less_often(net: MeshNetwork):
    link = neighbour_of(net, "b", "a")
    asked = neighbour_of(net, "a", "b").counters
    for _ in range(600):
        version = interest_of(net, "b").announcer.version
        link.send(InterestBody(False, False, True, version, version, 99, 99, []).message())
        net.advance(0.2)
    assert asked["interest asked for anew"] < 200


def test_a_router_that_does_not_take_changes_gets_all_rows_once_it_does(
    net: MeshNetwork, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(announcer, "_MOST_BACKLOG_MESSAGES", 10)
    consumer(net, "b", "old", tag=1).unregister(1)
    net.advance(QUIET)
    net.cut("a", "b")
    net.reset("a", "b")
    link = neighbour_of(net, "b", "a")
    node = net.process("other", router="b")
    for i in range(50):
        node.register(f"topic-{i}", tag=i)
        net.advance(0.01)
    assert link.route is None and len(link.outbox) == 11
    net.heal()
    net.advance(2 * QUIET)
    assert neighbour_of(net, "b", "a") is link and len(known(net, "a", "b")) == 51
    assert not neighbour_of(net, "a", "b").counters["interest asked for anew"]


def test_an_acknowledgement_of_what_was_not_told_is_refused(net: MeshNetwork):
    neighbour_of(net, "a", "b").send(pack(Kind.INTEREST_ACK, sequence=99))
    net.run()
    assert net.router_of("b").refused == {"ack": 1}


def test_rows_beyond_the_bounds_are_counted_and_attributed(net: MeshNetwork):
    net.hosts["a"].settings.mesh_max_addresses = 10
    node = net.process("node", router="b")
    for i in range(20):
        node.register(f"topic-{i}", tag=i)
    net.advance(31.0)
    assert len(known(net, "a", "b")) == 9, "and one name"
    counters = neighbour_of(net, "a", "b").counters
    assert counters["addresses beyond the limit"] == 11 and not counters["interest asked for anew"]
    notes = [note.text for note in net.hosts["a"].notes if note.event == "too many addresses"]
    assert notes == ["of router b, 10 addresses are known, and no more: mesh.max_addresses = 10"]
    net.hosts["a"].settings.mesh_max_addresses = 1000
    end_link(net, "a", "b")
    link_routers(net, "a", "b")


def test_an_address_that_does_not_fit_into_the_directory_is_counted(net: MeshNetwork):
    net.process("api", router="a").cast("audit", ttl=1000)
    net.advance(QUIET)
    settings = net.hosts["a"].settings
    settings.max_topics = 1
    node = net.process("node", router="b")
    for group in ("one", "two"):
        declare(node, "audit", group=group)
    net.advance(QUIET)
    assert neighbour_of(net, "a", "b").counters["addresses not noted"] == 2
    notes = [note.text for note in net.hosts["a"].notes if note.event == "address not noted"]
    assert notes == [
        "'audit', of which router b has consumers, is not noted: topic limit reached (topics.max_topics = 1)"
    ]
    settings.max_topics = 1000
    end_link(net, "a", "b")
    link_routers(net, "a", "b")


# --- what it is used for ---------------------------------------------------------------------


def asked(process: Process) -> list[bytes]:
    return [m.payload for m in process.got(Kind.REQUEST, Kind.CAST)]


def test_a_servers_own_topic_may_be_named_as_one_topic_at_any_router(net: MeshNetwork):
    node = consumer(net, "b", "compute", server="node.7", credit=5)
    net.advance(QUIET)
    api = net.process("api", router="a")
    call = api.request("compute.node.7", payload=b"1")
    net.advance(QUIET)
    node.reply(node.take(Kind.REQUEST), b"answer")
    net.advance(QUIET)
    assert call.end.payload == b"answer"
    assert len(net.router_of("a").directory) == 1, "no topic was made for the one name"


def test_messages_sent_to_the_one_name_before_the_server_was_known_are_delivered(net: MeshNetwork):
    api = net.process("api", router="a")
    api.cast("compute.node-7", payload=b"1")
    net.advance(QUIET)
    node = consumer(net, "b", "compute", server="node-7", credit=5)
    net.advance(QUIET)
    api.cast("compute.node-7", payload=b"2")
    api.cast("compute", server="node-7", payload=b"3")
    net.advance(QUIET)
    casts = node.got(Kind.CAST)
    assert [m.payload for m in casts] == [b"1", b"2", b"3"]
    node.settle(*casts)


def test_a_topic_that_is_consumed_by_that_name_is_no_servers_own_topic(net: MeshNetwork):
    literal = consumer(net, "b", "compute.node-7", "literal")
    server = consumer(net, "c", "compute", "server", server="node-7")
    net.advance(QUIET)
    net.process("api", router="a").cast("compute.node-7", payload=b"1")
    net.advance(QUIET)
    assert asked(literal) == [b"1"] and asked(server) == []
    literal.stop()


def test_groups_of_other_routers_get_their_copies(net: MeshNetwork):
    api = net.process("api", router="a")
    api.cast("audit", payload=b"0")  # the topic is known at a, and has no groups
    for router, group in (("b", "one"), ("c", "two")):
        declare(net.process(f"early-{group}", router=router), "audit", group=group)
    net.advance(QUIET)
    api.cast("audit", payload=b"1")
    new = net.process("new", router="c")
    new.cast("audit", payload=b"2")  # here the topic is made by this cast
    net.advance(QUIET)
    one, two = consumer(net, "b", "audit", "n1", group="one"), consumer(net, "c", "audit", "n2", group="two", credit=5)
    net.advance(QUIET)
    first = one.take(Kind.CAST)
    one.settle(first)
    net.advance(QUIET)
    second = one.take(Kind.CAST)
    one.settle(second)
    casts = two.got(Kind.CAST)
    two.settle(*casts)
    assert sorted([first.payload, second.payload]) == [b"1", b"2"]
    assert sorted(m.payload for m in casts) == [b"1", b"2"]


def test_a_group_is_remembered_as_long_as_any_router_knows_it(net: MeshNetwork):
    declare(net.process("early", router="b"), "audit", group="one")
    net.advance(QUIET)
    net.process("api", router="a").cast("audit")
    net.advance(QUIET)
    group = places(net.router_of("a"))[Address("audit"), "one"]
    node = consumer(net, "a", "audit", group="one")
    net.advance(QUIET)
    node.settle(node.take(Kind.CAST))
    node.stop()
    for router in "ab":
        net.hosts[router].settings.unclaimed_seconds = 1.0
    net.hosts["a"].settings.mailbox_max_seconds = 1.0
    net.advance(10.0)
    assert places(net.router_of("a"))[Address("audit"), "one"] is group
    assert not group.registered_here, "it stays because b knows it"
    net.hosts["b"].settings.mailbox_max_seconds = 1.0
    net.advance(10.0)
    assert places(net.router_of("a")) == {} and places(net.router_of("b")) == {}


def test_routers_that_remember_an_address_because_of_each_other_forget_it_in_the_end(net: MeshNetwork):
    for router in "abc":
        declare(net.process(f"early-{router}", router=router), "audit", server="node")
    net.advance(QUIET)
    for router in "abc":
        net.hosts[router].settings.mailbox_max_seconds = 1.0
    net.advance(10.0)
    assert [len(net.router_of(router).directory) for router in "abc"] == [0, 0, 0]


# --- mandatory -------------------------------------------------------------------------------


def test_a_mandatory_call_to_an_address_that_nobody_has_fails_at_once(net: MeshNetwork):
    net.advance(QUIET)
    call = net.process("api", router="a").request("compute", flags=Flag.MANDATORY)
    net.run()
    assert call.end.outcome is Outcome.NO_CONSUMER


def test_a_mandatory_call_reaches_a_consumer_elsewhere(net: MeshNetwork):
    node = consumer(net, "b", "compute")
    net.advance(QUIET)
    call = net.process("api", router="a").request("compute", flags=Flag.MANDATORY)
    net.run()
    node.reply(node.take(Kind.REQUEST))
    net.run()
    assert call.end.outcome is Outcome.OK


@pytest.mark.parametrize("kind", [Kind.REQUEST, Kind.CAST])
def test_mandatory_messages_wait_until_the_addresses_of_all_are_known(
    net: MeshNetwork, monkeypatch: pytest.MonkeyPatch, kind: Kind
):
    monkeypatch.setattr(announcer, "_MESSAGE_BYTES", 50)
    other = net.process("other", router="b")
    for i in range(100):
        other.register(f"topic-{i}", tag=i)
    node = consumer(net, "b", "compute")
    net.advance(QUIET)
    begin_to_link(net)
    api = net.process("api", router="d")
    ask = api.request if kind == Kind.REQUEST else api.cast
    good = ask("compute", flags=Flag.MANDATORY | Flag.CONFIRM * (kind == Kind.CAST))
    bad = ask("nobody", flags=Flag.MANDATORY | Flag.CONFIRM * (kind == Kind.CAST))
    net.run()
    assert bad.ends == [] and not interest_of(net, "d").has_converged(net.now)
    net.advance(QUIET)
    assert bad.end.outcome is Outcome.NO_CONSUMER
    taken = node.take(kind)
    node.reply(taken) if kind == Kind.REQUEST else node.settle(taken)
    net.advance(QUIET)
    assert [m.kind for m in good.answers] == [Kind.REPLY if kind == Kind.REQUEST else Kind.CONFIRM]


def test_a_router_that_never_tells_everything_is_waited_for_no_longer_than_recovery_seconds(
    net: MeshNetwork, monkeypatch: pytest.MonkeyPatch
):
    with monkeypatch.context() as patch:
        patch.setattr(announcer, "_CHUNKS_IN_ONE_TICK", 0)
        begin_to_link(net)
        api = net.process("api", router="d")
        call = api.request("nobody", flags=Flag.MANDATORY, ttl=60)
        net.advance(net.hosts["d"].settings.mesh_recovery_seconds - 1.0)
        assert call.ends == []
        net.advance(2.0)
        assert call.end.outcome is Outcome.NO_CONSUMER
    net.advance(QUIET)


def test_a_mandatory_call_that_waits_where_the_last_consumer_elsewhere_leaves_fails(net: MeshNetwork):
    node = consumer(net, "b", "compute", credit=1, tag=1)
    net.advance(QUIET)
    api = net.process("api", router="a")
    api.request("compute")
    call = api.request("compute", flags=Flag.MANDATORY, ttl=60)
    net.advance(QUIET)
    assert call.ends == []
    node.unregister(1)
    net.advance(QUIET)
    assert call.end.outcome is Outcome.NO_CONSUMER
    node.reply(node.take(Kind.REQUEST))


# --- announced before use --------------------------------------------------------------------


def test_a_consumer_is_known_once_another_router_has_acknowledged_it(net: MeshNetwork):
    seen: list[str] = []
    interest = interest_of(net, "b")
    interest.on_known.append(lambda now, consumer: seen.append(consumer.link.identity))
    net.delay("a", "b", 0.2)
    net.delay("c", "b", 0.3)
    node = consumer(net, "b", "compute", server="node")
    (registered,) = net.link(node).consumers.values()
    net.advance(0.3)
    assert not interest.is_known(registered) and seen == []
    net.advance(0.3)
    assert interest.is_known(registered) and seen == ["node"]
    neighbours = {n.name: n for n in net.router_of("b").mesh.neighbours}
    assert interest.acknowledged(neighbours["a"]) == interest.announcer.version > interest.acknowledged(neighbours["c"])


def test_a_consumer_of_a_router_alone_needs_nobody(net: MeshNetwork):
    interest = interest_of(net, "b")
    for other in "ac":
        net.cut("b", other)
    node = consumer(net, "b", "compute", server="node")
    (registered,) = net.link(node).consumers.values()
    net.advance(0.1)
    assert not interest.is_known(registered)
    for other in "ac":
        end_link(net, "b", other)
    assert interest.is_known(registered)
    net.heal()
    net.advance(30.0)
