"""The life cycles of a router are as their transcripts tell.

``python -m tests.core.transcripts`` writes them anew; what it changes is reviewed as a diff.
"""

from __future__ import annotations

from difflib import unified_diff
from pathlib import Path

import pytest

from tests.core.transcripts.conversation import TRANSCRIPTS, rewritten

LIFE_CYCLES = {
    "call", "cast_and_restart", "consumer_lost", "drain", "link_resumed", "mesh_joining", "revoked_key",
    "slow_subscriber", "start_and_recovery",
}  # fmt: skip


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem)
def test_transcript(path: Path):
    told = path.read_text()
    is_now = rewritten(told)
    difference = "\n".join(unified_diff(told.splitlines(), is_now.splitlines(), path.name, "now", lineterm="", n=8))
    assert not difference, f"{difference}\nIf that is right: python -m tests.core.transcripts"


def test_each_life_cycle_has_its_transcript():
    assert {path.stem for path in TRANSCRIPTS} == LIFE_CYCLES


def test_a_transcript_that_differs_is_noticed():
    told = "process api\napi request compute reboot ttl=30\n    api < REPLY api#1 'never sent'\n"
    assert "never sent" not in rewritten(told)


def test_an_event_that_does_not_exist_is_an_error():
    with pytest.raises(ValueError, match="'dance' is no event"):
        rewritten("process api\napi dance\n")


def test_an_event_of_routers_that_does_not_exist_is_an_error():
    with pytest.raises(ValueError, match="'dance' is no event"):
        rewritten("mesh\ndance\n")
    with pytest.raises(ValueError, match="'dance' is no event of a router"):
        rewritten("mesh\nrouter a\na dance\n")
