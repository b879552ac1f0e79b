"""An operator empties a queue or ends a process's links, if the key allows it."""

from __future__ import annotations

from typing import Any

import pytest

from rpcmq.core.router.rights import EVERYTHING, Key, Right
from rpcmq.errors import Outcome
from rpcmq.testing.network import Message, Network, Process
from rpcmq.wire import Flag, Kind, json_bytes
from tests.core.router.tables import left_behind


@pytest.fixture
def operator(net: Network) -> Process:
    return net.process("operator")


def ask(process: Process, what: str, **body: Any) -> Message:
    (answer,) = process.send(Kind.QUERY, json_bytes({"what": what, **body}), format=1).answers
    return answer


def purge(process: Process, topic: str, **body: Any) -> dict[str, Any]:
    return ask(process, "control.purge", topic=topic, **body).body


def queued(process: Process) -> dict[str, int]:
    return {row["topic"]: row["queued"] for row in process.query("topics")["topics"]}


def test_purge_drops_what_waits_and_touches_nothing_else(net: Network, api: Process, node: Process, operator: Process):
    node.register("compute", server="node-7", credit=1)
    running = api.request("compute")
    calls = [api.request("compute"), api.request("compute", server="node-7")]
    for _ in range(3):
        api.cast("compute")
        api.cast("compute", flags=Flag.FANOUT)
        api.cast("compute", server="node-7")
        api.cast("other")
    assert queued(operator) == {"compute": 11, "other": 3}
    answer = purge(operator, "compute")
    assert answer == {"known": True, "casts": 9, "calls": 2, "remaining": 0, "forgotten": False}
    assert queued(operator) == {"compute": 0, "other": 3}
    for call in calls:
        assert call.end.outcome is Outcome.CANCELLED
        assert call.end.body["text"] == f"operator purged {call.end.body['details']['topic']!r}; the call did not run"
    assert running.ends == []
    node.reply(node.take(Kind.REQUEST))
    assert running.end.kind is Kind.REPLY
    assert operator.query("stats")["dropped"] == {"call": {"purged": 2}, "cast": {"purged": 6}, "fanout": {"purged": 3}}
    assert [note.text for note in net.notes if note.event == "purged"] == [
        "operator purged 'compute': 9 casts, 2 calls"
    ]


@pytest.mark.parametrize("is_registered", [True, False])
def test_purge_of_a_servers_own_topic(api: Process, node: Process, operator: Process, is_registered: bool):
    if is_registered:
        node.register("compute", server="node-7.local")
        node.stop()
    api.cast("compute")
    api.cast("compute", server="node-7.local")
    assert purge(operator, "compute.node-7.local")["casts"] == 1
    assert queued(operator) == {"compute": 1}


def test_purge_of_a_group(api: Process, node: Process, operator: Process):
    node.register("compute", group="audit")
    node.register("compute")
    node.stop()
    api.cast("compute")
    assert purge(operator, "compute", group="audit")["casts"] == 1
    assert sorted(row["queued"] for row in operator.query("topics")["topics"]) == [0, 1]


def test_purge_can_forget_a_topic_that_nobody_consumes(net: Network, api: Process, node: Process, operator: Process):
    api.cast("compte")
    assert purge(operator, "compte")["forgotten"] is False
    assert purge(operator, "compte", forget=True)["forgotten"] is True
    assert queued(operator) == {}
    node.register("compute")
    assert purge(operator, "compute", forget=True)["forgotten"] is False
    assert purge(operator, "nobody") == {"known": False, "casts": 0, "calls": 0, "remaining": 0, "forgotten": False}
    node.stop()
    net.advance(1000)
    for process in (api, operator):
        process.stop()
    assert left_behind(net.router) == {}


def test_a_purge_does_a_bounded_amount_of_work(api: Process, operator: Process):
    for _ in range(4500):
        api.cast("compute")
    answers = [purge(operator, "compute") for _ in range(3)]
    assert [answer["casts"] for answer in answers] == [2000, 2000, 500]
    assert [answer["remaining"] for answer in answers] == [2500, 500, 0]


