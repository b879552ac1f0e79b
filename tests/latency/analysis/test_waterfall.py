"""The tree of calls, and the share of each in the time."""

from __future__ import annotations

import random
from typing import Any

from rpcmq.latency.analysis.waterfall import Span, render, waterfall

_BEGIN = 1_700_000_000_000_000


def row(seq: int, at: int, total: int | None, **more: Any) -> dict[str, Any]:
    """A record that came ``at`` microseconds: a tenth of its time it waits, half of the rest is the handler's."""
    queue = None if total is None else total // 10
    service = None if total is None else total - total // 10
    made = {
        "router": "r1", "router_id": 1, "boot": 5, "seq": seq, "trace_id": "ab" * 16,
        "origin_router": 1, "origin_link": 1, "origin_seq": seq, "hops": 0, "kind": "call",
        "exchange": "", "topic": "compute", "group": "", "target_server": "", "method": f"m{seq}",
        "client": "api", "server": "node", "server_process": "node:1", "outcome": "ok", "format": "json",
        "req_bytes": 100, "rep_bytes": 100, "attempt": 0, "ttl_ms": None, "recv_at": _BEGIN + at,
        "queue_us": queue, "service_us": service, "handler_us": None if service is None else service // 2,
        "total_us": total, "error_class": None, "reply_us": None,
    }  # fmt: skip
    return made | more


def shape(spans: list[Span]) -> list[tuple[str, int, str, int, bool]]:
    return [(span.row["method"], span.depth, span.link, span.offset_us, span.placed) for span in spans]


def test_a_call_alone_is_split_into_its_stages() -> None:
    [span] = waterfall([row(1, 0, 10_000)])
    assert (span.queue_us, span.network_us, span.handler_us, span.total_us) == (1000, 4500, 4500, 10_000)
    assert shape([span]) == [("m1", 0, "root", 0, False)]


def test_where_the_way_back_is_known_the_way_there_is_too() -> None:
    [span] = waterfall([row(1, 0, 10_000, reply_us=1500)])
    assert (span.queue_us, span.network_us, span.handler_us, span.reply_us) == (1000, 3000, 4500, 1500)
    document = span.as_json()
    assert (document["network_us"], document["reply_us"]) == (3000, 1500)
    # Without it they are one number.
    [span] = waterfall([row(1, 0, 10_000)])
    assert (span.network_us, span.reply_us) == (4500, None)


def test_the_way_back_is_no_longer_than_it_can_be() -> None:
    for reply, handler, expected in ((-5, 4500, (4500, 0)), (9000, 4500, (0, 4500)), (700, 9500, (0, 0))):
        [span] = waterfall([row(1, 0, 10_000, reply_us=reply, handler_us=handler)])
        assert (span.network_us, span.reply_us) == expected


def test_a_way_back_without_the_handlers_time_says_nothing() -> None:
    [span] = waterfall([row(1, 0, 10_000, reply_us=100, handler_us=None)])
    assert (span.network_us, span.reply_us) == (None, None)


def test_a_nested_call_hangs_on_the_call_that_its_caller_was_handling() -> None:
    rows = [
        row(1, 0, 100_000, server_process="api:7"),
        row(2, 20_000, 30_000, client="api:7", server_process="db:1"),
        row(3, 25_000, 10_000, client="db:1", server_process="disk:1"),
        row(4, 60_000, 30_000, client="api:7", server_process="db:2"),
    ]
    random.Random(1).shuffle(rows)
    assert shape(waterfall(rows)) == [
        ("m1", 0, "root", 0, False),
        ("m2", 1, "nested", 20_000, False),
        ("m3", 2, "nested", 25_000, False),
        ("m4", 1, "nested", 60_000, False),
    ]


