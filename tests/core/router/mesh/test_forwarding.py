"""Requests whose consumers are linked to other routers."""

from __future__ import annotations

import pytest

from rpcmq.core.router.settings import Settings
from rpcmq.errors import Outcome
from rpcmq.testing.invariants import check_router
from rpcmq.testing.mesh_network import Call, MeshNetwork, Message, Process
from rpcmq.wire import KIND_AT, Address, Flag, Kind, json_bytes, pack


@pytest.fixture
def net() -> MeshNetwork:
    made = MeshNetwork(settings=Settings(recovery_seconds=0.0))
    made.advance(2.0)
    return made


def settle(net: MeshNetwork) -> None:
    """Let all routers know each other's consumers."""
    net.advance(1.0)


def taken(node: Process, kind: Kind = Kind.REQUEST) -> list[Message]:
    """Take all that ``node`` has been given."""
    found = [message for message in node.inbox if message.kind == kind]
    for message in found:
        node.inbox.remove(message)
    return found


def work(*nodes: Process, rounds: int = 100) -> dict[str, list[str]]:
    """Let ``nodes`` answer, one request each in turn, until none has any; return the methods each has run."""
    ran: dict[str, list[str]] = {node.identity: [] for node in nodes}
    waiting: dict[str, list[Message]] = {node.identity: [] for node in nodes}
    for _ in range(rounds):
        for node in nodes:
            waiting[node.identity] += taken(node)
            if waiting[node.identity]:
                request = waiting[node.identity].pop(0)
                ran[node.identity].append(request.method)
                node.reply(request, request.method.encode())
    return ran


def ends(calls: list[Call]) -> list[bytes]:
    """The payloads of the answers."""
    return [call.end.payload for call in calls]


def test_a_call_reaches_a_consumer_of_another_router_and_its_answer_comes_home(net: MeshNetwork) -> None:
    api, node = net.process("api", router="a"), net.process("node", router="b")
    node.register("compute", server="node-7", credit=2)
    settle(net)
    call = api.request("compute", "reboot", ttl=30)
    node.reply(node.take(Kind.REQUEST), b"done")
    assert call.end.payload == b"done"
    to_server = api.request("compute", "reboot", server="node-7", ttl=30)
    node.reply(node.take(Kind.REQUEST), b"by server")
    assert to_server.end.payload == b"by server"
    by_one_name = api.request("compute.node-7", "reboot", ttl=30)
    node.reply(node.take(Kind.REQUEST), b"by one name")
    assert by_one_name.end.payload == b"by one name"
    for host in net.hosts.values():
        check_router(host.router)


def test_with_a_free_consumer_here_nothing_leaves_the_router(net: MeshNetwork) -> None:
    api, here, there = net.process("api", router="a"), net.process("here", router="a"), net.process("there", router="b")
    for node in (here, there):
        node.register("compute", credit=2)
    settle(net)
    calls = [api.request("compute", f"m{number}", ttl=30) for number in range(2)]
    assert len(taken(there)) == 0
    assert work(here)["here"] == ["m0", "m1"]
    assert ends(calls) == [b"m0", b"m1"]


def test_consumers_of_three_routers_share_what_enters_at_one(net: MeshNetwork) -> None:
    api = net.process("api", router="a")
    nodes = [net.process(f"node-{name}", router=name) for name in "abc"]
    for node in nodes:
        node.register("compute", credit=4)
    settle(net)
    calls = [api.request("compute", f"m{number}", ttl=300) for number in range(240)]
    ran = work(*nodes, rounds=400)
    assert all(64 <= len(methods) <= 96 for methods in ran.values()), {name: len(m) for name, m in ran.items()}
    assert ends(calls) == [f"m{number}".encode() for number in range(240)]


def test_two_routers_that_want_the_same_consumer_both_get_it(net: MeshNetwork) -> None:
    node = net.process("node", router="c")
    node.register("compute", credit=3)
    settle(net)
    callers = [net.process(f"api-{name}", router=name) for name in "abc"]
    calls = [[caller.request("compute", f"{caller.identity} {n}", ttl=300) for n in range(40)] for caller in callers]
    ran = work(node, rounds=400)["node"]
    assert len(ran) == 120 and all(len(ends(of_one)) == 40 for of_one in calls)
    first_half = ran[:60]
    for caller in callers:
        mine = [method for method in ran if method.startswith(caller.identity)]
        assert mine == sorted(mine, key=lambda method: int(method.split()[1])), "what was sent first runs first"
    for host in net.hosts.values():
        check_router(host.router)
    assert first_half


