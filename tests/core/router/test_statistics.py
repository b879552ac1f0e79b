"""The router's state as data: everything an operator asks for, and JSON through and through."""

from __future__ import annotations

import json

import pytest

from rpcmq.core.router import view_rows, views
from rpcmq.core.router.roundrobin import views as roundrobin_views
from rpcmq.errors import Outcome
from rpcmq.testing.network import Network, Process
from rpcmq.wire import SETTLEMENT, Flag, Kind, json_bytes
from tests.views import VIEWS


@pytest.fixture
def api(net: Network) -> Process:
    return net.process("api", role="caller", host="h1", pid=17, program="nova-api")


def test_an_unknown_view_is_refused_and_the_known_are_named(net: Network, api: Process):
    (error,) = api.send(Kind.QUERY, json_bytes({"what": "nonsense"}), format=1).answers
    assert error.outcome is Outcome.PROTOCOL
    assert error.body["text"] == (
        "view 'nonsense' is unknown; known: overview, summary, processes, stats, keys, topics, calls, methods, "
        "dropped, stuck, mesh, addresses"
    )
    assert net.router.refused == {"query": 1}


def test_an_unknown_control_is_refused_and_the_known_are_named(net: Network, api: Process):
    (error,) = api.send(Kind.QUERY, json_bytes({"what": "control.barrier.opne"}), format=1).answers
    assert error.outcome is Outcome.PROTOCOL
    assert (
        error.body["text"]
        == "control 'barrier.opne' is unknown; known: kick, purge, mesh.join, mesh.forget, mesh.leave"
    )


def test_the_default_view_is_the_overview(api: Process):
    (answer,) = api.send(Kind.QUERY, b"{}", format=1).answers
    assert answer.kind is Kind.ANSWER and {"router", "processes", "topics"} <= answer.body.keys()


@pytest.mark.parametrize("what", VIEWS)
def test_every_view_of_a_busy_router_is_json(net: Network, api: Process, what: str):
    node, sub = net.process("node"), net.process("sub", queue_type="pubsub")
    node.register("compute", server="node-7", credit=2)
    sub.subscribe("#", window=1)
    for i in range(6):
        api.request("compute", "reboot", ttl=1 + i)
        api.cast("compute.node-7", "log")
        api.publish("a.b")
    api.cast("compute", flags=Flag.FANOUT)
    node.reply(node.take(Kind.REQUEST))
    node.settle(node.take(Kind.CAST))
    net.advance(3)
    view = api.query(what)
    assert json.loads(json.dumps(view)) == view


def test_the_summary(net: Network, api: Process):
    node = net.process("node")
    node.register("compute", credit=5)
    api.request("compute")
    api.publish("a")
    api.send(0x6F)
    net.advance(10)
    summary = api.query("summary")
    assert {k: summary[k] for k in ("router", "router_id", "boot", "draining", "links", "topics")} == {
        "router": "router",
        "router_id": 1,
        "boot": net.router.boot,
        "draining": False,
        "links": 2,
        "topics": 1,
    }
    assert summary["uptime_seconds"] == 10.0 and summary["calls_in_flight"] == 1
    assert summary["published"] == {"events": 1, "copies": 0}
    assert summary["refused"] == {"kind": 1}


def test_the_processes(net: Network, api: Process):
    node = net.process("node")
    node.register("compute", server="node-7", credit=5)
    api.request("compute")
    net.advance(7)
    rows = {row["identity"]: row for row in api.query("processes")["processes"]}
    expected = {"queue_type": "roundrobin", "role": "caller", "state": "answering", "calls": 1, "in_flight": 0}
    assert expected.items() <= {k: v for k, v in rows["api"].items() if isinstance(v, str | int)}.items()
    assert (rows["api"]["host"], rows["api"]["pid"], rows["api"]["program"]) == ("h1", "17", "nova-api")
    assert rows["node"]["consumers"] == ["compute.node-7"] and rows["node"]["in_flight"] == 1
    assert rows["node"]["connected_seconds"] == 7.0 and 0 <= rows["node"]["silent_seconds"] <= 5
    assert "patterns" not in rows["node"]


def test_a_process_that_is_away_is_shown_as_such(net: Network, api: Process):
    net.process("node").lose()
    rows = {row["identity"]: row["state"] for row in api.query("processes")["processes"]}
    assert rows == {"api": "answering", "node": "away"}


def test_the_topics(net: Network, api: Process):
    node = net.process("node")
    node.register("compute", server="node-7", exchange="nova", credit=1)
    for _ in range(3):
        api.request("compute", exchange="nova", payload=b"x" * 100)
    net.advance(2)
    (topic,) = api.query("topics")["topics"]
    assert (topic["exchange"], topic["topic"], topic["registered"]) == ("nova", "compute", True)
    assert topic["last_seen_seconds"] is None
    assert topic["queued"] == 2 and topic["queued_bytes"] > 200 and topic["in_flight"] == 1
    assert [q["name"] for q in topic["queues"]] == ["nova/compute"]
    assert topic["consumers"] == [
        {
            "identity": "node",
            "server": "node-7",
            "credit": 1,
            "in_flight": 1,
            "occupied": 0,
            "oldest_seconds": 2.0,
            "settled": 0,
            "state": "answering",
            "queued": 0,
        }
    ]


def test_an_abandoned_topic_tells_when_it_was_consumed_last(net: Network, api: Process):
    node = net.process("node")
    node.register("compute")
    net.advance(100)
    node.stop()
    net.advance(42)
    (topic,) = api.query("topics")["topics"]
    assert topic["last_seen_seconds"] == 42.0 and topic["consumers"] == []


