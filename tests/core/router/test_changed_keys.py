"""A key that is revoked, restricted or replaced loses at once what it may not have any more."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rpcmq.core.router.rights import EVERYTHING, Key
from rpcmq.errors import Outcome
from rpcmq.testing.network import Network
from rpcmq.wire import Kind, json_bytes
from tests.core.router.keyed import NODE, ROOT, WEB, denied, rekey, right, slow


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
        net.router.set_authorized_keys(net.now, [WEB, ROOT], [b"the router's own"])

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