def test_room_that_a_purge_makes_is_there_for_casts_that_wait_at_their_sender(make_net):
    net = make_net(queue_max_messages=2)
    api, operator = net.process("api"), net.process("operator")
    casts = [api.cast("compute") for _ in range(3)]
    assert casts[2].end.outcome is Outcome.OVERLOADED
    purge(operator, "compute")
    api.cast("compute", key=casts[2].key, flags=Flag.RESENT)
    assert queued(operator) == {"compute": 1}


def test_kick_ends_the_links_of_a_process(net: Network, api: Process, node: Process, operator: Process):
    events = net.process("node", "pubsub")
    events.subscribe("#")
    node.register("compute")
    call, cast = api.request("compute"), api.cast("compute", flags=Flag.IDEMPOTENT)
    assert ask(operator, "control.kick", identity="node").body == {"links": 2}
    assert call.end.outcome is Outcome.LINK_LOST and "kicked by operator" in call.end.body["text"]
    assert [row["identity"] for row in operator.query("processes")["processes"]] == ["api", "operator"]
    assert any("kicked by operator" in note.text for note in net.notes)
    assert cast.ends == [] and queued(operator) == {"compute": 1}
    assert ask(operator, "control.kick", identity="node").body == {"links": 0}


@pytest.mark.parametrize(
    ("what", "body"),
    [
        ("control.kick", {"identity": "operator"}),
        ("control.kick", {"identity": ""}),
        ("control.kick", {}),
        ("control.purge", {"topic": 5}),
        ("control.purge", {"topic": "x", "group": []}),
    ],
)
def test_what_makes_no_sense_is_refused(operator: Process, what: str, body: dict[str, Any]):
    assert ask(operator, what, **body).outcome is Outcome.PROTOCOL


# --- rights -------------------------------------------------------------------------------------


def admin(*topics: str) -> Right:
    return Right(frozenset({"admin"}), topics)


@pytest.mark.parametrize(
    ("right", "views", "purges", "kicks"),
    [
        (EVERYTHING, True, True, True),
        (admin("#"), True, True, True),
        (admin("*"), True, False, False),
        (admin("control.purge"), False, True, False),
        (admin("control.*"), False, True, True),
        (Right(frozenset({"call"}), ("#",)), False, False, False),
    ],
)
def test_controls_need_a_right_of_their_own(net: Network, right: Right, views: bool, purges: bool, kicks: bool):
    net.router.set_authorized_keys(net.now, [Key("ops", "k1", (right,))])
    ops = net.process("ops", user="k1")
    asked = [
        ask(ops, "summary"),
        ask(ops, "control.purge", topic="compute"),
        ask(ops, "control.kick", identity="nobody"),
    ]
    assert [answer.kind is Kind.ANSWER for answer in asked] == [views, purges, kicks]
    for answer, allowed in zip(asked, (views, purges, kicks), strict=True):
        assert allowed or answer.outcome is Outcome.DENIED


# --- a service asks whose message it has ---------------------------------------------------------


def test_a_service_learns_the_caller_of_what_it_has_and_of_nothing_else(net: Network):
    net.router.set_authorized_keys(
        net.now, [Key("node", "k1", (Right(frozenset({"serve"}), ("#",)),)), Key("api", "k2", (EVERYTHING,))]
    )
    node, api = net.process("node", user="k1"), net.process("api", user="k2")
    node.register("compute")
    api.request("compute")
    request = node.take(Kind.REQUEST)
    key = request.key.hex()
    assert ask(node, "caller", key=key).body == {"identity": "api"}
    assert ask(api, "caller", key=key).body == {"identity": ""}, "it is not a consumer that has it"
    node.reply(request)
    assert ask(node, "caller", key=key).body == {"identity": ""}
    assert ask(node, "caller", key="xyz").outcome is Outcome.PROTOCOL
    assert ask(node, "caller").outcome is Outcome.PROTOCOL
