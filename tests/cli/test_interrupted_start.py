"""Ctrl-C while a command is still being imported."""

from __future__ import annotations

import sys

import pytest
from gevent import subprocess

from tests.server.daemons import SECONDS, environment

#: ``rpcmq version``, interrupted when it imports click.
_PROGRAM = """
import runpy, signal, sys

class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == "click":
            sys.meta_path.remove(self)
            signal.raise_signal(signal.SIGINT)

sys.meta_path.insert(0, Interrupting())
sys.argv[1:] = ["version"]
signal.signal(signal.SIGINT, signal.{handler})
runpy.run_module("rpcmq", run_name="__main__")
"""


def run(handler: str) -> subprocess.CompletedProcess[str]:
    program = _PROGRAM.format(handler=handler)
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=environment(), timeout=SECONDS
    )


def test_it_ends_the_command_without_a_word() -> None:
    done = run("default_int_handler")
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_it_is_ignored_where_the_signal_is() -> None:
    """As in ``rpcmq router &`` in a script: the shell has jobs in the background ignore it."""
    done = run("SIG_IGN")
    assert (done.returncode, done.stderr) == (0, "") and done.stdout


@pytest.mark.parametrize("module", ["rpcmq", "rpcmq.cli"])
def test_nothing_is_imported_before_it_that_takes_long(module: str) -> None:
    program = f"import sys, {module}; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=SECONDS).stdout
    assert not {"click", "rich", "gevent", "zmq", "rpcmq.client", "rpcmq.errors"} & set(loaded.split())