def test_what_waits_is_explained_by_its_own_router(net: MeshNetwork) -> None:
    api, node = net.process("api", router="a"), net.process("node", router="b")
    node.register("compute")
    settle(net)
    first = api.request("compute", "slow", ttl=30)
    second = api.request("compute", "waits", ttl=3)
    net.advance(4.0)
    assert second.end.outcome == Outcome.TIMEOUT
    assert "1 at b" in second.end.body["text"] and "busy" in second.end.body["text"]
    node.reply(node.take(Kind.REQUEST), b"done")
    assert first.end.payload == b"done" and not taken(node)


def test_a_timeout_is_told_to_the_consumer_which_is_free_again_after_its_answer(net: MeshNetwork) -> None:
    api, node = net.process("api", router="a"), net.process("node", router="b")
    node.register("compute")
    settle(net)
    call = api.request("compute", "slow", ttl=3)
    late = node.take(Kind.REQUEST)
    net.advance(4.0)
    assert call.end.outcome == Outcome.TIMEOUT and node.take(Kind.CANCEL).key == call.key
    node.reply(late, b"too late")
    again = api.request("compute", "next", ttl=30)
    node.reply(node.take(Kind.REQUEST), b"done")
    assert again.end.payload == b"done"
    remote = net.router_of("a").directory.lookup("", "compute")
    assert remote is not None and all(not each.offered for each in remote[0].remotes.values())


def test_streams_and_their_grants_cross(net: MeshNetwork) -> None:
    api, node = net.process("api", router="a"), net.process("node", router="b")
    node.register("compute")
    settle(net)
    call = api.request("compute", "list", ttl=30, flags=Flag.STREAM)
    request = node.take(Kind.REQUEST)
    for number in range(16):
        node.item(request, b"%d" % number)
    api.grant(call, 2)
    assert int.from_bytes(node.take(Kind.GRANT).payload) == 2
    node.item(request, b"16")
    node.end(request)
    assert [m.payload for m in call.answers if m.kind == Kind.ITEM] == [b"%d" % n for n in range(17)]
    assert call.answers[-1].kind == Kind.END


def test_casts_arrive_in_order_and_are_settled(net: MeshNetwork) -> None:
    api, node = net.process("api", router="a"), net.process("node", router="b")
    node.register("compute", credit=3)
    settle(net)
    for number in range(20):
        api.cast("compute", f"c{number}")
    seen: list[str] = []
    for _ in range(20):
        casts = taken(node, Kind.CAST)
        seen += [cast.method for cast in casts]
        if casts:
            node.settle(*casts)
    assert seen == [f"c{number}" for number in range(20)]
    assert [row["casts"] for row in api.query("methods")["methods"]] == [1] * 20


def test_a_fanout_reaches_each_consumer_of_all_routers_once(net: MeshNetwork) -> None:
    api = net.process("api", router="a")
    nodes = [net.process(f"node-{name}-{number}", router=name) for name in "abc" for number in range(2)]
    for node in nodes:
        node.register("compute", server=node.identity)
    settle(net)
    cast = api.cast("compute", "flush", flags=Flag.FANOUT | Flag.CONFIRM)
    assert [len(taken(node, Kind.CAST)) for node in nodes] == [1] * 6
    assert int.from_bytes(cast.answers[0].payload) == 6


def test_a_group_gets_one_copy_wherever_its_consumers_are(net: MeshNetwork) -> None:
    api, worker = net.process("api", router="a"), net.process("worker", router="b")
    audit = [net.process(f"audit-{name}", router=name) for name in "bc"]
    worker.register("jobs")
    for process in audit:
        process.register("jobs", group="audit")
    settle(net)
    api.cast("jobs", "one")
    work_got = taken(worker, Kind.CAST)
    copies = [message for process in audit for message in taken(process, Kind.CAST)]
    assert len(work_got) == 1 and len(copies) == 1
    assert copies[0].address == work_got[0].address


def test_a_declared_mailbox_keeps_messages_where_they_came_in(net: MeshNetwork) -> None:
    api, owner = net.process("api", router="a"), net.process("owner", router="c")
    api.cast("reports", "early", ttl=300)
    settle(net)
    owner.register("reports", credit=5)
    settle(net)
    assert [cast.method for cast in taken(owner, Kind.CAST)] == ["early"]


@pytest.mark.parametrize("flags", [0, Flag.IDEMPOTENT])
def test_a_consumer_that_dies_elsewhere_is_told_of(net: MeshNetwork, flags: int) -> None:
    api, node, other = (net.process(name, router=at) for name, at in (("api", "a"), ("node", "b"), ("other", "c")))
    node.register("compute")
    settle(net)
    call = api.request("compute", "run", ttl=60, flags=flags)
    node.take(Kind.REQUEST)
    other.register("compute")
    settle(net)
    node.stop()
    net.advance(40.0)
    if flags:
        other.reply(other.take(Kind.REQUEST), b"elsewhere")
        assert call.end.payload == b"elsewhere"
    else:
        assert call.end.outcome == Outcome.LINK_LOST and "node" in call.end.body["text"]
        assert not taken(other)


