"""The time that items which expire have spent where nobody counts, such as in a socket of a stopped process."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rpcmq.client.queue.protocol import WorkOrder
from rpcmq.client.queue.transits import _SERVERS, Transits

#: Seconds of an item's call, of which each hop takes off what it counts.
CALL = 86_400.0


class Way:
    """The way from a queue server, whose clock shows so many seconds more, to a worker."""

    def __init__(self, ahead: float = 0.0) -> None:
        self.ahead = ahead
        self.transits = Transits()

    def has_expired(
        self, at: float, counted: float = 0.0, uncounted: float = 0.0, expires: float = 2.0, id: str = "17",
        owner: str = "here", epoch: int = 1, is_timed: bool = True,
    ) -> bool:  # fmt: skip
        """Return what the worker makes of an item that is sent at ``at``, and wanted for ``expires`` from then on."""
        sent = at + self.ahead if is_timed else 0.0
        order = WorkOrder(
            "billing", owner, id, 1, (epoch, 1), 0.0, 30.0, "charge", 1, b"", False, False, False, CALL - expires, sent
        )
        now = at + counted + uncounted
        return self.transits.has_expired(order, now + CALL - counted, now)


@pytest.mark.parametrize("ahead", [0.0, 7e6, -40.0])
def test_time_that_nobody_has_counted_is_noticed_whatever_the_clocks_show(ahead: float) -> None:
    way = Way(ahead)
    assert not way.has_expired(100.0, uncounted=0.001)
    assert not way.has_expired(101.0, uncounted=1.9)
    assert way.has_expired(102.0, uncounted=2.1)
    assert way.has_expired(103.0, counted=1.5, uncounted=0.6, id="18"), "both together count"


def test_what_routers_and_workers_have_counted_needs_no_clock() -> None:
    way = Way()
    assert way.has_expired(100.0, counted=2.1, is_timed=False)
    assert not way.has_expired(100.0, counted=1.9, uncounted=9.0, is_timed=False), "of an earlier queue server"


def test_the_least_delay_of_all_is_what_others_are_measured_by() -> None:
    way = Way()
    assert not way.has_expired(100.0, uncounted=5.0), "the first is measured by nothing"
    assert not way.has_expired(101.0, uncounted=0.001)
    assert way.has_expired(102.0, uncounted=5.0)


def test_each_queue_server_and_each_life_of_it_has_a_clock_of_its_own() -> None:
    way = Way()
    assert not way.has_expired(100.0)
    way.ahead = -50.0
    assert not way.has_expired(101.0, owner="there")
    assert not way.has_expired(101.0, epoch=2)
    assert way.has_expired(102.0, uncounted=2.1, epoch=2)


def test_the_drift_of_clocks_is_no_delay() -> None:
    way = Way()
    for hour in range(1000):
        way.ahead = -0.3 * hour  # 83 millionths
        assert not way.has_expired(3600.0 * hour, counted=1.9)
    assert way.has_expired(3600.0 * 999 + 1, uncounted=2.1)


def test_an_item_that_is_given_again_is_wanted_whatever_the_clocks_show() -> None:
    way = Way()
    assert not way.has_expired(100.0)
    way.ahead = -600.0  # its machine was suspended
    assert way.has_expired(101.0, id="a"), "nobody can tell that from a delay"
    assert not way.has_expired(102.0, id="a"), "but the queue server can, and gives it again"
    assert not way.has_expired(103.0, id="b"), "and so all is well"
    assert way.has_expired(104.0, uncounted=2.1, id="c")


def test_what_is_remembered_has_a_bound() -> None:
    way = Way()
    for number in range(3 * _SERVERS):
        way.has_expired(100.0, owner=f"router {number}")
        way.has_expired(101.0, owner=f"router {number}", uncounted=9.0, id=str(number))
    assert len(way.transits._least) <= _SERVERS
    assert len(way.transits._handed_back) <= _SERVERS


ITEMS = st.lists(
    st.tuples(st.floats(0, 3), st.sampled_from([0.0, 0.0, 0.0005, 0.3, 4.0]), st.floats(0, 3), st.floats(0.1, 5)),
    min_size=1, max_size=30,
)  # fmt: skip


@given(ITEMS, st.floats(-1e6, 1e6))
def test_no_item_is_handed_back_that_is_wanted_where_clocks_go_evenly(
    items: list[tuple[float, float, float, float]], ahead: float
) -> None:
    way, at, least = Way(ahead), 2e6, None
    for number, (pause, uncounted, counted, expires) in enumerate(items):
        at += pause
        has_expired = way.has_expired(at, counted, uncounted, expires, id=str(number))
        least = uncounted if least is None else min(least, uncounted)
        left = expires - counted - uncounted
        assert not has_expired or left <= 1e-6
        if left < -least - 0.1:
            assert has_expired, "all but the least delay, and some drift, is known"
