"""Drops leave a trace: totals, a table, a log line, and word to the sender."""

from __future__ import annotations

from typing import Any

import pytest

from rpcmq.core.common.drops import Drop, Drops
from rpcmq.core.process.retained_casts import RetainedCasts
from rpcmq.errors import Outcome
from rpcmq.testing.network import Network, Process
from rpcmq.wire import Flag, Kind, body_of, control
from tests.core.process.calling import Process as Sender


@pytest.fixture
def api(net: Network) -> Process:
    return net.process("api", keeps=True, wants_drops=True)


@pytest.fixture
def operator(net: Network) -> Process:
    return net.process("operator")


def totals(process: Process) -> dict[str, dict[str, int]]:
    answer: dict[str, dict[str, int]] = process.query("summary")["dropped"]
    return answer


def rows(process: Process) -> list[dict[str, Any]]:
    answer: list[dict[str, Any]] = process.query("dropped")["dropped"]
    return answer


def drop_notes(net: Network) -> list[str]:
    return [note.text for note in net.notes if note.event == "dropped"]


def told(process: Process) -> list[list[Any]]:
    return [row for m in process.inbox if m.kind is Kind.DROPPED for row in body_of(m.message)["dropped"]]


def test_casts_to_a_misspelt_topic_leave_a_trace_that_stays(net: Network, api: Process, operator: Process):
    """With the defaults they age out after 60 s, and their topic is forgotten soon after."""
    for _ in range(300):
        api.cast("compte", "resize")
    net.advance(80)
    assert operator.query("topics")["topics"] == [], "the topic is forgotten"
    for _ in range(2):
        assert totals(operator) == {"cast": {"aged out": 300}}
        assert operator.query("stats")["dropped"] == {"cast": {"aged out": 300}}
        [row] = rows(operator)
        assert (row["topic"], row["verb"], row["reason"], row["count"]) == ("compte", "cast", "aged out", 300)
        assert (row["method"], row["sender"]) == ("resize", "api")
        net.advance(3600)
    assert 3600 < rows(operator)[0]["last_seconds"] < 2 * 3600 + 80


def test_a_line_for_each_topic_and_reason_is_logged(net: Network, api: Process):
    for _ in range(300):
        api.cast("compte")
    api.cast("compute", ttl=5)
    net.advance(120)
    aged, expired = sorted(drop_notes(net))
    assert aged.startswith("1 cast to 'compute' was dropped: expired")
    assert expired.startswith("300 casts to 'compte' were dropped: aged out (nobody consumed the topic in time")
    [note] = [note for note in net.notes if note.fields.get("topic") == "compte"]
    assert note.fields == {"topic": "compte", "verb": "cast", "reason": "aged out", "count": 300}


def test_topics_without_end_take_a_bounded_number_of_lines_and_rows(make_net):
    net = make_net(unclaimed_seconds=10.0, max_unclaimed_topics=100_000)
    api = net.process("api")
    for number in range(5000):
        api.cast(f"junk-{number}")
    net.advance(200)
    assert len(drop_notes(net)) <= 60
    assert totals(api) == {"cast": {"aged out": 5000}}
    answer = api.query("dropped")
    assert len(answer["dropped"]) + answer["truncated"] == 5000


def test_the_sender_is_told_in_few_messages(net: Network, api: Process, operator: Process):
    for _ in range(300):
        api.cast("compte")
    for number in range(150):
        operator.cast(f"junk-{number}")
        api.cast(f"junk-{number}")
    net.advance(80)
    assert ["compte", "cast", "aged out", 300] in told(api)
    assert sum(row[3] for row in told(api)) == 450
    assert len([m for m in api.inbox if m.kind is Kind.DROPPED]) <= 3
    assert told(operator) == [], "it has not asked for that"


def test_every_reason_is_counted_by_verb(make_net):
    net = make_net(queue_max_messages=1, max_calls_in_flight=3)
    api, node = net.process("api"), net.process("node")
    api.cast("nobody", flags=Flag.MANDATORY)
    api.request("nobody", flags=Flag.MANDATORY)
    api.cast("nobody", flags=Flag.FANOUT)
    node.register("compute", credit=1)
    api.cast("compute", flags=Flag.FANOUT)
    api.cast("compute", flags=Flag.FANOUT)
    api.cast("compute", flags=Flag.FANOUT)
    api.cast("full")
    api.cast("full", flags=Flag.CONFIRM)
    api.request("full", ttl=5)
    for number in range(4):
        api.request(f"call-{number}", ttl=5)
    net.advance(10)
    node.die()
    net.advance(60)
    assert totals(api) == {
        "call": {"expired": 3, "no consumer": 1, "queue full": 1, "too many calls": 1},
        "cast": {"aged out": 1, "no consumer": 1, "queue full": 1},
        "fanout": {"consumer left": 1, "consumer lost": 1, "no consumer": 1, "queue full": 1},
    }
    assert not [text for text in drop_notes(net) if "no consumer" in text], "a fanout to nobody is no fault"


def test_a_cast_that_its_sender_offers_again_is_not_dropped(make_net):
    net = make_net(queue_max_messages=1)
    api = net.process("api")
    api.cast("compute")
    api.cast("compute")
    assert totals(api) == {}


def test_what_ends_a_cast_is_told_to_its_sender(make_net):
    """Also where the consumer that comes for it cannot read it: that is said with an error of its own."""
    net = make_net(queue_max_messages=1)
    api = net.process("api", keeps=True, wants_drops=True)
    unread = api.cast("simple", format=2)
    net.process("simple", accepts=["json"]).register("simple")
    assert unread.end.outcome is Outcome.PROTOCOL
    net.process("listener").register("alerts", credit=1)
    for _ in range(3):
        api.cast("alerts", flags=Flag.FANOUT)
    api.cast("lost")
    node = net.process("node")
    node.register("lost")
    node.die()
    api.cast("aged")
    net.advance(63)
    assert sorted(told(api)) == [
        ["aged", "cast", "aged out", 1],
        ["alerts", "fanout", "queue full", 1],
        ["lost", "cast", "consumer lost", 1],
    ]