def test_the_calls_longest_first(net: Network, api: Process):
    node = net.process("node")
    node.register("compute", credit=1)
    api.request("compute", "first", flags=Flag.IDEMPOTENT)
    net.advance(5)
    api.request("compute", "second")
    net.advance(1)
    rows = api.query("calls")["calls"]
    assert rows == [
        {
            "caller": "api",
            "topic": "compute",
            "method": "first",
            "seconds": 6.0,
            "server": "node",
            "state": "in flight",
            "attempt": 0,
        },
        {
            "caller": "api",
            "topic": "compute",
            "method": "second",
            "seconds": 1.0,
            "server": None,
            "state": "queued",
            "attempt": 0,
        },
    ]


def test_the_methods_with_outcomes_and_latency(net: Network, api: Process):
    node = net.process("node")
    node.register("compute", credit=10)
    for i in range(10):
        api.request("compute", "reboot", ttl=60)
        net.advance(0.1 if i < 9 else 1.0)
        request = node.take(Kind.REQUEST)
        if i % 5:
            node.reply(request)
        else:
            node.fault(request)
    api.request("compute", "slow", ttl=1)
    api.request("compute", "mandatory", exchange="x", flags=Flag.MANDATORY)
    net.advance(2)
    rows = {(r["topic"], r["method"]): r for r in api.query("methods")["methods"]}
    reboot = rows["compute", "reboot"]
    assert (reboot["calls"], reboot["casts"], reboot["errors"]) == (10, 0, 2)
    assert reboot["outcomes"] == {"ok": 8, "remote_error": 2}
    assert reboot["latency_us"]["p50"] == pytest.approx(1e5, rel=0.02)
    assert reboot["latency_us"]["p99"] == pytest.approx(1e6, rel=0.02)
    assert reboot["mean_us"] == pytest.approx(1.9e5, rel=0.02) and reboot["max_us"] == pytest.approx(1e6)
    assert rows["compute", "slow"]["outcomes"] == {"timeout": 1}
    assert rows["x/compute", "mandatory"]["outcomes"] == {"no_consumer": 1}


def test_each_message_is_counted_with_one_outcome(net: Network, api: Process):
    """Calls and casts, however they end: as many outcomes as messages."""
    node = net.process("node")
    node.register("compute", credit=3)
    for i in range(9):
        api.request("compute", "m", ttl=5, flags=Flag.IDEMPOTENT if i % 2 else 0)
        api.cast("compute", "m", ttl=5)
    api.cancel(api.request("compute", "m"))
    node.reply(node.take(Kind.REQUEST))
    node.settle(node.take(Kind.CAST))
    node.lose()
    net.advance(20)
    (row,) = api.query("methods")["methods"]
    assert (row["calls"], row["casts"]) == (10, 9)
    assert sum(row["outcomes"].values()) == 19


def test_an_outcome_that_nobody_knows_is_shown_as_it_is(api: Process, net: Network):
    """A consumer may be of a later version, or lie."""
    node = net.process("node")
    node.register("compute")
    api.cast("compute", "log")
    cast = node.take(Kind.CAST)
    node.send(Kind.SETTLE, SETTLEMENT.pack(cast.key, 0, 200, 0))
    (row,) = api.query("methods")["methods"]
    assert row["outcomes"] == {"outcome 200": 1} and row["errors"] == 1


def show_rows(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    for module in (view_rows, views, roundrobin_views):
        monkeypatch.setattr(module, "MAX_ROWS", most)


def test_a_long_view_is_cut_and_says_so(api: Process, net: Network, monkeypatch: pytest.MonkeyPatch):
    show_rows(monkeypatch, 5)
    for i in range(8):
        api.cast(f"topic-{i}")
    view = api.query("topics")
    assert len(view["topics"]) == 5 and view["truncated"] == 3


@pytest.mark.parametrize(
    ("what", "made"), [("topics", "_topic"), ("processes", "_process"), ("calls", "_call"), ("overview", "_topic")]
)
def test_a_view_makes_no_more_rows_than_it_shows(
    net: Network, api: Process, monkeypatch: pytest.MonkeyPatch, what: str, made: str
):
    """A router has far more topics, links and calls than a view lists, and nobody is heard while it is made."""
    show_rows(monkeypatch, 5)
    rows: list[object] = []
    module = views if made == "_process" else roundrobin_views
    make = getattr(module, made)

    def counting(*args: object) -> object:
        rows.append(args)
        return make(*args)

    monkeypatch.setattr(module, made, counting)
    for i in range(8):
        net.process(f"other-{i}")
        api.request(f"t{i}")
    view = api.query(what)
    assert len(rows) == 5 and view["truncated"] == (4 if what == "processes" else 3)


def test_a_view_of_calls_and_of_methods_keeps_the_oldest_and_the_most_called(
    net: Network, api: Process, monkeypatch: pytest.MonkeyPatch
):
    show_rows(monkeypatch, 2)
    for i in range(4):
        for _ in range(i + 1):
            api.request("compute", f"m{i}")
        net.advance(1)
    calls, methods = api.query("calls"), api.query("methods")
    assert [row["method"] for row in calls["calls"]] == ["m0", "m1"] and calls["truncated"] == 8
    assert [row["method"] for row in methods["methods"]] == ["m3", "m2"] and methods["truncated"] == 2


def test_outcomes_are_shown_in_one_order_whichever_came_first():
    assert list(roundrobin_views.named_outcomes({Outcome.TIMEOUT: 1, 77: 1, Outcome.OK: 9})) == [
        "ok",
        "timeout",
        "outcome 77",
    ]
