"""Messages of other queue servers that are none: they change nothing, and nothing grows."""

from __future__ import annotations

from typing import Any

import pytest

from rpcmq.core.queue.periodic import PeriodicKey
from rpcmq.queue_server.declarations import Declarations
from rpcmq.queue_server.periodic import PeriodicItems
from tests.core.queue.conftest import world as world
from tests.core.queue.virtual_store import World

NOBODY: Any = None
_DAY = 24 * 3_600_000


@pytest.fixture
def declarations(world: World, monkeypatch: pytest.MonkeyPatch) -> Declarations:
    """The declarations of a queue server that stands at one moment."""
    monkeypatch.setattr("rpcmq.queue_server.declarations.monotonic", lambda: world.now)
    monkeypatch.setattr("rpcmq.queue_server.declarations.tell", lambda *args: None)
    return Declarations(world.queues, NOBODY, "here", {})


@pytest.fixture
def periodic(world: World) -> PeriodicItems:
    """The periodic items of a queue server."""
    return PeriodicItems(world.queues, NOBODY, "here", {}, lambda: None)


def declared(world: World, declarations: Declarations, attempts: int) -> int:
    declarations.declare("billing", {"attempts": attempts})
    world.run()
    return world.queues.queue("billing").policy.attempts


def test_settings_that_are_refused_make_no_queue(world: World, declarations: Declarations) -> None:
    before, now = world.queues.names(), world.wall(world.now)
    declarations.learn([(f"q{number}", now, {"attempts": 0}) for number in range(100)])
    declarations.learn([("other", now, {"nothing": 1}), ("another", now, NOBODY)])
    assert world.queues.names() == before
    declarations.learn([("new", now, {"attempts": 7})])
    assert world.queues.queue("new").policy.attempts == 7


@pytest.mark.parametrize("at", [1 << 80, (1 << 64) - 1, 1 << 62, float("inf"), float("nan"), "1", None])
def test_a_time_that_is_none_keeps_nobody_from_declaring(world: World, declarations: Declarations, at: Any) -> None:
    declarations.learn([("billing", at, {"attempts": 9})])
    assert world.queues.queue("billing").policy.attempts == 5
    assert declared(world, declarations, 3) == 3
    declarations.learn([("billing", world.wall(world.now) + 1000, {"attempts": 4})])
    assert world.queues.queue("billing").policy.attempts == 4 and declared(world, declarations, 6) == 6


def test_a_time_of_a_clock_that_was_wrong_counts_as_none(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rpcmq.queue_server.declarations.monotonic", lambda: world.now)
    wrong = world.wall(world.now) + _DAY + 1
    declarations = Declarations(world.queues, NOBODY, "here", {"declared billing": wrong.to_bytes(8)})
    declarations.learn([("billing", world.wall(world.now), {"attempts": 4})])
    assert world.queues.queue("billing").policy.attempts == 4


@pytest.mark.parametrize(
    ("at", "owner"),
    [
        (1 << 53, "a"), (1 << 20_000, "a"), (0, "a"), (float("inf"), "a"), ("5", "a"), (5, None), (5, "x" * 256),
        (5, "\ud800"),
    ],
    ids=["late", "huge", "none", "inf", "text", "nobody", "long", "no text"],
)  # fmt: skip
def test_who_puts_a_periodic_item_is_not_learned_of_what_can_be_no_owner(
    periodic: PeriodicItems, at: Any, owner: Any
) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 any text will do
        periodic.learn([("billing", "nightly", at, owner)])
    assert not periodic.is_known(PeriodicKey("billing", "nightly"))
    periodic.learn([("billing", "nightly", 5, "there")])
    assert periodic.is_known(PeriodicKey("billing", "nightly"))


def test_too_much_at_once_is_refused_as_a_whole(
    world: World, declarations: Declarations, periodic: PeriodicItems
) -> None:
    before, now = world.queues.names(), world.wall(world.now)
    with pytest.raises(ValueError, match="of 1000 things at once at the most, not of 1001"):
        declarations.learn([(f"q{number}", now, {}) for number in range(1001)])
    with pytest.raises(ValueError, match="of 1000 things at once at the most"):
        periodic.learn([("billing", f"n{number}", 5, "there") for number in range(1001)])
    assert world.queues.names() == before and not periodic.is_known(PeriodicKey("billing", "n0"))
