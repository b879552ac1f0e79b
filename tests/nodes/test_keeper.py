"""The rows that nodes keep: bounded, and the same after they were written and read."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rpcmq.nodes import Context, Node
from rpcmq.nodes.keeper import Keeper
from rpcmq.testing.network import Network
from rpcmq.testing.nodes import engine_with, node_of, plan_of, plug_in_of


class Diary(Node):
    """Keeps what a test says."""

    def __init__(self, context: Context, settings: Any) -> None:
        super().__init__(context, settings)
        self.rows = context.kept()
        self.problems: list[str] = []

    def was_kept(self, now: float, problem: str) -> None:
        self.problems.append(problem)


TEXTS = st.text(max_size=20)


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.none() | st.dictionaries(TEXTS, TEXTS | st.integers(), max_size=3)))
)
def test_rows_are_those_that_were_said_last(said: list[tuple[str, dict[str, Any] | None]]) -> None:
    keeper, expected = Keeper(1 << 20), dict[str, Any]()
    for name, row in said:
        keeper.keep(name, row)
        expected.pop(name, None)
        expected |= {} if row is None else {name: row}
    assert keeper.rows == expected and keeper.size_bytes == sum(map(len, keeper.encoded.values()))
    other = Keeper(1 << 20)
    other.restore(list(keeper.encoded.values()))
    assert other.rows == expected and other.size_bytes == keeper.size_bytes


def test_all_rows_together_are_bounded_in_bytes() -> None:
    keeper = Keeper(1000)
    keeper.keep("a", {"text": "x" * 600})
    with pytest.raises(ValueError, match="exceed max_bytes = 1000"):
        keeper.keep("b", {"text": "x" * 600})
    keeper.keep("a", {"text": "y" * 900})
    assert list(keeper.rows) == ["a"] and keeper.rows["a"]["text"][0] == "y"
    keeper.keep("a", None)
    keeper.keep("b", {"text": "x" * 600})
    assert keeper.size_bytes < 1000


@pytest.mark.parametrize(
    ("row", "error"),
    [({"text": "x" * 70_000}, ValueError), ({"x": float("nan")}, ValueError), ({"x": b""}, TypeError), ([], TypeError)],
)
def test_what_is_no_row_is_refused_and_changes_nothing(row: Any, error: type[Exception]) -> None:
    keeper = Keeper(1 << 20)
    keeper.keep("a", {"x": 1})
    with pytest.raises(error):
        keeper.keep("a", row)
    assert keeper.rows == {"a": {"x": 1}} and keeper.changes == 1


def test_a_change_wakes_whoever_writes_and_none_does_not() -> None:
    woken: list[int] = []
    keeper = Keeper(1 << 20, lambda: woken.append(1))
    keeper.keep("a", {"x": 1})
    keeper.keep("a", {"x": 1})
    keeper.keep("b", None)
    assert len(woken) == keeper.changes == 1


@pytest.mark.parametrize("line", [b"", b"[]", b'["a"]', b'["a",[]]', b"[1,{}]", b"\xff"])
def test_lines_that_are_no_rows_are_refused(line: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - of the JSON library, or ours
        Keeper(1 << 20).restore([line])


def test_a_node_has_its_rows_in_its_next_life_and_in_the_routers() -> None:
    keeper = Keeper(1 << 20)
    net = Network(engine=engine_with(plan_of(Diary), keepers={"diary": keeper}))
    node = node_of(net.router, "diary")
    assert node.context.keeps and node.rows == {}
    node.context.keep("monday", {"weather": "fine"})
    keeper.on_kept(net.now, "no space")
    assert node.problems == ["no space"]
    plug_in_of(net.router, "diary").restart(net.now)
    assert node_of(net.router, "diary").rows == {"monday": {"weather": "fine"}}
    net.host.restart()
    assert node_of(net.router, "diary").rows == {"monday": {"weather": "fine"}}


def test_a_node_without_a_file_keeps_nothing() -> None:
    net = Network(engine=engine_with(Diary))
    node = node_of(net.router, "diary")
    node.context.keep("monday", {"weather": "fine"})
    assert not node.context.keeps and node.context.kept() == {}
