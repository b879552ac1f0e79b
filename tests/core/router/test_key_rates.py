"""A key gets the rate that it was given, whatever it does, and the others theirs."""

from __future__ import annotations

from typing import Any

import pytest

from rpcmq.core.router.rights import EVERYTHING, Key
from rpcmq.errors import Outcome
from rpcmq.testing.network import Network
from rpcmq.wire import Flag, Kind, pack
from tests.core.router.keyed import ROOT, WEB, rows, slow


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
