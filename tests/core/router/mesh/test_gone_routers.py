"""Routers that are gone are remembered within bounds, each as it was when it had told all it knew."""

from __future__ import annotations

from math import inf
from typing import Any

import pytest

from rpcmq.core.router.mesh.gone_routers import GoneRouters
from rpcmq.core.router.mesh.interest_table import Holding, InterestTable
from rpcmq.core.router.model import Link
from rpcmq.core.router.settings import Settings
from rpcmq.wire.bodies import MESH_TYPE


class Remembered:
    """The routers, and the names of the holdings that were forgotten."""

    def __init__(self, **settings: Any) -> None:
        self._table, self._link = InterestTable(), Link([], "r", MESH_TYPE, 1, 1)
        self.closed: list[str] = []
        self.routers = GoneRouters(Settings(**settings), lambda holding: self.closed.append(holding.router))

    def goes(self, now: float, name: str, size_bytes: int = 100, is_complete: bool = True, life: str = "") -> None:
        holding: Holding = self._table.open(self._link, name + life)
        holding.size_bytes = size_bytes
        self.routers.add(now, name, holding, is_complete)

    def since(self, time: float) -> list[str]:
        return [holding.router for holding in self.routers.since(time)]


def test_those_that_went_lately_are_known() -> None:
    they = Remembered()
    they.goes(10.0, "a")
    they.goes(11.0, "b")
    assert they.since(9.0) == ["a", "b"]
    assert they.since(10.0) == ["b"]


@pytest.mark.parametrize(("recovery", "until"), [(10.0, 70.0), (100.0, 310.0)])
def test_they_are_forgotten_in_time(recovery: float, until: float) -> None:
    they = Remembered(mesh_recovery_seconds=recovery)
    they.goes(10.0, "a")
    assert they.routers.expire(until - 1.0) == until
    assert they.routers.expire(until) == inf
    assert (len(they.routers), they.closed) == (0, ["a"])


def test_of_several_lives_the_last_that_had_told_everything_counts() -> None:
    they = Remembered()
    they.goes(10.0, "a", life="1")
    they.goes(20.0, "a", life="2", is_complete=False)
    assert (they.since(0.0), they.closed) == (["a1"], ["a2"])
    they.goes(30.0, "a", life="3")
    assert (they.since(0.0), they.closed) == (["a3"], ["a2", "a1"])


def test_one_that_had_not_told_everything_is_better_than_none() -> None:
    they = Remembered()
    they.goes(10.0, "a", is_complete=False)
    assert they.since(0.0) == ["a"]


def test_their_number_and_size_are_bounded_and_the_oldest_go_first() -> None:
    they = Remembered(mesh_max_address_bytes=250)
    for name in "abc":
        they.goes(10.0, name)
    assert (they.closed, they.routers.size_bytes) == (["a"], 200)
    they.goes(11.0, "d", size_bytes=1_000)
    assert (they.since(0.0), len(they.routers)) == (["d"], 1)
    many = Remembered()
    for number in range(150):
        many.goes(10.0, f"{number}")
    assert (len(many.routers), len(many.closed), many.closed[0]) == (100, 50, "0")
