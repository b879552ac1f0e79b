"""Events over a ring with chords while its routers are killed; see ``topics_in_a_ring.py``."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.faults.topics_in_a_ring import Run, matches

pytestmark = [pytest.mark.integration, pytest.mark.fault]


def check(figures: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    with capsys.disabled():
        print("\nresult", json.dumps({"scenario": "topics in a ring"} | figures))
    assert figures["doubled"] == figures["out of order"] == figures["lost while nothing failed"] == 0
    # docs/mesh.md, "A router dies": nothing else is lost that the subscribers are not told of.
    assert figures["lost between others and not counted"] == 0


@pytest.mark.parametrize(
    ("pattern", "topic", "is_match"),
    [
        ("p.q", "p.q", True),
        ("p.*", "p.q", True),
        ("p.*", "p", False),
        ("p.#", "p", True),
        ("#.q", "p.p.q", True),
        ("#.q", "p.q.p", False),
    ],
)
def test_the_reference(pattern: str, topic: str, is_match: bool) -> None:
    assert matches(pattern, topic) is is_match


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_router_is_killed(capsys: pytest.CaptureFixture[str]) -> None:
    check(Run(1, count=4000, kills=1).run(), capsys)


@pytest.mark.long
@pytest.mark.timeout(7200)
def test_200000_events(capsys: pytest.CaptureFixture[str]) -> None:
    check(Run(2, count=200_000, kills=10).run(), capsys)