def test_mandatory_knows_the_consumers_of_other_routers(net: MeshNetwork) -> None:
    api, node = net.process("api", router="a"), net.process("node", router="b")
    node.register("compute")
    settle(net)
    call = api.request("compute", "run", ttl=30, flags=Flag.MANDATORY)
    node.reply(node.take(Kind.REQUEST), b"done")
    assert call.end.payload == b"done"
    nobody = api.request("network", "run", ttl=30, flags=Flag.MANDATORY)
    assert nobody.end.outcome == Outcome.NO_CONSUMER


def test_a_request_that_each_neighbour_sends_back_waits_until_one_is_free(net: MeshNetwork) -> None:
    """It does not go to and fro between neighbours whose consumers are busy with others' requests."""
    nodes = [net.process("node-b", router="b"), net.process("node-c", router="c")]
    for node in nodes:
        node.register("compute")
        net.process(f"own-{node.router}", router=node.router).request("compute", "own")
    settle(net)
    api = net.process("api", router="a")
    call, cast = api.request("compute", "call"), api.cast("compute", "cast")
    net.advance(5.0)
    busy = [node.take(Kind.REQUEST) for node in nodes]
    assert [message.method for message in busy] == ["own", "own"] and call.answers == []
    nodes[1].reply(busy[1])
    assert [message.key for message in taken(nodes[1])] == [call.key]
    nodes[0].reply(busy[0])
    assert [message.key for message in taken(nodes[0], Kind.CAST)] == [cast.key]


def test_a_neighbour_that_has_sent_a_request_back_is_offered_the_next_one_again(net: MeshNetwork) -> None:
    near, far = net.process("near", router="b"), net.process("far", router="c")
    near.register("compute")
    far.register("compute", credit=3)
    settle(net)
    own = net.process("own", router="b").request("compute")
    api = net.process("api", router="a")
    calls = [api.request("compute", str(number)) for number in range(2)]
    assert len(taken(far)) == 2, "also the one that came back"
    near.reply(next(m for m in taken(near) if m.key == own.key))
    calls.append(api.request("compute", "2"))
    assert [message.key for message in taken(near)] == [calls[2].key]


def test_a_request_that_no_free_consumer_accepts_is_refused_as_with_one_router(net: MeshNetwork) -> None:
    """The free consumer here, which does not, is no reason to offer it to the busy neighbour again and again."""
    there = net.process("there", router="b", accepts=("json", "pickle"))
    net.process("here", router="a", accepts=("json",)).register("compute")
    there.register("compute")
    settle(net)
    api = net.process("api", router="a")
    assert api.request("compute", "pickled", format=2).ends == [] and len(taken(there)) == 1
    call = api.request("compute", "pickled", format=2)
    net.process("own", router="b").request("compute", "own")
    assert call.end.outcome is Outcome.PROTOCOL and "no free consumer that accepts pickle" in call.end.body["text"]
    check_router(net.router_of("a"))


def test_the_turn_of_another_router_is_no_message_that_waits() -> None:
    """It takes no room in a queue, is not shown or purged, and goes to no third router."""
    net = MeshNetwork(settings=Settings(recovery_seconds=0.0, queue_max_messages=1))
    here, far = net.process("here", router="a"), net.process("far", router="b")
    here.register("compute")
    own, guest = net.process("own", router="a"), net.process("guest", router="c")
    running = own.request("compute", "running")
    settle(net)
    waiting = guest.request("compute", "from c")
    (row,) = own.query("topics")["topics"]
    assert row["queued"] == 0
    purged = own.send(Kind.QUERY, json_bytes({"what": "control.purge", "topic": "compute"}), format=1).answers[0]
    assert purged.body["calls"] == 0
    second = own.request("compute", "own")
    assert second.ends == []
    far.register("compute", credit=2)
    settle(net)
    assert sorted(message.method for message in taken(far)) == ["from c", "own"]
    here.reply(here.take(Kind.REQUEST))
    assert running.end.outcome is Outcome.OK and taken(here) == [] and second.answers == waiting.answers == []
    for host in net.hosts.values():
        check_router(host.router)
        assert [note.text for note in host.notes if note.event == "internal error"] == []


