"""The router's edge: who may connect as whom, and what a key may do."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rpcmq.core.router.permissions import usage_row
from rpcmq.core.router.rights import EVERYTHING, Key, Right
from rpcmq.errors import Outcome
from rpcmq.testing.network import Call, Network, Process
from rpcmq.wire import Flag, Kind, json_bytes, pack

NODE = Key("node", "NODE", (Right(frozenset(["serve"]), ("compute", "compute.node-7")),))
WEB = Key("web", "WEB", (Right(frozenset(["call", "cast"]), ("compute.#",)),))
ROOT = Key("root", "ROOT", (EVERYTHING,))


def right(verbs: str, *topics: str, exchanges: tuple[str, ...] = ("",)) -> Right:
    return Right(frozenset(verbs.split(",")), topics, exchanges)


def rows(net: Network) -> list[dict[str, Any]]:
    return [usage_row(usage, net.now) for usage in net.router.links.access.usages() or ()]


@pytest.fixture
def guarded(net: Network) -> Network:
    net.router.set_authorized_keys(net.now, [NODE, WEB, ROOT])
    return net


def rekey(net: Network, *keys: Key) -> None:
    net.router.set_authorized_keys(net.now, keys)
    net.run()


def denied(call: Call) -> dict[str, Any]:
    """The details of the router's refusal of a call that the key has no right to."""
    (answer,) = call.answers
    assert answer.kind is Kind.ERROR and answer.outcome is Outcome.DENIED
    details = answer.body["details"]
    for named in (details["verb"], details["topic"], details["key"]):
        assert named in answer.body["text"]
    return dict(details)


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


# --- keys that change -----------------------------------------------------------------------------


def test_a_revoked_key_ends_its_links_at_once_and_frees_its_identities(guarded: Network):
    node, web = guarded.process("node", user="NODE"), guarded.process("web", user="WEB")
    node.register("compute", server="node-7")
    call = web.request("compute", ttl=60)
    rekey(guarded, WEB, ROOT)
    assert node.connection is None, "the connection was broken"
    assert call.end.outcome is Outcome.LINK_LOST and "revoked" in call.end.body["text"]
    assert [link.identity for link in guarded.router.links] == ["web"]
    node.connect()
    assert node.refusals[-1][0] == "key"
    fresh = Key("node", "NODE2", NODE.rights)
    rekey(guarded, WEB, fresh)
    assert guarded.process("node", user="NODE2").welcomes


def test_a_key_of_the_same_name_is_another_key(guarded: Network):
    guarded.process("web", user="WEB")
    rekey(guarded, Key("web", "WEB2", WEB.rights))
    assert len(guarded.router.links) == 0


def test_a_link_that_is_away_goes_with_its_key(guarded: Network):
    web = guarded.process("web", user="WEB")
    web.lose()
    rekey(guarded, NODE)
    assert len(guarded.router.links) == 0


def test_a_right_that_is_taken_away_is_gone_for_the_next_message(guarded: Network):
    web = guarded.process("web", user="WEB")
    assert web.request("compute").answers == []
    rekey(guarded, Key("web", "WEB", (right("cast", "compute"),)))
    assert denied(web.request("compute"))["verb"] == "call"
    assert web.connection is not None, "what it may still do goes on"
    rekey(guarded, ROOT, Key("web", "WEB", (EVERYTHING,)))
    assert web.request("image").answers == []


@pytest.mark.parametrize("away", [False, True])
def test_who_may_not_serve_any_more_serves_no_more(guarded: Network, away: bool):
    node = guarded.process("node", user="NODE")
    node.register("compute", server="node-7")
    if away:
        node.lose()
        guarded.advance(2.0)  # the consumer is given up, and would come back with its link
    rekey(guarded, Key("node", "NODE", (right("serve", "image"),)))
    assert len(guarded.router.links) == 0


def test_who_may_not_subscribe_any_more_hears_no_more(net: Network):
    net.router.set_authorized_keys(net.now, [Key("s", "S", (right("subscribe", "events.#"),)), ROOT])
    process, root = net.process("s", "pubsub", user="S"), net.process("root", "pubsub", user="ROOT")
    process.subscribe("events.#")
    rekey(net, ROOT, Key("s", "S", (right("subscribe", "events.a"),)))
    root.publish("events.b", b"secret")
    assert process.got(Kind.PUBLISH) == [] and process.connection is None


