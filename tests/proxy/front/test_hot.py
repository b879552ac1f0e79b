"""Responses that are kept ready for a second are never staler than they may be."""

from __future__ import annotations

from time import time

import pytest

from rpcmq.proxy.front import fetching, handler, hot
from tests.proxy.world import World, ask, saying

pytestmark = pytest.mark.integration


def test_a_response_that_becomes_stale_within_the_second_is_not_kept_for_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = float(int(time()))
    clock = [now]
    for module in (fetching, handler, hot):
        monkeypatch.setattr(module, "time", lambda: clock[0])
    front_end = world.start(saying(b"x", [("Cache-Control", "max-age=1")]))
    hits = []
    for at in (0.5, 0.6, 0.7, 1.2, 1.3, 1.45, 1.6):
        clock[0] = now + at
        hits.append(ask(front_end, "/a").is_hit)
    assert hits == [False, True, True, True, True, True, False]
