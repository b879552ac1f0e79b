"""A plugged-in node costs its router nothing but itself, whatever it does."""

from __future__ import annotations

import builtins
from asyncio import CancelledError
from math import inf, nan
from typing import Any

import pytest

from rpcmq.core.router.router import Router
from rpcmq.errors import Outcome, ProtocolError
from rpcmq.nodes import Node
from rpcmq.nodes.open_asks import MAX_OF_LINK
from rpcmq.nodes.plan import Plan
from rpcmq.testing.network import Call, Network
from rpcmq.testing.nodes import engine_with, node_of, plan_of, plug_in_of
from rpcmq.testing.process import Message, Process
from rpcmq.wire import Kind, json_bytes
from tests.nodes import hostile
from tests.nodes.hostile import KIND


def network(node: type[Node] | Plan, **options: Any) -> tuple[Network, Process]:
    net = Network(engine=engine_with(node), **options)
    return net, net.process("api")


def asked(api: Process, payload: bytes = b"", **fields: Any) -> Call:
    return api.send(KIND, payload, **fields)


def only(call: Call) -> Message:
    (answer,) = call.answers
    return answer


def told(call: Call) -> str:
    assert only(call).kind is Kind.ERROR
    return str(only(call).body["text"])


def control(api: Process, node: str, **arguments: Any) -> Call:
    return api.send(Kind.QUERY, json_bytes({"what": f"control.{node}.do", **arguments}), format=1)


def restart(api: Process, node: str) -> Call:
    return api.send(Kind.QUERY, json_bytes({"what": "control.node.restart", "node": node}), format=1)


def assert_calls_go_on(net: Network, api: Process) -> None:
    worker = net.process("worker")
    worker.register("compute")
    call = api.request("compute", "reboot")
    worker.reply(worker.take(Kind.REQUEST), b"done")
    assert call.end.payload == b"done"
    worker.stop()


def assert_is_out(net: Network, api: Process, why: str) -> None:
    name = net.router.nodes[-2].plan.name  # type: ignore[attr-defined]
    assert node_of(net.router, name) is None
    row = api.query("nodes")["nodes"][0]
    assert row["state"] == "out" and why in row["why"] and row["failures"] == 1
    assert [note.event for note in net.notes].count("node out") == 1
    late = asked(api)
    assert only(late).outcome is Outcome.NO_CONSUMER and why in told(late)
    assert api.query(f"{name}.rows")["rows"] == []
    assert why in told(control(api, name))
    assert net.router.refused["internal error"] == 0
    assert_calls_go_on(net, api)


def test_an_obedient_node_answers_asks_controls_and_views() -> None:
    _net, api = network(hostile.Obedient)
    assert only(asked(api, b"hello")).payload == b"hello"
    assert only(control(api, "obedient", a=1)).body == {"did": {"a": 1}}
    view = api.query("obedient.rows")
    assert view == {"rows": [{"row": number} for number in range(12)], "truncated": 0, "out": ""}
    row = api.query("nodes")["nodes"][0]
    assert (row["name"], row["state"], row["kinds"], row["metrics"]) == ("obedient", "in", ["0x90"], {"answers": 1})


@pytest.mark.parametrize(
    "where", ["take", "control", "view", "metrics", "tick", "ask_ended", "begin_drain", "next_deadline"]
)
def test_an_exception_takes_the_node_out_and_nothing_else(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    net, api = network(hostile.RaisesIn)
    waiting = asked(api, ttl=30_000)
    asked(api, ttl=100)
    monkeypatch.setattr(hostile.RaisesIn, "where", where)
    if where == "take":
        asked(api)
    elif where == "control":
        control(api, "raisesin")
    elif where == "view":
        assert "on purpose" in api.query("raisesin.rows")["out"]
    elif where == "metrics":
        api.query("nodes")
    elif where == "begin_drain":
        net.router.nodes[-2].begin_drain(net.now)
        net.run()
    else:
        net.advance(3.0)
    assert f"on purpose in {where}" in told(waiting)
    assert_is_out(net, api, f"RuntimeError: on purpose in {where}")


@pytest.mark.parametrize("error", [ProtocolError, GeneratorExit, StopIteration, SystemExit, CancelledError])
@pytest.mark.parametrize(
    "where", ["__init__", "view", "metrics", "tick", "ask_ended", "next_deadline", "peer_ended", "close"]
)
def test_other_exceptions_take_it_out_as_well(
    where: str, error: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hostile.RaisesIn, "error", error)
    monkeypatch.setattr(hostile.RaisesIn, "where", where if where == "__init__" else "")
    net, api = network(hostile.RaisesIn)
    other = net.process("other")
    asked(other)
    asked(api, ttl=100)
    monkeypatch.setattr(hostile.RaisesIn, "where", where)
    other.stop()
    net.advance(3.0)
    api.query("raisesin.rows")
    api.query("nodes")
    net.router.nodes[-2].close(net.now)
    if where == "view" and error in (StopIteration, GeneratorExit):
        return  # within a generator that is its end
    assert_is_out(net, api, "on purpose in" if error is not SystemExit else "SystemExit")


def test_an_exception_while_it_is_made_leaves_a_router_that_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hostile.RaisesIn, "where", "__init__")
    net, api = network(hostile.RaisesIn)
    assert_is_out(net, api, "on purpose in __init__")
    monkeypatch.setattr(hostile.RaisesIn, "where", "")
    assert only(restart(api, "raisesin")).body == {"was_out": True, "out": ""}
    assert node_of(net.router, "raisesin") is not None


