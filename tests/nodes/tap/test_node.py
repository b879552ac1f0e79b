"""The node type tap: copies within its bounds, for whom may see them, and no cost without one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from rpcmq.core.router.rights import EVERYTHING, Key, Right
from rpcmq.errors import Outcome
from rpcmq.nodes.tap import Tap
from rpcmq.nodes.tap.node import TAP_KIND
from rpcmq.testing.network import Call, Network
from rpcmq.testing.nodes import engine_with, node_of, plan_of, plug_in_of
from rpcmq.testing.process import Process
from rpcmq.wire import ORIGIN_OF_KEY, Kind


def network(**settings: Any) -> tuple[Network, Process, Process, Process]:
    net = Network(engine=engine_with(plan_of(Tap, settings=settings)))
    worker = net.process("worker")
    worker.register("compute", server="node-7", credit=100)
    return net, net.process("ops"), net.process("api"), worker


def asked(ops: Process, **members: Any) -> Call:
    return ops.send(TAP_KIND, json.dumps(members).encode(), ttl=60_000)


def answer(call: Call) -> dict[str, Any]:
    (message,) = call.answers
    assert message.kind is Kind.ANSWER, message.body
    found: dict[str, Any] = json.loads(message.payload)
    return found


def refusal(call: Call) -> str:
    (message,) = call.answers
    assert message.kind is Kind.ERROR
    return str(message.body["text"])


def started(ops: Process, topic: str = "compute", **members: Any) -> str:
    return str(answer(asked(ops, do="start", topic=topic, **members))["tap"])


def read(ops: Process, tap: str) -> dict[str, Any]:
    return answer(asked(ops, do="read", tap=tap))


def observed(net: Network) -> bool:
    """Return whether the router calls anybody about calls and casts."""
    dispatch = net.router.dispatch
    hooks = (dispatch.deliveries.on_delivered, dispatch.requests.on_recorded, dispatch.requests.on_answered)
    assert len({hook is None for hook in hooks}) == 1
    return hooks[0] is not None


def events(net: Network) -> list[str]:
    return [note.event for note in net.notes if note.event.startswith("tap: ")]


def test_a_call_and_its_reply_are_seen_with_their_envelopes() -> None:
    net, ops, api, worker = network()
    tap = started(ops)
    call = api.request("compute", "reboot", b"secret", ttl=30)
    net.advance(0.25)
    worker.reply(worker.take(Kind.REQUEST), b"done!")
    assert call.end.payload == b"done!"
    there, back = read(ops, tap)["copies"]
    assert there["id"] == back["id"] == call.key.hex()
    assert (there["what"], there["method"], there["caller"], there["consumer"]) == ("call", "reboot", "api", "worker")
    assert (there["ttl"], there["outcome"], there["attempt"]) == (30.0, "", 0)
    assert (back["what"], back["outcome"], back["seconds"]) == ("reply", "ok", 0.25)
    assert "payload" not in there and b"secret" not in json.dumps(there).encode()


def test_casts_faults_and_other_ends_are_seen() -> None:
    net, ops, api, worker = network()
    tap = started(ops)
    api.cast("compute", "note")
    worker.settle(worker.take(Kind.CAST))
    api.request("compute", "fail")
    worker.fault(worker.take(Kind.REQUEST), b"x")
    api.request("compute", "sleep", ttl=1)
    net.advance(2)
    seen = [(copy["what"], copy["outcome"]) for copy in read(ops, tap)["copies"]]
    assert seen == [
        ("cast", ""), ("ended", "ok"), ("call", ""), ("fault", "remote_error"), ("call", ""), ("ended", "timeout"),
    ]  # fmt: skip


def test_the_sender_of_a_cast_is_named_while_it_is_linked() -> None:
    _, ops, api, worker = network()
    tap = started(ops, what=["cast", "ended"], fields=["caller"])
    cast = api.cast("compute", "note")
    assert [copy["caller"] for copy in read(ops, tap)["copies"]] == ["api"]
    api.stop()
    worker.settle(worker.take(Kind.CAST))
    assert [copy["caller"] for copy in read(ops, tap)["copies"]] == [f"origin:{cast.key[ORIGIN_OF_KEY].hex()}"]


def test_only_the_topic_the_sorts_and_the_fields_that_are_wanted() -> None:
    _, ops, api, worker = network()
    tap = started(ops, what=["reply"], fields=["what", "method"])
    for _ in range(3):
        api.request("compute", "reboot")
        worker.reply(worker.take(Kind.REQUEST))
    api.cast("volume", "attach")
    copies = read(ops, tap)["copies"]
    assert [{**copy, "at_ms": 0} for copy in copies] == [{"at_ms": 0, "what": "reply", "method": "reboot"}] * 3


def test_without_a_tap_the_router_is_told_of_nothing() -> None:
    net, ops, api, _ = network()
    requests = net.router.dispatch.requests
    assert not observed(net)
    tap = started(ops)
    assert observed(net) and requests.watches_answers
    assert answer(asked(ops, do="stop", tap=tap)) == {"copies": 0, "lost": 0}
    assert not observed(net)
    assert not requests.watches_answers
    steps = plug_in_of(net.router, "tap").steps
    api.request("compute")
    assert plug_in_of(net.router, "tap").steps == steps


def test_a_reader_that_waits_is_answered_when_something_passes_or_its_time_is_up() -> None:
    net, ops, api, _ = network()
    tap = started(ops)
    waiting = asked(ops, do="read", tap=tap, wait=5)
    assert not waiting.answers
    api.request("compute")
    assert len(answer(waiting)["copies"]) == 1
    waiting = asked(ops, do="read", tap=tap, wait=5)
    net.advance(6)
    assert answer(waiting)["copies"] == [] and answer(waiting)["over"] == ""


def test_copies_beyond_the_rate_and_the_buffer_are_lost_and_counted_and_calls_are_not() -> None:
    net, ops, api, worker = network(buffer_bytes=4096)
    tap = started(ops, rate=10, what=["call"])
    with net.together():
        calls = [api.request("compute") for _ in range(50)]
    got = read(ops, tap)
    assert (len(got["copies"]), got["lost"]) == (10, 40)
    slow = started(ops, rate=1000, what=["call"])
    with net.together():
        calls += [api.request("compute") for _ in range(50)]
    got = read(ops, slow)
    assert 5 < len(got["copies"]) < 20 and got["lost"] == 50 - len(got["copies"])
    for message in worker.got(Kind.REQUEST):
        worker.reply(message)
    assert all(call.end.kind is Kind.REPLY for call in calls)
    assert net.router.refused["internal error"] == 0


@pytest.mark.parametrize(
    ("end", "over"),
    [("time", "its time is up"), ("count", "its budget of 2 copies is used up"), ("nobody", "nobody has read it")],
)
def test_a_tap_ends_by_its_time_its_budget_or_when_nobody_reads_it(end: str, over: str) -> None:
    net, ops, api, _ = network()
    tap = started(ops, seconds=10, count=2) if end != "nobody" else started(ops, seconds=100)
    if end == "count":
        api.request("compute")
        api.request("compute")
        api.request("compute")
        got = read(ops, tap)
        assert (len(got["copies"]), over in got["over"]) == (2, True)
    elif end == "time":
        waiting = asked(ops, do="read", tap=tap, wait=10)
        net.advance(11)
        assert over in answer(waiting)["over"]
    else:
        net.advance(31)
    assert "no such tap" in refusal(asked(ops, do="read", tap=tap))
    assert events(net) == ["tap: started", "tap: ended"]
    last = next(note for note in net.notes if note.event == "tap: ended")
    assert over in last.text and last.fields["by"] == "ops" and last.fields["topic"] == "compute"
    assert not observed(net)


def test_a_tap_ends_with_its_link() -> None:
    net, ops, api, _ = network()
    started(ops)
    started(ops, "volume")
    ops.stop()
    assert events(net) == ["tap: started"] * 2 + ["tap: ended"] * 2
    assert not observed(net)
    assert api.query("tap.taps")["taps"] == []


def test_nobody_reads_or_stops_the_tap_of_another_process() -> None:
    _, ops, api, _ = network()
    tap = started(ops)
    for verb in ("read", "stop"):
        assert "no such tap" in refusal(asked(api, do=verb, tap=tap))
    assert len(api.query("tap.taps")["taps"]) == 1
    assert "tap" not in api.query("tap.taps")["taps"][0], "its token is nobody's business"


def test_payloads_are_seen_where_allowed_and_redacted() -> None:
    body = {"args": {"host": "a", "adminPassword": "x", "deep": [{"token": {"a": 1}}], "pairs": [["api_key", "k"]]}}
    _, ops, api, _ = network()
    assert "payloads = false" in refusal(asked(ops, do="start", topic="compute", payload=True))
    _, ops, api, _ = network(payloads=True, payload_bytes=1000)
    tap = started(ops, payload=True, what=["call"], redact=["HOST"])
    api.request("compute", "boot", json.dumps(body).encode(), format=1)
    api.request("compute", "boot", b"\x80\x05N.", format=2)
    api.request("compute", "boot", json.dumps("x" * 1000).encode(), format=1)
    api.request("compute", "boot", b"{", format=1)
    api.request("compute", "boot", b"[" * 900, format=1)
    seen, pickled, large, *broken = read(ops, tap)["copies"]
    hidden = "(redacted)"
    assert seen["payload"] == {
        "args": {"host": hidden, "adminPassword": hidden, "deep": [{"token": hidden}], "pairs": [["api_key", hidden]]}
    }
    assert (pickled["payload"], pickled["withheld"]) == (None, "format pickle: only JSON is looked into")
    assert large["withheld"] == "1002 bytes: more than payload_bytes = 1000"
    assert [each["withheld"] for each in broken] == ["no JSON"] * 2


def test_no_more_of_payloads_is_looked_into_than_may_and_calls_are_not_slowed() -> None:
    net, ops, api, _ = network(payloads=True, payload_bytes=1000, payload_bytes_per_second=1000)
    tap = started(ops, payload=True, what=["call"])
    for _ in range(3):
        api.request("compute", "boot", json.dumps("x" * 500).encode(), format=1)
    first, *others = read(ops, tap)["copies"]
    assert first["payload"] == "x" * 500
    assert {each["withheld"] for each in others} == {"more was looked into than payload_bytes_per_second"}
    assert [each["payload"] for each in others] == [None, None]
    net.advance(1.0)
    api.request("compute", "boot", json.dumps("x" * 500).encode(), format=1)
    assert read(ops, tap)["copies"][0]["payload"] == "x" * 500


@pytest.mark.parametrize(
    ("members", "text"),
    [
        ({}, "do: expected one of start, read, stop"),
        ({"do": "start"}, "topic: expected the name of a topic"),
        ({"do": "start", "topic": 3}, "topic: expected printable text"),
        (
            {"do": "start", "topic": "x", "seconds": 1e9},
            "seconds = 1000000000.0: expected a number above 0, and at most",
        ),
        ({"do": "start", "topic": "x", "rate": True}, "rate = True: expected a number"),
        ({"do": "start", "topic": "x", "rate": float("nan")}, "rate = nan: expected a number"),
        ({"do": "start", "topic": "x", "what": ["calls"]}, "what: 'calls': expected one of call, cast"),
        ({"do": "start", "topic": "x", "fields": "all"}, "fields: expected a list"),
        ({"do": "start", "topic": "x", "redact": ["x" * 101]}, "redact: "),
        ({"do": "start", "topic": "x", "sudo": 1}, "unknown: 'sudo'"),
        ({"do": "read", "tap": 3}, "no such tap"),
        ({"do": ["start"]}, "do: expected one of"),
    ],
)
def test_wrong_asks_are_refused_with_the_member(members: Mapping[str, Any], text: str) -> None:
    net, ops, _, _ = network()
    assert text in refusal(asked(ops, **members))
    assert not plug_in_of(net.router, "tap").out


@pytest.mark.parametrize("payload", [b"", b"[]", b"\xff", b"[" * 60_000, b"{" + b" " * 70_000 + b"}"])
def test_garbage_is_its_senders_fault(payload: bytes) -> None:
    net, ops, _, _ = network()
    assert refusal(ops.send(TAP_KIND, payload))
    assert not plug_in_of(net.router, "tap").out


def test_there_is_a_bound_for_taps() -> None:
    _net, ops, _, _ = network(max_taps=2)
    started(ops)
    started(ops)
    assert "max_taps = 2" in refusal(asked(ops, do="start", topic="compute"))


def with_key(*rights: Right) -> tuple[Network, Process, Process]:
    net = Network(engine=engine_with(plan_of(Tap, settings={"payloads": True})))
    keys = [Key("ops", "O" * 40, rights), Key("root", "R" * 40, (EVERYTHING,))]
    net.router.set_authorized_keys(net.now, keys)
    worker = net.process("root:worker", user="R" * 40)
    worker.register("compute")
    return net, net.process("ops", user="O" * 40), net.process("root", user="R" * 40)


def test_whom_a_key_has_no_right_for_nobody_taps() -> None:
    net, ops, root = with_key(Right(frozenset({"node"}), ("tap.compute", "tap.compute.#")))
    tap = started(ops)
    for members in (
        {"topic": "volume"},
        {"topic": "compute", "exchange": "prod"},
        {"topic": "compute", "payload": True},
    ):
        (message,) = asked(ops, do="start", **members).answers
        assert message.outcome is Outcome.DENIED and "no right to node 'tap." in message.body["text"]
    started(root, payload=True)
    (message,) = ops.send(Kind.QUERY, b'{"what":"tap.taps"}', format=1).answers
    assert message.outcome is Outcome.DENIED
    net.router.set_authorized_keys(net.now, [Key("ops", "O" * 40, ()), Key("root", "R" * 40, (EVERYTHING,))])
    (message,) = asked(ops, do="read", tap=tap).answers
    assert message.outcome is Outcome.DENIED, "a right that is gone ends what it allowed"


def test_an_operator_with_all_rights_but_those_of_nodes_taps_nothing() -> None:
    _, ops, _ = with_key(Right(EVERYTHING.verbs - {"node"}, ("#",), ("*",)))
    (message,) = asked(ops, do="start", topic="compute").answers
    assert message.outcome is Outcome.DENIED


def test_a_node_that_is_out_watches_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    net, ops, api, worker = network()
    started(ops)
    monkeypatch.setattr(Tap, "passed", lambda self, passage: 1 / 0)
    call = api.request("compute")
    worker.reply(worker.take(Kind.REQUEST), b"done")
    assert call.end.payload == b"done"
    assert node_of(net.router, "tap") is None and not observed(net)
    assert net.router.refused["internal error"] == 0
