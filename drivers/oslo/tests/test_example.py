"""The example, as its own text says to run it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from processes import Process

DEMO = Path(__file__).parents[1] / "examples" / "demo.py"


@pytest.mark.timeout(400)
def test_a_small_cloud_loses_nothing_when_a_compute_and_a_router_are_killed() -> None:
    with Process([sys.executable, "-W", "ignore", str(DEMO)]) as demo:
        code = demo.wait(380)
        assert code == 0, "\n".join(demo.lines)
    text = "\n".join(demo.lines)
    for words in ("8 servers are active", "12 servers are active", "reached both computes", "were kept for it"):
        assert words in text, text
