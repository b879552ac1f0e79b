"""The way back, told from the way out by two clocks that know nothing of each other."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any, NamedTuple

import gevent
import pytest
from gevent.pool import Pool
from hypothesis import given
from hypothesis import strategies as st

from rpcmq.client import Client, Service
from rpcmq.errors import Outcome
from rpcmq.latency.columns import table_of, to_rows
from rpcmq.latency.harvest import harvest
from rpcmq.latency.schema import rows_of
from rpcmq.latency.ways import LATEST, WINDOW_US
from rpcmq.log_format import NOT_REPORTED, RECORD, BlockKind, NameKind, Spool, framed, name_entry
from rpcmq.wire import Kind, pack
from tests.latency.logs import rows
from tests.latency.spools import head
from tests.server.daemons import SECONDS, router, run

A, B = 200, 201
HOUR = 3_600_000_000
REQUEST = pack(Kind.REQUEST, format=1)
NAMES = [
    name_entry(1, NameKind.TARGET, "", "compute", "", "", "reboot"),
    name_entry(A, NameKind.SERVER, "a", "a:1"),
    name_entry(B, NameKind.SERVER, "b", "b:1"),
]


class Exchange(NamedTuple):
    """A call of which everything is known, in microseconds."""

    out: int
    back: int
    handler: int = 5_000
    #: The time at which the router sent it, on the router's clock.
    at: int = 2_000_000_000
    #: By how much the server's clock is ahead of the router's.
    ahead: int = 0
    server: int = A

    def packed(self, sent_us: int | None = None, handler_us: int | None = None, server: int | None = None) -> bytes:
        """The record; other arguments are what it says instead."""
        ended = self.at + self.out + self.handler + self.back
        truth = self.at + self.out + self.handler + self.ahead
        return RECORD.pack(
            REQUEST, 1, self.at / 1e6, self.at / 1e6, ended / 1e6, 1, 0, self.server if server is None else server,
            40, 40, self.handler if handler_us is None else handler_us, Outcome.OK, 0, 0, b"",
            truth if sent_us is None else sent_us, 0,
        )  # fmt: skip


def ways_back(*records: bytes) -> list[Any]:
    """The rows that the shipper makes of ``records``, as a table and row by row."""
    data = head() + b"".join(framed(BlockKind.NAMES, len(NAMES), b"".join(NAMES)))
    data += b"".join(framed(BlockKind.RECORDS, len(records), b"".join(records)))
    found = harvest(data, cut_off=True)
    columns = to_rows(table_of(found.head, found.names, found.records))
    assert columns == rows_of(found.head, list(Spool(data)))
    assert all(0 <= row["reply_us"] <= row["service_us"] - row["handler_us"] for row in columns if row["reply_us"])
    return [row["reply_us"] for row in columns]


def found(*exchanges: Exchange) -> list[Any]:
    return ways_back(*(each.packed() for each in exchanges))


def about(*wanted: int) -> Any:
    """Each time of a record is a float of seconds: it is good to a microsecond."""
    return pytest.approx(wanted, abs=2)


@pytest.mark.parametrize("ahead", [0, 3 * HOUR, -HOUR // 2, 10**15])
def test_the_way_that_was_slow_is_found_however_the_clocks_are_set(ahead: int) -> None:
    shortest, back, out, both = (
        Exchange(*ways, ahead=ahead) for ways in [(100, 100), (100, 5_000), (7_000, 100), (300, 900)]
    )
    assert found(back, out, shortest, both) == about(5_000, 100, 100, 900)


def test_each_server_has_a_clock_of_its_own() -> None:
    one, other = {"ahead": 3 * HOUR}, {"ahead": -HOUR // 2, "server": B}
    exchanges = [
        Exchange(50, 50, **one), Exchange(400, 400, **other), Exchange(50, 2_000, **one), Exchange(400, 9_000, **other),
        Exchange(3_000, 400, **other), Exchange(3_000, 50, **one),
    ]  # fmt: skip
    assert found(*exchanges) == about(50, 400, 2_000, 9_000, 400, 50)


def test_one_alone_is_half_of_its_delay() -> None:
    assert found(Exchange(100, 5_000)) == about(2_550)


@pytest.mark.parametrize("best", [(0, 400), (400, 0), (150, 250), (200, 200)])
def test_the_error_is_at_most_half_of_the_least_delay(best: tuple[int, int]) -> None:
    exchanges = [Exchange(*best, ahead=HOUR), *(Exchange(600, back, ahead=HOUR) for back in (600, 3_000, 80_000))]
    for exchange, back in zip(exchanges, found(*exchanges), strict=True):
        assert abs(back - exchange.back) <= 200 + 2


def test_it_is_never_less_than_nothing_nor_more_than_both_ways() -> None:
    assert found(Exchange(0, 200), Exchange(300, 0)) == about(100, 0)
    assert found(Exchange(200, 0), Exchange(0, 300)) == about(100, 300)


def test_a_clock_that_was_set_meanwhile_spoils_ten_seconds_only() -> None:
    """Windows are those of the wall clock, which stood at 1000 s more than the router's own."""
    begin = 2_000_000_000
    exchanges = [
        Exchange(*ways, at=begin + number * WINDOW_US, ahead=number * HOUR)
        for number in range(5)
        for ways in [(100, 100), (100, 4_000)]
    ]
    assert found(*exchanges) == about(*[100, 4_000] * 5)


