"""Limits of the process; in processes of their own, because they cannot be taken back."""

from __future__ import annotations

import sys

import pytest
from gevent import subprocess

RAISE = """
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, ({soft}, 512))
from rpcmq.server.limits import raise_open_files
print(raise_open_files(), *resource.getrlimit(resource.RLIMIT_NOFILE))
"""
TUNE = """
import gc
before = gc.get_threshold()
from rpcmq.server.limits import tune_gc
tune_gc()
after = gc.get_threshold()
print(gc.isenabled(), gc.get_freeze_count() > 1000, after[0] > 10 * before[0])
"""


def output_of(program: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=True
    ).stdout


@pytest.mark.parametrize("soft", [64, 512])
def test_open_files_are_raised_to_the_hard_limit(soft: int) -> None:
    assert output_of(RAISE.format(soft=soft)) == "512 512 512\n"


def test_the_collector_is_on_but_rare_and_leaves_what_was_there_alone() -> None:
    assert output_of(TUNE) == "True True True\n"