def test_requests_that_come_back_from_a_lost_consumer_elsewhere_keep_their_order(net: MeshNetwork) -> None:
    node = net.process("node", router="b")
    node.register("compute", credit=3)
    settle(net)
    api = net.process("api", router="a")
    for number in range(5):
        api.request("compute", str(number), flags=Flag.IDEMPOTENT)
    node.die()
    settle(net)
    other = net.process("other", router="c")
    other.register("compute", credit=5)
    settle(net)
    assert [message.method for message in taken(other)] == ["0", "1", "2", "3", "4"]


def test_a_cast_that_waits_for_a_busy_consumer_elsewhere_does_not_age(net: MeshNetwork) -> None:
    net = MeshNetwork(settings=Settings(recovery_seconds=0.0, mailbox_max_seconds=10.0))
    api, node = net.process("api", router="a"), net.process("node", router="b")
    node.register("compute")
    settle(net)
    for method in ("long", "next"):
        api.cast("compute", method)
    net.advance(60.0)
    node.settle(*taken(node, Kind.CAST))
    assert [message.method for message in taken(node, Kind.CAST)] == ["next"]


def test_a_cast_that_waited_for_a_busy_consumer_elsewhere_ages_from_the_time_at_which_that_stops() -> None:
    net = MeshNetwork(settings=Settings(recovery_seconds=0.0, mailbox_max_seconds=10.0))
    api, node = net.process("api", router="a"), net.process("node", router="b")
    node.register("compute")
    settle(net)
    for method in ("long", "next"):
        api.cast("compute", method)
    net.advance(9.5)
    (long,) = taken(node, Kind.CAST)
    node.unregister(long.header.consumer)
    node.settle(long)
    net.advance(9.0)
    other = net.process("other", router="c")
    other.register("compute")
    settle(net)
    assert [message.method for message in taken(other, Kind.CAST)] == ["next"]


def test_a_call_of_a_topic_that_only_groups_elsewhere_consume_is_answered_and_may_come_back(net: MeshNetwork) -> None:
    first = net.process("first", router="b")
    first.register("compute", group="audit")
    settle(net)
    api = net.process("api", router="a")
    call = api.request("compute", "one")
    first.reply(first.take(Kind.REQUEST), b"from a group")
    assert call.end.payload == b"from a group"
    busy = net.process("own", router="b").request("compute", "own")
    call = api.request("compute", "two")
    first.reply(first.take(Kind.REQUEST))
    first.reply(first.take(Kind.REQUEST), b"after BUSY")
    assert busy.end.outcome is Outcome.OK and call.end.payload == b"after BUSY"
    assert net.router_of("a").dispatch.requests.counters.total() == 0


def test_a_want_that_crosses_a_busy_does_not_count_as_its_answer(net: MeshNetwork) -> None:
    """Else what was offered between the two is taken there, and taken back here, and so starts twice."""
    node, local = net.process("node", router="b"), net.process("local", router="b")
    node.register("compute")
    settle(net)
    running = local.request("compute", "mine", ttl=60)
    home = net.router_of("b")
    owner = next(each.link for each in home.mesh.neighbours if each.name == "a")
    block = Address("compute").encode()
    keys = [bytes(12) + number.to_bytes(8) for number in range(1, 4)]
    offers = [pack(Kind.REQUEST, key=key, address=block, format=1) for key in keys]

    def tell(message: bytes) -> list[Message]:
        owner.handlers[message[KIND_AT]](net.now, owner, message)
        said = [Message(each) for each in owner.outbox if each[KIND_AT] == Kind.BUSY]
        owner.outbox.clear()  # the real owner knows nothing of all this
        return said

    assert [busy.key for busy in tell(offers[0])] == [keys[0]]
    node.reply(node.take(Kind.REQUEST), b"done")
    assert running.end.payload == b"done", "there is a free consumer now"
    tell(pack(Kind.WANT, bytes(4), address=block))
    assert [busy.key for busy in tell(offers[1])] == [keys[1]], "the owner takes this back when it reads the first BUSY"
    tell(pack(Kind.WANT, bytes(4), address=block, key=keys[0]))
    assert tell(offers[2]) == []
    assert home.dispatch.requests.calls_in_flight == 1


def test_nobody_may_register_the_own_topic_of_a_server_elsewhere_as_a_topic(net: MeshNetwork) -> None:
    node, mallory = net.process("node", router="b"), net.process("mallory", router="c")
    node.register("compute", server="node-b")
    settle(net)
    mallory.register("compute.node-b")
    assert "is the own topic of server 'node-b' of 'compute'" in mallory.take(Kind.ERROR).body["text"]
    settle(net)
    net.process("api", router="a").request("compute.node-b")
    assert len(taken(node)) == 1
    mallory.register("compute.other", tag=5)
    assert mallory.take(Kind.REGISTERED).header.consumer == 5