def test_what_is_just_before_the_end_of_a_window_is_not_of_the_next() -> None:
    begin = 2_000_000_000
    early = Exchange(100, 100, at=begin - 5_201, ahead=HOUR)
    late = Exchange(100, 700, at=begin - 5_700, ahead=2 * HOUR)
    assert found(early, late) == about(100, 400)


def test_clocks_that_drift_do_not_make_a_long_handler_the_best() -> None:
    """Its clock is 50 ppm fast: after 600 s it says that 30 ms less were needed for the ways."""
    minutes = 600_000_000
    long = Exchange(20_000, 20_000, handler=minutes, ahead=30_000).packed(handler_us=minutes + 30_000)
    at = 2_000_000_000 + minutes + 30_000
    shorts = [Exchange(15_000, back, at=at, ahead=30_000) for back in (15_000, 40_000)]
    _, best, slow = ways_back(long, *(each.packed() for each in shorts))
    assert [best, slow] == about(15_000, 40_000)


@pytest.mark.parametrize(
    "record",
    [
        Exchange(100, 100).packed(sent_us=0),
        Exchange(100, 100).packed(handler_us=NOT_REPORTED),
        Exchange(100, 100).packed(handler_us=5_300),
        Exchange(100, 100).packed(server=0),
        Exchange(100, 100).packed(sent_us=LATEST),
        Exchange(100, 100).packed(sent_us=2**64 - 1),
    ],
    ids=["no clock", "no handler", "a handler that took longer", "no server", "36,000 years", "all bits"],
)
def test_what_is_not_known_is_null_and_tells_nothing_of_others(record: bytes) -> None:
    assert ways_back(record) == [None]
    first, *others = ways_back(record, Exchange(600, 600).packed(), Exchange(600, 3_000).packed())
    assert first is None and others == about(600, 3_000)


def test_of_equals_the_first_is_the_best() -> None:
    assert found(Exchange(100, 300), Exchange(300, 100)) == about(200, 0)
    assert found(Exchange(300, 100), Exchange(100, 300)) == about(200, 400)


ways = st.integers(0, 10**8)
exchanges = st.builds(
    Exchange,
    out=ways,
    back=ways,
    handler=ways,
    at=st.integers(10**9, 10**9 + 10**8),
    ahead=st.integers(-(10**9) + 1, 10**15),
    server=st.sampled_from([A, B]),
)
clocks = st.none() | st.integers(0, 2**64 - 1) | st.integers(10**9 - 10**8, 10**9 + 5 * 10**8)


@given(st.lists(st.tuples(exchanges, clocks, st.none() | st.integers(0, NOT_REPORTED)), min_size=1, max_size=20))
def test_whatever_a_service_says(said: list[tuple[Exchange, int | None, int | None]]) -> None:
    """``ways_back`` looks at the bounds."""
    for (exchange, sent_us, handler_us), back in zip(said, ways_back(*(e.packed(*t) for e, *t in said)), strict=True):
        service_us = exchange.out + exchange.handler + exchange.back
        handler = exchange.handler if handler_us is None else handler_us
        could_be = handler < service_us - 1 and (sent_us is None or 0 < sent_us < LATEST)
        assert (back is not None) or not could_be


# --- a real router and a real service -----------------------------------------------------------

CALLS, CASTS = 200, 50
PAUSE = 0.02


class Endpoint:
    """Methods that take a while, or no time."""

    def sleep(self, ctx: Any) -> None:
        gevent.sleep(PAUSE)

    def echo(self, ctx: Any, number: int) -> int:
        if number % 10 == 9:
            raise ValueError(number)
        return number


def converse(client: Client, number: int) -> None:
    try:
        client.call(None, "compute", {"method": "echo", "args": {"number": number}}, timeout=SECONDS)
    except ValueError:
        assert number % 10 == 9
    client.call(None, "compute", {"method": "sleep", "args": {}}, timeout=SECONDS)
    if number < CASTS:
        client.cast(None, "compute", {"method": "echo", "args": {"number": 1}})


@pytest.mark.integration
def test_of_a_real_service_every_answer_has_its_way_back(tmp_path: Path) -> None:
    with router("--dispatch-log", str(tmp_path)) as daemon:
        with (
            Service("compute", Endpoint(), host="node-1", router=daemon.url),
            Client(daemon.url) as client,
        ):
            pool = Pool(8)
            greenlets = [pool.spawn(converse, client, number) for number in range(CALLS)]
            assert len(gevent.joinall(greenlets, 4 * SECONDS, raise_error=True)) == CALLS
        daemon.signal(signal.SIGTERM)
        assert daemon.exit_code() == 0
    shipped = run("ship", "--log", str(tmp_path), "--once")
    assert shipped.returncode == 0, shipped.stderr

    answered = [row for row in rows(tmp_path) if row["outcome"] in ("ok", "remote_error")]
    assert sum(row["kind"] == "call" for row in answered) == 2 * CALLS
    known = [row for row in answered if row["reply_us"] is not None]
    assert [row for row in known if not 0 <= row["reply_us"] <= row["service_us"] - row["handler_us"]] == []
    # Each end reads its clock once for all messages that come together.
    assert all(row["handler_us"] > row["service_us"] for row in answered if row["reply_us"] is None)
    assert len(known) > 0.9 * len(answered)
    slept = sorted(row["reply_us"] for row in known if row["method"] == "sleep")
    assert slept[len(slept) // 2] < PAUSE * 1e6 / 2 <= min(r["handler_us"] for r in known if r["method"] == "sleep")
