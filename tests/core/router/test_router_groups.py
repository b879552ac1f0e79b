"""Groups of a topic: each gets a copy of every message, for one of its consumers. Topics that are only declared."""

from __future__ import annotations

from typing import Any

import pytest

from rpcmq.errors import Outcome
from rpcmq.testing.network import Call, Network, Process
from rpcmq.wire import Address, Flag, Kind, json_bytes, pack
from tests.core.router.tables import left_behind


def declare(process: Process, topic: str, group: str = "", server: str = ""):
    return process.send(Kind.DECLARE, json_bytes({"group": group}), format=1, address=Address(topic, server).encode())


def payloads(process: Process, kind: Kind = Kind.CAST) -> list[bytes]:
    return [m.payload for m in process.got(kind)]


def topics(process: Process) -> dict[tuple[str, str], dict[str, Any]]:
    return {(row["topic"], row["group"]): row for row in process.query("topics")["topics"]}


# --- declared ------------------------------------------------------------------------------------


@pytest.mark.parametrize("server", ["", "node-7"])
def test_what_is_sent_to_a_declared_topic_waits_as_in_a_mailbox(make_net, server: str):
    net = make_net(unclaimed_seconds=1.0, mailbox_max_seconds=100.0)
    api, node = net.process("api"), net.process("node")
    assert [m.kind for m in declare(api, "compute", server=server).answers] == [Kind.REGISTERED]
    api.cast("compute", payload=b"kept", server=server)
    net.advance(50)
    node.register("compute", server)
    assert payloads(node) == [b"kept"]


def test_an_undeclared_topic_keeps_nothing_that_long(make_net):
    net = make_net(unclaimed_seconds=1.0, mailbox_max_seconds=100.0)
    api, node = net.process("api"), net.process("node")
    api.cast("compute", payload=b"not kept")
    net.advance(50)
    node.register("compute")
    assert payloads(node) == []


def test_a_declared_topic_is_forgotten_when_its_time_is_over(make_net):
    net = make_net(mailbox_max_seconds=100.0)
    api = net.process("api")
    declare(api, "compute")
    declare(api, "compute", "audit")
    api.cast("compute")
    assert set(topics(api)) == {("compute", ""), ("compute", "audit")}
    net.advance(300)
    assert topics(api) == {}
    api.stop()
    net.advance(300)
    assert left_behind(net.router) == {}


# --- groups --------------------------------------------------------------------------------------


def test_each_group_gets_a_copy_and_one_of_its_consumers_has_it(net: Network, api: Process):
    plain, one, two, other = (net.process(name) for name in ("plain", "one", "two", "other"))
    plain.register("compute")
    one.register("compute", group="audit")
    two.register("compute", group="audit")
    other.register("compute", group="billing")
    for i in range(2):
        api.cast("compute", payload=b"%d" % i)
    assert payloads(other) == [b"0"] and payloads(plain) == [b"0"]
    assert sorted(payloads(one) + payloads(two)) == [b"0", b"1"]


def test_a_call_is_answered_by_the_topic_itself_and_the_groups_hear_of_it(net: Network, api: Process):
    plain, audit = net.process("plain"), net.process("audit")
    plain.register("compute")
    audit.register("compute", group="audit")
    call = api.request("compute", payload=b"question")
    copy = audit.take(Kind.CAST)
    assert copy.payload == b"question"
    audit.settle(copy)
    plain.reply(plain.take(Kind.REQUEST), b"answer")
    assert call.end.payload == b"answer"
    assert net.router.in_flight == 0


def test_without_consumers_of_the_topic_itself_the_first_group_answers(net: Network, api: Process):
    first, second = net.process("first"), net.process("second")
    first.register("compute", group="a")
    second.register("compute", group="b")
    call = api.request("compute")
    assert len(second.got(Kind.CAST)) == 1
    first.reply(first.take(Kind.REQUEST), b"from a group")
    assert call.end.payload == b"from a group"
    # Nothing waits for a topic that nobody consumes.
    assert topics(api)["compute", ""]["queued"] == 0


def test_a_group_keeps_its_copy_while_its_consumers_are_away(net: Network, api: Process):
    audit = net.process("audit")
    tag = audit.register("compute", group="audit")
    audit.unregister(tag)
    for i in range(3):
        api.cast("compute", payload=b"%d" % i)
    assert topics(api)["compute", "audit"]["queued"] == 3
    audit.register("compute", group="audit", credit=5)
    assert payloads(audit) == [b"0", b"1", b"2"]


