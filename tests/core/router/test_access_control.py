"""The router's edge: who may connect as whom, and what a key may do."""

from __future__ import annotations

from typing import Any

import pytest

from rpcmq.core.router.rights import EVERYTHING, Key
from rpcmq.errors import Outcome
from rpcmq.testing.network import Network, Process
from rpcmq.wire import Flag, Kind, json_bytes
from tests.core.router.keyed import NODE, denied, right, rows

# --- who may connect ------------------------------------------------------------------------------


def refusal(process: Process) -> str:
    assert not process.welcomes
    ((reason, text),) = process.refusals
    assert text
    return reason


def test_without_a_key_that_is_authorised_there_is_no_link(guarded: Network):
    assert refusal(guarded.process("web", user="")) == "key"
    assert refusal(guarded.process("web", user="OTHER")) == "key"
    assert guarded.router.refused["key not authorised"] == 2
    assert len(guarded.router.links) == 0


def test_a_key_cannot_be_the_identity_of_another(guarded: Network):
    for identity in ("node", "node:7", "anything"):
        assert refusal(guarded.process(identity, user="WEB")) == "key"
    assert guarded.router.refused["identity of another key"] == 3
    assert [note.event for note in guarded.notes] == ["denied"] * 3
    assert guarded.process("web:1", user="WEB").welcomes


def test_a_stolen_token_is_worth_nothing_under_another_key(net: Network):
    keys = [Key("a", "A", (EVERYTHING,), ("shared",)), Key("b", "B", (EVERYTHING,), ("shared",))]
    net.router.set_authorized_keys(net.now, keys)
    victim = net.process("shared", user="A")
    token, handle = victim.welcome.token, victim.welcome.handle
    thief = net.process("shared", user="B", token=token, handle=handle, received=0)
    assert refusal(thief) == "identity-taken"
    victim.lose()
    late = net.process("shared", user="B", token=token, handle=handle, received=0)
    assert [welcome.resumed for welcome in late.welcomes] == [False]
    key = net.link(late).key
    assert key is not None and key.name == "b"


def test_the_other_queue_type_of_an_identity_is_its_key_s_too(net: Network):
    keys = [Key("a", "A", (EVERYTHING,), ("shared",)), Key("b", "B", (EVERYTHING,), ("shared",))]
    net.router.set_authorized_keys(net.now, keys)
    net.process("shared", user="A")
    assert refusal(net.process("shared", "pubsub", user="B")) == "identity-taken"
    assert net.process("shared", "pubsub", user="A").welcomes


def test_links_of_a_key_are_bounded_and_come_back(net: Network):
    net.router.set_authorized_keys(net.now, [Key("web", "WEB", (EVERYTHING,), max_links=2)])
    first, _ = net.process("web:1", user="WEB"), net.process("web:2", user="WEB")
    assert refusal(net.process("web:3", user="WEB")) == "too-many-links"
    first.stop()
    assert net.process("web:4", user="WEB").welcomes
    (row,) = rows(net)
    assert row["links"] == 2 and row["refused"]["links"] == 1


def test_a_reconnect_under_the_same_key_goes_on(guarded: Network):
    root = guarded.process("root", user="ROOT")
    root.lose()
    root.connect()
    assert [w.resumed for w in root.welcomes] == [False, True]
    assert {row["name"]: row["links"] for row in rows(guarded)}["root"] == 1


# --- what they may do -----------------------------------------------------------------------------


def test_what_a_right_covers_goes_through(guarded: Network):
    node, web = guarded.process("node", user="NODE"), guarded.process("web", user="WEB")
    node.register("compute", server="node-7", credit=10)
    call = web.request("compute.node-7", "reboot")
    node.reply(node.take(Kind.REQUEST), b"done")
    assert call.end.payload == b"done"
    web.cast("compute", "reboot")
    node.take(Kind.CAST)
    assert not any("denied" in what for what in guarded.router.refused)


def test_a_refusal_names_verb_topic_and_key_and_is_counted(guarded: Network):
    web = guarded.process("web", user="WEB")
    assert denied(web.request("image", "list")) == {"verb": "call", "topic": "image", "exchange": "", "key": "web"}
    assert denied(web.request("compute", exchange="nova"))["exchange"] == "nova"
    assert guarded.router.refused["denied call"] == 2
    assert guarded.link(web).counters["denied call"] == 2
    assert len(guarded.router.directory) == 0, "nothing was queued, no topic made"
    assert guarded.notes[-1].event == "denied" and guarded.notes[-1].identity == "web"


