"""Requests that wait for one another, and keys whose requests do not."""

from __future__ import annotations

import pytest

from rpcmq.proxy.front import flights
from rpcmq.proxy.front.flights import Flights


def test_keys_that_go_alone_do_so_for_their_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(flights, "monotonic", lambda: now)
    all_flights = Flights()
    all_flights.go_alone("a", 10.0)
    assert not all_flights.may_share("a") and all_flights.may_share("b")
    now = 110.0
    assert all_flights.may_share("a")
    assert all_flights._alone == {}


def test_keys_without_end_take_no_room_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flights, "_MAX_ALONE", 1000)
    all_flights = Flights()
    for number in range(3000):
        key = f"http://a.example/{number}/" + "x" * 8000
        all_flights.go_alone(key, 60.0)
        assert not all_flights.may_share(key)
        # Not the keys themselves, which clients make as long as they like.
        assert len(all_flights._alone) <= 1000
    assert all(isinstance(each, int) for each in all_flights._alone)
