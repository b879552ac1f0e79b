"""An item is at one worker at a time under each fence, also where its router is killed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.queue_router_deaths import kill_routers

pytestmark = [pytest.mark.integration, pytest.mark.fault]


@pytest.mark.long
@pytest.mark.timeout(180)
@pytest.mark.parametrize("routers", [1, 2])
def test_no_fence_is_held_by_two_workers_though_routers_are_killed(tmp_path: Path, routers: int) -> None:
    history, counts = kill_routers(tmp_path, kills=5, routers=routers, seed=routers)
    assert counts["routers killed"] == 5 and len(history.accepted) > 100