def test_a_group_that_is_full_loses_its_own_copies_only(make_net):
    net = make_net(queue_max_messages=1)
    api, plain = net.process("api"), net.process("plain")
    plain.register("compute", credit=10)
    declare(api, "compute", "audit")
    for i in range(3):
        api.cast("compute", payload=b"%d" % i)
    assert payloads(plain) == [b"0", b"1", b"2"]
    assert topics(api)["compute", "audit"]["dropped"] == {"refused: full": 2}


def test_what_the_topic_refuses_is_copied_once_it_is_accepted(make_net):
    net = make_net(queue_max_messages=1)
    api, plain, audit = net.process("api"), net.process("plain"), net.process("audit")
    plain.register("compute", credit=1)
    audit.register("compute", group="audit", credit=10)
    casts = [api.cast("compute", payload=b"%d" % i) for i in range(3)]
    assert [m.kind for m in casts[2].answers] == [Kind.ERROR]
    assert payloads(audit) == [b"0", b"1"]
    plain.settle(plain.take(Kind.CAST))
    api.cast("compute", payload=b"2", key=casts[2].key, flags=Flag.RESENT)
    assert payloads(audit) == [b"2"]


def test_fanout_and_servers_are_none_of_a_groups_business(net: Network, api: Process):
    node, audit = net.process("node"), net.process("audit")
    node.register("compute", "node-7", credit=10)
    audit.register("compute", group="audit", credit=10)
    api.cast("compute", flags=Flag.FANOUT)
    api.cast("compute", server="node-7")
    assert len(node.got(Kind.CAST)) == 2
    assert audit.got(Kind.CAST) == []


def test_a_lost_consumer_of_a_group_gives_back_what_it_had_not_begun(net: Network, api: Process):
    one, two = net.process("one"), net.process("two")
    one.register("compute", group="audit")
    for i in range(2):
        api.cast("compute", payload=b"%d" % i)
    two.register("compute", group="audit")
    assert payloads(two) == [b"1"]
    one.stop()
    assert topics(api)["compute", "audit"]["in_flight"] == 1


def test_a_consumer_of_a_group_comes_back_into_its_group(make_net):
    net = make_net(consumer_grace_seconds=1.0)
    api, audit = net.process("api"), net.process("audit")
    audit.register("compute", group="audit")
    audit.lose()
    net.advance(5)
    api.cast("compute", payload=b"while away")
    audit.connect()
    assert payloads(audit) == [b"while away"]


def test_a_topic_of_a_server_takes_over_no_topic_that_has_groups(net: Network, api: Process):
    audit, node = net.process("audit"), net.process("node")
    audit.register("compute.node-7", group="audit")
    node.register("compute", "node-7")
    api.cast("compute.node-7", payload=b"x")
    assert payloads(audit) == [b"x"]


@pytest.mark.parametrize("group", [7, "x" * 256, "a\nb", None])
def test_a_group_must_be_a_short_printable_name(net: Network, group: object):
    node = net.process("node")
    node.register("compute", group=group)
    (error,) = node.got(Kind.ERROR)
    assert error.body["outcome"] == Outcome.PROTOCOL and "group" in error.body["text"]


def test_a_server_has_no_groups(net: Network):
    node = net.process("node")
    node.register("compute", "node-7", group="audit")
    (error,) = node.got(Kind.ERROR)
    assert "not of the server" in error.body["text"]


def test_groups_that_come_and_go_leave_nothing(make_net):
    net = make_net(mailbox_max_seconds=5.0)
    api = net.process("api")
    for i in range(20):
        node = net.process(f"node-{i}")
        node.register("compute", group=f"group-{i}")
        for method in ("log", "reboot"):
            api.cast("compute", method)
            node.settle(node.take(Kind.CAST))
        node.stop()
        net.advance(10)
    api.stop()
    net.advance(300)
    assert left_behind(net.router) == {}