def test_an_identity_that_its_key_may_not_have_any_more_goes(net: Network):
    net.router.set_authorized_keys(net.now, [Key("k", "K", (EVERYTHING,), ("one", "two"))])
    net.process("one", user="K"), net.process("two", user="K")
    rekey(net, Key("k", "K", (EVERYTHING,), ("two",)))
    assert [link.identity for link in net.router.links] == ["two"]


def test_those_with_direct_links_are_told_of_a_revoked_key(net: Network):
    net.router.set_authorized_keys(net.now, [NODE, WEB])
    node, web = net.process("node", user="NODE"), net.process("web", user="WEB")
    node.register("compute", peer_url="tcp://10.0.0.7:4711")
    (answer,) = web.introduce("compute").answers
    assert answer.body["key"] == "NODE"
    assert node.take(Kind.INTRODUCTION).body["key"] == "WEB"
    rekey(net, NODE)
    assert node.take(Kind.INTRODUCTION).body == {"url": "", "revoked": "WEB"}


def test_links_that_have_ended_are_not_kept_for_having_been_introduced(net: Network):
    net.router.set_authorized_keys(net.now, [NODE, WEB])
    node = net.process("node", user="NODE")
    node.register("compute", peer_url="tcp://10.0.0.7:4711")
    for number in range(600):
        web = net.process(f"web:{number}", user="WEB")
        web.introduce("compute")
        web.stop()
    known = next(usage for usage in net.router.links.access.usages() or () if usage.key.public == "NODE")
    assert len(known.introduced) <= 256


def test_those_with_direct_links_are_told_of_rights_that_are_gone(net: Network):
    net.router.set_authorized_keys(net.now, [NODE, WEB])
    node, web = net.process("node", user="NODE"), net.process("web", user="WEB")
    node.register("compute", peer_url="tcp://10.0.0.7:4711")
    web.introduce("compute")
    node.take(Kind.INTRODUCTION)
    more = Key("web", "WEB", (*WEB.rights, right("call", "image")))
    rekey(net, NODE, more)
    assert node.got(Kind.INTRODUCTION) == [], "who may more keeps what he has"
    rekey(net, NODE, Key("web", "WEB", (right("call", "image"),)))
    assert node.take(Kind.INTRODUCTION).body["revoked"] == "WEB"
    assert web.connection is not None


def test_who_listens_is_told_of_a_revoked_key_after_a_restart_and_a_new_link_too(net: Network):
    net.router.set_authorized_keys(net.now, [NODE, WEB])
    node, web = net.process("node", user="NODE"), net.process("web", user="WEB")
    node.register("compute", peer_url="tcp://10.0.0.7:4711")
    web.introduce("compute")
    net.restart_router()
    net.router.set_authorized_keys(net.now, [NODE, WEB])
    node.connect()
    node.register("compute", peer_url="tcp://10.0.0.7:4711")
    rekey(net, NODE)
    assert [m.body.get("revoked") for m in node.got(Kind.INTRODUCTION)][-1] == "WEB"


def test_the_caller_s_new_link_is_told_of_a_revoked_service(net: Network):
    net.router.set_authorized_keys(net.now, [NODE, WEB])
    node, web = net.process("node", user="NODE"), net.process("web", user="WEB")
    node.register("compute", peer_url="tcp://10.0.0.7:4711")
    web.introduce("compute")
    web.stop()
    again = net.process("web", user="WEB")
    rekey(net, WEB)
    assert [m.body["revoked"] for m in again.got(Kind.INTRODUCTION)] == ["NODE"]


def test_a_handle_is_good_in_a_later_life_of_the_router_for_its_key_only(net: Network):
    def authorise() -> None:
        net.router.set_authorized_keys(net.now, [WEB, ROOT], b"the router's own")

    authorise()
    web = net.process("web", user="WEB")
    handle, token = web.welcome.handle, web.welcome.token
    net.restart_router()
    authorise()
    thief = net.process("root", user="ROOT", handle=handle, token=token)
    guess = net.process("root:2", user="ROOT", handle=handle, token=thief.welcome.token)
    assert handle not in (net.link(thief).handle, net.link(guess).handle)
    assert not net.link(thief).returning
    web.connect()
    assert net.link(web).handle == handle and net.link(web).returning