def test_a_process_may_have_several_identities() -> None:
    rows = [
        row(1, 0, 10_000, server_process="host:serve:4711:00ff12"),
        row(2, 500, 1000, client="host:serve:4711:abcdef"),
        row(3, 600, 1000, client="host:serve:4712:abcdef"),
        row(4, 700, 1000, client="host:serve:4711:worker"),
    ]
    assert [(name, depth) for name, depth, *_ in shape(waterfall(rows))] == [
        ("m1", 0),
        ("m2", 1),
        ("m3", 0),
        ("m4", 0),
    ]


def test_of_two_calls_of_the_same_process_the_innermost_that_contains_it_is_the_parent() -> None:
    rows = [
        row(1, 0, 100_000, server_process="api:7"),
        row(2, 10_000, 20_000, server_process="api:7"),
        row(3, 15_000, 1000, client="api:7"),
        row(4, 50_000, 1000, client="api:7"),
        row(5, 150_000, 1000, client="api:7"),
    ]
    assert [(name, depth) for name, depth, *_ in shape(waterfall(rows))] == [
        ("m1", 0),
        ("m4", 1),
        ("m2", 0),
        ("m3", 1),
        ("m5", 0),
    ]


def test_two_processes_that_call_each_other_make_no_circle() -> None:
    rows = [
        row(1, 0, 10_000, client="x", server_process="y"),
        row(2, 500, 5000, client="y", server_process="x"),
        row(3, 900, 1000, client="x", server_process="y"),
    ]
    assert [depth for _, depth, *_ in shape(waterfall(rows))] == [0, 1, 2]
    # On different routers there is no order of time, only durations.
    rows = [row(n, 0, 1000, client=a, server_process=b, router=f"r{n}") for n, a, b in ((1, "x", "y"), (2, "y", "x"))]
    assert sorted(depth for _, depth, *_ in shape(waterfall(rows))) == [0, 1]


def test_a_call_whose_end_nobody_knows_may_contain_anything_later() -> None:
    rows = [row(1, 0, None, server_process="api:7"), row(2, 10**9, 1000, client="api:7")]
    first, second = waterfall(rows)
    assert (first.network_us, first.total_us, second.depth) == (None, None, 1)


def hop(seq: int, hops: int, total: int, router: str, clock: int, **more: Any) -> dict[str, Any]:
    return row(seq, clock, total, hops=hops, router=router, origin_seq=1, method="boot", **more)


def test_a_hop_is_placed_by_durations_however_wrong_its_routers_clock_is() -> None:
    outer = hop(1, 0, 100_000, "r1", 0, queue_us=10_000, service_us=90_000, handler_us=None)
    inner = hop(9, 1, 50_000, "r2", -(10**12))
    assert shape(waterfall([inner, outer])) == [
        ("boot", 0, "root", 0, False),
        # Of the 90 ms at the server 40 are the network's: half of them before it.
        ("boot", 1, "hop", 30_000, True),
    ]
    first, second = waterfall([inner, outer])
    assert (first.network_us, second.network_us) == (40_000, 22_500)


def test_of_a_call_that_went_on_the_way_back_is_not_told_apart() -> None:
    outer = hop(1, 0, 100_000, "r1", 0, queue_us=10_000, service_us=90_000, handler_us=40_000, reply_us=5000)
    inner = hop(9, 1, 50_000, "r2", 10**12, reply_us=2500)
    first, second = waterfall([inner, outer])
    assert (first.network_us, first.reply_us) == (40_000, None)
    assert (second.network_us, second.reply_us) == (20_000, 2500)
    assert second.offset_us == 30_000


def test_what_hangs_on_a_placed_record_keeps_its_distance_to_it() -> None:
    outer = hop(1, 0, 100_000, "r1", 0, queue_us=10_000, service_us=90_000)
    inner = hop(9, 1, 50_000, "r2", 10**12, server_process="api:7")
    nested = row(10, 10**12 + 5000, 20_000, router="r2", client="api:7")
    assert shape(waterfall([outer, inner, nested]))[1:] == [
        ("boot", 1, "hop", 30_000, True),
        ("m10", 2, "nested", 35_000, True),
    ]