@pytest.mark.parametrize(
    ("verb", "act"),
    [
        ("call", lambda p: p.request("image")),
        ("cast", lambda p: p.cast("image")),
        ("fanout", lambda p: p.cast("compute", flags=Flag.FANOUT)),
        ("publish", lambda p: p.publish("compute")),
        ("subscribe", lambda p: p.subscribe("compute.*")),
        ("serve", lambda p: p.send(Kind.REGISTER, json_bytes({"credit": 1}), format=1, address=b"\0\7\0compute")),
        ("serve", lambda p: p.send(Kind.DECLARE, json_bytes({}), format=1, address=b"\0\7\0compute")),
        ("call", lambda p: p.introduce("image")),
        ("admin", lambda p: p.send(Kind.QUERY, json_bytes({"what": "processes"}), format=1)),
    ],
)
def test_each_verb_needs_its_right(guarded: Network, verb: str, act: Any):
    web = guarded.process("web", user="WEB")
    for _ in range(2):
        assert denied(act(web))["verb"] == verb
    assert guarded.router.refused[f"denied {verb}"] == 2
    root = guarded.process("root", user="ROOT")
    call = act(root)
    assert [a for a in call.answers if a.kind is Kind.ERROR] == []


def test_who_may_serve_may_say_when_it_sends_its_answers(guarded: Network):
    node = guarded.process("node", user="NODE")
    node.send(Kind.CLOCK_STAMP, key=bytes(12) + (7).to_bytes(8))
    assert guarded.link(node).sent_us == 7 and not guarded.router.refused


def test_a_server_needs_the_right_to_its_own_topic_and_to_the_shared_one(net: Network):
    net.router.set_authorized_keys(net.now, [Key("n", "N", (right("serve", "compute.node-7", "image"),)), NODE])
    other = net.process("n", user="N")
    address = b"\0\7\6computenode-7"
    call = other.send(Kind.REGISTER, json_bytes({"credit": 1}), format=1, address=address)
    assert denied(call)["topic"] == "compute"
    node = net.process("node", user="NODE")
    call = node.send(Kind.REGISTER, json_bytes({"credit": 1}), format=1, address=b"\0\7\6computenode-8")
    assert denied(call)["topic"] == "compute.node-8"


def test_a_subscription_must_lie_within_the_right(net: Network):
    net.router.set_authorized_keys(net.now, [Key("s", "S", (right("subscribe,publish", "events.*"),))])
    process = net.process("s", "pubsub", user="S")
    assert [a.kind for a in process.subscribe("events.*").answers] == [Kind.SUBSCRIBED]
    assert denied(process.subscribe("events.#"))["topic"] == "events.#"
    assert denied(process.subscribe("#"))["verb"] == "subscribe"
    process.publish("events.a", b"1")
    assert process.take(Kind.PUBLISH).payload == b"1"
    assert denied(process.publish("other"))["verb"] == "publish"


def test_admin_is_by_view(net: Network):
    net.router.set_authorized_keys(net.now, [Key("ops", "OPS", (right("admin", "summary", "keys"),))])
    ops = net.process("ops", user="OPS")
    assert ops.query("summary")["security"]["keys"] == 1
    (row,) = ops.query("keys")["keys"]
    assert row["name"] == "ops" and row["rights"][0]["used"] == 2
    assert denied(ops.send(Kind.QUERY, json_bytes({"what": "processes"}), format=1))["topic"] == "processes"


def test_rights_that_are_never_used_are_shown(net: Network):
    rights = (right("call", "a"), right("cast", "b"))
    net.router.set_authorized_keys(net.now, [Key("k", "K", rights)])
    process = net.process("k", user="K")
    process.request("a")
    process.request("a")
    (row,) = rows(net)
    assert [bool(r["used"]) for r in row["rights"]] == [True, False]
    used = row["rights"][0]["used"]
    process.request("a")
    assert rows(net)[0]["rights"][0]["used"] == used, "a decision is made once"


def test_bad_addresses_are_bad_under_a_right_too(guarded: Network):
    web = guarded.process("web", user="WEB")
    for kind in (Kind.REQUEST, Kind.CAST, Kind.PUBLISH, Kind.INTRODUCE):
        (answer,) = web.send(kind, address=b"\0\0\0", format=1).answers
        assert answer.outcome is Outcome.PROTOCOL


def test_many_addresses_do_not_grow_without_end(net: Network, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("rpcmq.core.router.right_checks._MAX_DECISIONS", 10)
    net.router.set_authorized_keys(net.now, [Key("k", "K", (right("call,cast,fanout,publish", "#"),))])
    process = net.process("k", user="K")
    link = net.link(process)
    for number in range(35):
        process.request(f"t{number}")
        process.cast(f"t{number}")
        process.cast(f"t{number}", flags=Flag.FANOUT)
        process.publish(f"t{number}")
    permissions = link.permissions
    assert permissions is not None
    sizes = [
        len(link.allowed_calls or ()),
        len(link.allowed_casts or ()),
        len(permissions.fanout),
        len(permissions.publish),
    ]
    assert sizes == [5] * 4
    assert process.got(Kind.ERROR) == []