def test_copies_that_a_full_group_loses_are_counted_logged_and_told(make_net):
    net = make_net(queue_max_messages=1)
    api, audit = net.process("api", keeps=True, wants_drops=True), net.process("audit")
    net.process("plain").register("compute", credit=10)
    audit.register("compute", group="audit", credit=1)
    for _ in range(5):
        api.cast("compute")
    net.advance(5)
    assert totals(api) == {"cast": {"queue full": 3}}
    [note] = drop_notes(net)
    assert note.startswith("3 casts to 'compute (group audit)' were dropped: queue full")
    assert told(api) == [["compute (group audit)", "cast", "queue full", 3]]


def test_events_that_a_subscriber_loses_are_counted(make_net):
    net = make_net(pubsub_max_messages=2)
    pub, sub = net.process("pub", "pubsub"), net.process("sub", "pubsub")
    sub.subscribe("alerts.#", window=1)
    for _ in range(5):
        pub.publish("alerts.disk")
    assert totals(pub) == {"event": {"slow subscriber": 2}}
    [row] = rows(pub)
    assert (row["topic"], row["consumer"], row["count"]) == ("alerts.disk", "sub", 2)
    sub.die()
    net.advance(60)
    assert totals(pub) == {"event": {"slow subscriber": 2, "subscriber left": 2}}


def test_outcomes_of_forgotten_topics_stay_in_the_totals(net: Network, api: Process, operator: Process):
    for number in range(20):
        api.request(f"topic-{number}", ttl=1)
        api.cast(f"topic-{number}")
    before = operator.query("stats")
    net.advance(1000)
    after = operator.query("stats")
    assert len(net.router.directory) == 0
    assert (before["calls"], before["casts"]) == (after["calls"], after["casts"]) == (20, 20)
    assert after["outcomes"] == {"timeout": 20, "no_consumer": 20}


def test_the_table_is_bounded_in_bytes_and_forgets_the_oldest():
    drops = Drops(max_table_bytes=100_000)
    for number in range(1000):
        drops.add(float(number), Drop(f"topic-{number}", "cast", "aged out"), sender="s" * 10_000)
    kept = drops.rows(1000.0)
    assert kept[0]["topic"] == "topic-999" and 50 < len(kept) < 101
    assert len(kept) + drops.rows_forgotten == 1000
    assert drops.totals == {"cast": {"aged out": 1000}}


# --- the sender ---------------------------------------------------------------------------------


@pytest.fixture
def sender() -> Sender:
    made = Sender()
    made.connect(tells_delivered=True, boot=6)
    return made


def notice(rows: Any) -> bytes:
    return control(Kind.DROPPED, {"dropped": rows})


def test_the_sender_counts_and_logs_what_it_is_told(sender: Sender):
    said: list[str] = []
    sender.casts.losses.on_loss = said.append
    sender.router(notice([["compte", "cast", "aged out", 300], ["alerts", "fanout", "consumer left", 2]]))
    assert sender.casts.losses.drops.totals == {"cast": {"aged out": 300}, "fanout": {"consumer left": 2}}
    assert sender.calls.next_deadline() == 1.0
    sender.calls.tick(1.0)
    assert [text.partition(" (")[0] for text in said] == [
        "300 casts to 'compte' were dropped: aged out",
        "2 fanout copies to 'alerts' were dropped: consumer left",
    ]


@pytest.mark.parametrize(
    "rows",
    [
        "x",
        [1],
        [["a", "cast", "b"]],
        [["a", "cast", "b", -1]],
        [["a", "cast", "b", "x"]],
        [["a", "cast", "b", float("inf")]],
        [["a", "cast", "b", 10**100]],
        [["a", "cast", "b", True]],
    ],
)
def test_a_malformed_notice_harms_nobody(sender: Sender, rows: Any):
    sender.router(notice(rows))
    assert sender.casts.losses.drops.totals == {}


def test_casts_let_go_beyond_the_bound_are_said(sender: Sender):
    sender.casts.retained = RetainedCasts(100, 10_000_000)
    said: list[str] = []
    sender.casts.losses.on_loss = said.append
    for _ in range(150):
        sender.cast()
    let_go = sender.casts.retained.discarded
    assert let_go >= 50
    sender.calls.tick(1.0)
    sender.calls.tick(3.0)
    [text] = said
    assert text == (
        f"{let_go} casts waiting for a consumer are held by the router only, and are lost if it is killed: "
        "this process retains at most 100 of them (cast_kept) and 10000000 bytes (cast_kept_bytes)"
    )
    sender.cast()
    sender.calls.close(4.0)
    assert len(said) == 2, "what was not said yet is said at the end"


def test_reasons_that_a_router_invents_take_bounded_memory(sender: Sender):
    for number in range(1000):
        sender.router(notice([["t", "cast", f"reason {number}", 1]]))
    totals = sender.casts.losses.drops.totals
    assert sum(map(len, totals.values())) == 201 and totals["other"] == {"other": 800}


def test_names_that_a_router_gives_cannot_break_a_line_of_the_log(sender: Sender):
    sender.router(notice([["a\nb", "ca\x1bst", "why\r", 1]]))
    assert sender.casts.losses.drops.totals == {"ca?st": {"why?": 1}}