@pytest.mark.parametrize("where", ["peer_ended", "close"])
def test_an_exception_at_an_end_takes_the_node_out(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    net, api = network(hostile.RaisesIn)
    other = net.process("other")
    asked(other)
    monkeypatch.setattr(hostile.RaisesIn, "where", where)
    if where == "peer_ended":
        other.stop()
    else:
        net.router.nodes[-2].close(net.now)
    assert_is_out(net, api, f"on purpose in {where}")


@pytest.mark.parametrize(
    ("node", "why"),
    [
        (hostile.Exits, "SystemExit: 3"),
        (hostile.RaisesTheUnspeakable, "Unspeakable: (its text cannot be had: ValueError)"),
        (hostile.AnswersUnchecked, "call require() before answer()"),
    ],
)
def test_other_ways_to_fail(node: type[Node], why: str) -> None:
    net, api = network(node)
    asked(api)
    assert_is_out(net, api, why)


def test_a_refusal_whose_text_cannot_be_had_costs_its_sender_only_that_message() -> None:
    net, api = network(hostile.RefusesWithoutWords)
    assert "its text cannot be had" in told(asked(api))
    assert net.link(api).counters["refused node refuseswithoutwords"] == 1
    assert not plug_in_of(net.router, "refuseswithoutwords").out
    assert_calls_go_on(net, api)


@pytest.mark.parametrize("value", [nan, "soon", None, True, [1]])
def test_a_deadline_that_is_no_time_takes_the_node_out(value: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    net, api = network(hostile.Deadline)  # it is NaN at first
    assert_is_out(net, api, "next_deadline() has returned nan")
    monkeypatch.setattr(hostile.Deadline, "value", inf)
    restart(api, "deadline")
    assert only(asked(api, b"x")).payload == b"x"
    monkeypatch.setattr(hostile.Deadline, "value", value)
    asked(api)
    assert node_of(net.router, "deadline") is None


def test_a_node_that_is_always_due_is_ticked_two_hundred_times_a_second_at_most() -> None:
    net, _ = network(hostile.AlwaysDue)
    net.advance(1.0)
    assert 0 < node_of(net.router, "alwaysdue").ticks <= 201
    assert net.router.next_deadline() > net.now


def test_ticks_that_take_long_leave_the_router_nine_tenths_of_its_time() -> None:
    net, _ = network(hostile.WorksAllTheTime)
    net.advance(2.0)
    assert 0 < node_of(net.router, "worksallthetime").ticks <= 11


@pytest.mark.parametrize("value", [b"bytes", {1, 2}, nan.__class__, "x" * (2 << 20)])
def test_what_is_no_json_or_too_large_takes_the_node_out(value: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hostile.Answers, "value", value)
    for reach in (
        lambda api: control(api, "answers"),
        lambda api: api.query("answers.rows"),
        lambda api: api.query("nodes"),
    ):
        net, api = network(hostile.Answers)
        reach(api)
        assert node_of(net.router, "answers") is None
        assert_calls_go_on(net, api)


@pytest.mark.parametrize("node", [hostile.Hoards, hostile.HoardsInItsModule])
def test_a_node_that_hoards_memory_is_taken_out(node: type[Node]) -> None:
    hostile.HOARD.clear()
    net, api = network(plan_of(node, max_bytes=1 << 20))
    for _ in range(300):
        asked(api, bytes(8000))
        net.advance(0.001)
    net.advance(0.5)
    hostile.HOARD.clear()
    assert_is_out(net, api, "it holds more than max_bytes = 1048576")


def test_a_node_within_its_bound_is_measured_and_stays() -> None:
    net, api = network(plan_of(hostile.Hoards, max_bytes=8 << 20))
    for _ in range(150):
        asked(api, bytes(8000))
        net.advance(0.001)
    net.advance(11.0)
    size = plug_in_of(net.router, "hoards").size_bytes
    assert 150 * 8000 < size < 2 * 150 * 8000


def test_what_the_interpreter_holds_is_not_the_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(builtins, "_", bytes(2 << 20), raising=False)
    net, _ = network(plan_of(hostile.Hoards, max_bytes=1 << 20))
    net.advance(11.0)
    assert plug_in_of(net.router, "hoards").size_bytes < 1 << 20


def test_an_ask_is_answered_once() -> None:
    net, api = network(hostile.AnswersTwice)
    call = asked(api)
    assert [answer.payload for answer in call.answers] == [b"first"]
    assert node_of(net.router, "answerstwice") is not None


def test_one_process_cannot_make_a_node_owe_it_more_than_its_bound() -> None:
    net, api = network(hostile.Keeps)
    with net.together():
        calls = [asked(api) for _ in range(MAX_OF_LINK + 1)]
    assert only(calls[-1]).outcome is Outcome.OVERLOADED and "1000 may" in told(calls[-1])
    assert not calls[-2].answers
    assert asked(net.process("other")).answers == []
    api.stop()
    assert plug_in_of(net.router, "keeps").row(net.now)["open_asks"] == 1


def test_an_ask_that_nobody_waits_for_is_forgotten() -> None:
    net, api = network(hostile.Keeps)
    call = asked(api, ttl=2000)
    net.advance(4.0)
    assert plug_in_of(net.router, "keeps").row(net.now)["open_asks"] == 0
    assert not node_of(net.router, "keeps").kept.answer(b"too late") and not call.answers


def test_a_process_that_reads_nothing_gets_errors_in_place_of_large_answers() -> None:
    net, api = network(hostile.SendsTooMuch)
    with net.together():
        for _ in range(12):
            asked(api)
    answers = list(api.got(Kind.ANSWER, Kind.ERROR))
    assert sum(message.kind is Kind.ERROR for message in answers) > 0
    assert node_of(net.router, "sendstoomuch") is not None


def test_a_node_that_logs_too_much_is_cut_short() -> None:
    net, api = network(hostile.LogsTooMuch)
    asked(api)
    noise = [note for note in net.notes if note.event == "logstoomuch: noise"]
    assert len(noise) <= 20 and max(len(note.text) for note in noise) <= 500
    assert node_of(net.router, "logstoomuch").context.events_left_out == 1000 - len(noise)


def test_fields_of_a_log_event_never_hide_those_of_the_record() -> None:
    net, _ = network(hostile.Obedient)
    context = node_of(net.router, "obedient").context
    context.log(net.now, "said", "so", "api", {"identity": 1, "event": 2, "own": 3})
    net.run()
    assert net.notes[-1].fields == {"node_identity": 1, "node_event": 2, "own": 3}
    for fields in ({"own": b"bytes"}, {"own": "x" * 20_000}):
        with pytest.raises((TypeError, ValueError)):
            context.log(net.now, "said", "so", "", fields)


def test_a_restart_counts_and_gives_a_new_node() -> None:
    net, api = network(hostile.Keeps)
    before, call = node_of(net.router, "keeps"), asked(api)
    assert only(restart(api, "keeps")).body == {"was_out": False, "out": ""}
    assert "it is started over" in told(call)
    assert node_of(net.router, "keeps") is not before
    assert plug_in_of(net.router, "keeps").restarts == 1
    assert "it has: keeps" in told(restart(api, "keep"))


def test_a_drain_answers_whoever_waits() -> None:
    net, api = network(hostile.Keeps)
    call = asked(api)
    net.router.begin_drain(net.now)
    net.run()
    assert only(asked(api)).outcome is Outcome.DRAINING
    net.router.finish_drain(net.now)
    net.run()
    assert only(call).outcome is Outcome.DRAINING


def test_a_router_without_nodes_has_none_of_it_and_says_so() -> None:
    net = Network()
    api = net.process("api")
    assert "this router has no node that takes messages of kind 0x90" in told(asked(api))
    assert type(net.router) is Router and "nodes" not in net.router.views