def test_what_a_refusal_quotes_is_short(net: Network):
    net.router.set_authorized_keys(net.now, [WEB])
    web = net.process("web", user="WEB")
    call = web.send(Kind.QUERY, json_bytes({"what": "x" * 1_000_000}), format=1)
    assert len(call.end.payload) < 3000 and len(net.notes[-1].text) < 1000


@given(st.lists(st.sampled_from(list(Kind)[7:]), max_size=8), st.binary(max_size=60), st.binary(max_size=60))
def test_whatever_comes_under_a_key_is_answered_or_counted(kinds: list[Kind], address: bytes, payload: bytes):
    net = Network()
    net.router.set_authorized_keys(net.now, [slow(5.0), NODE])
    web = net.process("web", user="WEB")
    for kind in kinds:
        web.send(kind, payload, address=address, format=1)
    assert [note.text for note in net.notes if note.event == "internal error"] == []
    net.router.dispatch.check()


# --- how fast -------------------------------------------------------------------------------------


def slow(rate: float) -> Key:
    return Key("web", "WEB", WEB.rights, messages_per_second=rate)


def test_beyond_its_rate_a_call_is_told_when_to_come_again(net: Network):
    net.router.set_authorized_keys(net.now, [slow(2.0)])
    web = net.process("web", user="WEB")
    calls = [web.request("compute", ttl=60) for _ in range(3)]
    assert [len(c.answers) for c in calls] == [0, 0, 1]
    (answer,) = calls[2].answers
    assert answer.outcome is Outcome.OVERLOADED
    assert answer.body["details"] == {"limit": "messages_per_second", "retry_after": 0.5, "key": "web"}
    assert net.router.refused["too fast"] == net.link(web).counters["too fast"] == 1
    net.advance(0.5)
    assert web.request("compute", ttl=60).answers == []


def test_a_key_that_floods_gets_its_rate_and_the_others_theirs(net: Network):
    """Four seconds: one key sends 2,000 messages over three links at a rate of 50 a second, others what they may."""
    middling = Key("slow", "SLOW", WEB.rights, messages_per_second=10.0)
    net.router.set_authorized_keys(net.now, [slow(50.0), middling, Key("free", "FREE", WEB.rights), ROOT])
    node = net.process("root", user="ROOT")
    node.register("compute", credit=60_000)
    flooding = [net.process(f"web:{number}", user="WEB") for number in range(3)]
    honest = [net.process(name, user=name.upper()) for name in ("slow", "free")]
    for step in range(200):
        net.advance(0.02)
        with net.together():
            for number in range(10):
                flooding[number % 3].request("compute", ttl=60)
            for process in honest[step % 5 > 0 :]:
                process.request("compute", ttl=60)
        for request in node.got(Kind.REQUEST):
            node.reply(request, b"1")
    assert [[m.kind for m in process.received] for process in honest] == [[Kind.REPLY] * 40, [Kind.REPLY] * 200]
    answers = [answer for process in flooding for answer in process.received]
    refused = [answer for answer in answers if answer.kind is Kind.ERROR]
    # A second's worth at once, and then the rate: neither more nor less, whichever link it comes on.
    assert len(answers) == 2000 and 240 <= len(answers) - len(refused) <= 251
    assert {answer.outcome for answer in refused} == {Outcome.OVERLOADED}
    assert {answer.body["details"]["limit"] for answer in refused} == {"messages_per_second"}
    assert refused[0].body["text"].endswith("more than 50 messages a second (messages_per_second = 50)")
    refusals = {row["name"]: row["refused"] for row in rows(net)}
    assert refusals == {"web": {"too fast": len(refused)}, "slow": {}, "free": {}, "root": {}}


