"""Python 2 text converted by 2to3, by the command in docs/legacy-services.md."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from gevent import subprocess

__all__ = ["convert", "needs_2to3"]

needs_2to3 = pytest.mark.skipif(
    sys.version_info >= (3, 13), reason="Python 3.13 ships no lib2to3, and the text under test is what that one leaves"
)


def convert(*paths: Path) -> None:
    """Convert files and directories in place; fails where 2to3 cannot parse a file."""
    command = [sys.executable, "-W", "ignore", "-m", "lib2to3", "-w", "-n", *map(str, paths)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert "There was" not in done.stderr, done.stderr