def test_a_nested_call_at_another_router_hangs_on_what_it_fits_into() -> None:
    rows = [
        row(1, 0, 10_000, server_process="api:7"),
        row(2, 20_000, 100_000, server_process="api:7"),
        row(1, 10**12, 50_000, router="r2", client="api:7", origin_router=2, method="far"),
    ]
    spans = waterfall(rows)
    assert [(span.row["method"], span.depth, span.link) for span in spans] == [
        ("m1", 0, "root"),
        ("m2", 0, "root"),
        ("far", 1, "nested"),
    ]
    assert 20_000 + 10_000 <= spans[2].offset_us <= 20_000 + 100_000 - 50_000


def test_a_nested_call_at_another_router_is_within_the_method() -> None:
    outer = row(1, 0, 100_000, server_process="api:7", queue_us=10_000, service_us=90_000, handler_us=40_000)
    nested = row(1, 10**12, 30_000, router="r2", client="api:7", origin_router=2, method="far")

    def offset(**changes: Any) -> int:
        return waterfall([outer, nested | changes])[1].offset_us

    assert offset() == 10_000 + (90_000 - 30_000) // 2
    outer["reply_us"] = 45_000
    # 10 ms in the queue, 5 ms there, and then 40 ms of which it has 30.
    assert offset() == 10_000 + 5000 + (40_000 - 30_000) // 2
    assert offset(total_us=40_000) == 10_000 + 5000
    # It outlived the method: nobody knows when that began it.
    assert offset(total_us=60_000) == 10_000 + (90_000 - 60_000) // 2


def test_copies_of_a_fanout_stand_beside_each_other() -> None:
    copies = [row(n, 0, 1000 * n, kind="fanout", origin_seq=1, server=f"node-{n}") for n in (1, 2, 3)]
    assert [(span.depth, span.link) for span in waterfall(copies)] == [(0, "root")] * 3


def test_a_record_that_comes_twice_counts_once() -> None:
    assert len(waterfall([row(1, 0, 1000), row(1, 0, 1000)])) == 1
    assert waterfall([]) == []


def test_a_record_without_a_server_has_no_network() -> None:
    [span] = waterfall([row(1, 0, 5000, service_us=None, handler_us=None, server_process=None, queue_us=5000)])
    assert (span.queue_us, span.network_us) == (5000, None)


def test_the_text_shows_stages_in_proportion() -> None:
    rows = [
        row(1, 0, 100_000, server_process="api:7", queue_us=20_000, service_us=80_000, handler_us=60_000),
        row(2, 50_000, 20_000, client="api:7", queue_us=0, service_us=20_000, handler_us=20_000),
        row(3, 90_000, None, client="api:7"),
    ]
    bars = render(waterfall(rows), width=20)
    assert [(bar.name, bar.bar) for bar in bars] == [
        ("compute.m1", "....--############--"),
        ("  compute.m2", "          ####"),
        ("  compute.m3", "                  ?"),
    ]
    rows[0]["reply_us"] = 5000
    assert render(waterfall(rows), width=20)[0].bar == "....---############<"


def test_every_bar_is_seen_and_stays_within_the_width() -> None:
    chance = random.Random(3)
    totals, replies = [None, 0, 1, 10**3, 10**6], [None, 0, 1, 200, 10**5, 10**7]
    rows = [
        row(n, chance.randrange(10**6), total, reply_us=None if total is None else chance.choice(replies))
        for n, total in enumerate(chance.choices(totals, k=199), 1)
    ]
    bars = render(waterfall(rows), width=30)
    assert len(bars) == len(rows)
    assert all(bar.bar.strip() and len(bar.bar) <= 30 for bar in bars)
    assert render([]) == []


def test_a_chain_of_a_thousand_calls_is_laid_out() -> None:
    rows = [row(n, n, 10**6 - n, client="a", server_process="a") for n in range(1, 1001)]
    spans = waterfall(rows)
    assert [span.depth for span in spans] == list(range(1000))
    assert max(len(bar.name) for bar in render(spans)) < 60