def test_what_goes_beyond_the_rate_is_refused_a_turn_at_a_time(net: Network):
    net.router.set_authorized_keys(net.now, [slow(1.0), Key("free", "FREE", WEB.rights), ROOT])
    node, web, free = net.process("root", user="ROOT"), net.process("web", user="WEB"), net.process("free", user="FREE")
    node.register("compute", credit=60_000)
    assert web.connection is not None
    address = b"\0\7\0compute"
    flood = [pack(Kind.REQUEST, b"", format=1, key=web.uplink.next_key(), address=address) for _ in range(4000)]
    net.router.receive(net.now, web.connection.route, b"".join(flood))
    assert 0 < net.router.refused["too fast"] < 1000
    waiting = len(net.link(web).inbox)
    assert waiting > 3000
    # Somebody else is heard before the next turn.
    net.router.run_next_turn(net.now)
    assert len(net.link(web).inbox) > 2000
    assert free.connection is not None
    one = pack(Kind.REQUEST, b"", format=1, key=free.uplink.next_key(), address=address)
    net.router.receive(net.now, free.connection.route, one)
    assert net.link(free).calls and len(net.link(web).inbox) > 2000
    net.run()
    assert net.router.refused["too fast"] == 3999


def test_the_rate_is_the_key_s_not_the_link_s(net: Network):
    net.router.set_authorized_keys(net.now, [slow(2.0)])
    one, two = net.process("web:1", user="WEB"), net.process("web:2", user="WEB")
    assert one.request("compute").answers == two.request("compute").answers == []
    assert one.request("compute").end.outcome is Outcome.OVERLOADED


def test_casts_beyond_the_rate_keep_their_order(net: Network):
    net.router.set_authorized_keys(net.now, [slow(1.0), ROOT])
    web, node = net.process("web", user="WEB"), net.process("root", user="ROOT")
    node.register("compute", credit=100)
    first, second, third = (web.cast("compute", payload=str(n).encode()) for n in range(3))
    assert [c.answers[0].outcome for c in (second, third)] == [Outcome.OVERLOADED] * 2 and not first.answers
    net.advance(5.0)
    late = web.cast("compute", payload=b"3")
    assert late.answers[0].outcome is Outcome.OVERLOADED, "it may not overtake"
    again = web.send(Kind.CAST, b"1", key=second.key, address=b"\0\7\0compute", format=1, flags=Flag.RESENT)
    assert [a.outcome for a in again.answers] == [Outcome.OVERLOADED], "only the refusal of before"
    assert [m.payload for m in node.got(Kind.CAST)] == [b"0", b"1"]


def test_a_limit_of_all_keys_holds_where_a_file_says_nothing(make_net: Any):
    net = make_net(messages_per_second=1.0)
    net.router.set_authorized_keys(net.now, [WEB, Key("root", "ROOT", (EVERYTHING,), messages_per_second=0.0)])
    web, root = net.process("web", user="WEB"), net.process("root", user="ROOT")
    assert [len(web.request("compute").answers) for _ in range(2)] == [0, 1]
    assert [len(root.request("compute").answers) for _ in range(5)] == [0] * 5


def test_a_key_that_may_do_everything_is_metered_too(make_net: Any):
    net = make_net(messages_per_second=1.0)
    net.router.set_authorized_keys(net.now, [ROOT])
    root = net.process("root", user="ROOT")
    assert [len(root.request("compute").answers) for _ in range(2)] == [0, 1]


def test_introductions_count_as_calls(net: Network):
    net.router.set_authorized_keys(net.now, [slow(1.0)])
    web = net.process("web", user="WEB")
    assert web.introduce("compute").answers[0].kind is Kind.INTRODUCTION
    assert web.introduce("compute").end.outcome is Outcome.OVERLOADED


def test_casts_beyond_the_rate_to_many_addresses_are_kept_within_a_bound(net: Network, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("rpcmq.core.router.right_checks._MAX_DECISIONS", 10)
    net.router.set_authorized_keys(net.now, [slow(1.0)])
    web = net.process("web", user="WEB")
    casts = [web.cast(f"compute.{number}") for number in range(50)]
    assert sum(bool(cast.answers) for cast in casts) == 49
    permissions = net.link(web).permissions
    assert permissions is not None and len(permissions.throttled) == 10


def test_a_batch_is_no_way_around_the_rate(net: Network):
    net.router.set_authorized_keys(net.now, [slow(5.0)])
    web = net.process("web", user="WEB")
    with net.together():
        calls = [web.request("compute", ttl=60) for _ in range(200)]
    assert sum(not call.answers for call in calls) == 5
