"""A call that is the only one of its process is waited for at the socket, in the thread that made it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from rpcmq.testing.processes import Program

PROGRAM = Path(__file__).parent / "programs" / "lone.py"


@pytest.mark.parametrize(
    ("scenario", "said"),
    [
        ("alone", ["True True"]),
        ("beside_one_another", ["True []", "['released'] 1 False 0"]),
        ("by_turns", ["True"]),
        ("timed_out", ["timeout 1"]),
        ("closed", ["True"]),
        (
            "closed_on_the_way",
            [
                "the client was closed while the call was in flight",
                "left over: 0",
                "this client is closed",
                "left over: 0",
            ],
        ),
        ("forked", ["child 2", "['released'] 3"]),
        ("interrupted", ["cancelled 1"]),
        ("left_behind", ["taken back 1"]),
        ("interrupted_often", ["1", "nothing left"]),
        ("interrupted_at_work", ["True", "True", "1"]),
        ("main_thread_among_others", ["0"]),
    ],
)
def test_a_call_that_is_alone(router, held, scenario, said):
    # From Python 3.12 on every fork of a process with threads, such as ZeroMQ's, is warned about.
    quiet = {"PYTHONWARNINGS": "ignore:This process:DeprecationWarning"}
    with Program([sys.executable, str(PROGRAM), router.url, scenario], quiet, name=scenario) as program:
        assert program.wait(90) == 0, program.said()
        assert program.lines == said