def test_the_copies_of_a_group_have_statistics_for_each_method(net: Network, api: Process):
    node, audit = net.process("node"), net.process("audit")
    node.register("compute")
    audit.register("compute", group="audit")
    for method in ("reboot", "log", "log"):
        api.request("compute", method)
        node.reply(node.take(Kind.REQUEST))
        audit.settle(audit.take(Kind.CAST), outcome=Outcome.REMOTE_ERROR)
    rows = {(row["topic"], row["method"]): row for row in api.query("methods")["methods"]}
    assert {key: (row["calls"], row["casts"], row["outcomes"]) for key, row in rows.items()} == {
        ("compute", "reboot"): (1, 0, {"ok": 1}),
        ("compute", "log"): (2, 0, {"ok": 2}),
        ("compute (group audit)", "reboot"): (0, 1, {"remote_error": 1}),
        ("compute (group audit)", "log"): (0, 2, {"remote_error": 2}),
    }


def test_a_group_remembers_no_more_methods_than_have_statistics(make_net):
    net = make_net(max_methods=5)
    api, audit = net.process("api"), net.process("audit")
    audit.register("compute", group="audit", credit=1000)
    for number in range(50):
        api.cast("compute", f"method-{number}")
    (group,) = (topic for topic in net.router.directory if topic.group)
    assert 0 < len(group.copies) <= 5
    assert len(audit.got(Kind.CAST)) == 50


# --- full, and after a restart of the router -----------------------------------------------------


def test_casts_to_a_topic_that_only_groups_use_keep_their_order_where_its_queue_is_full(make_net):
    net = make_net(queue_max_messages=1)
    api, audit = net.process("api"), net.process("audit")
    audit.register("compute", group="audit")
    refused = [api.cast("compute", payload=b"%d" % number) for number in range(3)][2]
    assert [m.outcome for m in refused.answers] == [Outcome.OVERLOADED]
    audit.settle(audit.take(Kind.CAST))
    (answer,) = api.cast("compute", payload=b"3").answers
    assert answer.body["details"]["limit"] == "behind a refused cast"
    resend(api, refused)
    net.run()
    assert not net.link(api).stalled


def resend(process: Process, *casts: Call) -> None:
    for cast in casts:
        address, key = Address("compute").encode(), cast.key
        process.uplink.send(pack(Kind.CAST, b"again", flags=Flag.RESENT, format=1, key=key, address=address))


@pytest.mark.parametrize("is_topic_first", [True, False])
def test_what_only_a_group_had_goes_to_the_topic_after_a_restart_and_not_to_the_group_again(make_net, is_topic_first):
    net = make_net(recovery_seconds=1.0)
    api, plain, audit = (net.process(name) for name in ("api", "plain", "audit"))
    plain.register("compute", credit=1)
    audit.register("compute", group="audit", credit=10)
    net.advance(2)
    casts = [api.cast("compute", payload=b"%d" % number) for number in range(3)]
    (had,), copies = plain.got(Kind.CAST), audit.got(Kind.CAST)
    assert [m.key for m in copies] == [cast.key for cast in casts]
    net.restart_router()
    for process in (api, plain, audit):
        process.connect()
    resend(api, *casts)
    recent = b"".join(m.key for m in copies).hex()
    if is_topic_first:
        plain.register("compute", credit=10, recent=had.key.hex())
    audit.register("compute", group="audit", credit=10, recent=recent)
    if not is_topic_first:
        plain.register("compute", credit=10, recent=had.key.hex())
    net.advance(1.1)
    assert [m.key for m in plain.got(Kind.CAST)] == [cast.key for cast in casts[1:]]
    assert audit.got(Kind.CAST) == []


@pytest.mark.parametrize("had", ["audit", "bill"])
@pytest.mark.parametrize("first", ["audit", "bill"])
def test_what_one_group_had_the_other_gets_from_the_next_life_whichever_comes_back_first(
    make_net, had: str, first: str
):
    net = make_net(recovery_seconds=1.0)
    api, *processes = (net.process(name) for name in ("api", "audit", "bill"))
    for process in processes:
        process.register("compute", group=process.identity)
    net.advance(2)
    cast = api.cast("compute")
    for process in processes:
        assert len(process.got(Kind.CAST)) == 1
    net.restart_router()
    for process in (api, *processes):
        process.connect()
    resend(api, cast)
    for process in sorted(processes, key=lambda p: p.identity != first):
        recent = cast.key.hex() if process.identity == had else ""
        process.register("compute", group=process.identity, recent=recent)
    net.advance(1.1)
    assert [p.identity for p in processes if p.got(Kind.CAST)] == [{"audit": "bill", "bill": "audit"}[had]]
