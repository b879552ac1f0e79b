"""Runs the tests in a kind of process that services of OpenStack are: python tests/run_as.py KIND [pytest's arguments].

What is the same in each kind, because it has processes of its own or is about no messages, is left to "native".
"""

from __future__ import annotations

import sys
from pathlib import Path

TESTS = Path(__file__).parent
sys.path.insert(0, str(TESTS / "programs"))

import kinds  # noqa: E402

ONCE = ("doctor", "example", "faults_under_load", "guide", "kinds_of_process", "mesh", "moving", "registration")

kind, *arguments = sys.argv[1:]
kinds.become(kind)

import pytest  # noqa: E402

if kind != "native":
    arguments += [f"--ignore={TESTS / f'test_{name}.py'}" for name in ONCE]
# Several kinds run at the same time.
sys.exit(pytest.main(["-p", "no:cacheprovider", *arguments]))
