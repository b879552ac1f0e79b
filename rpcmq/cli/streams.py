"""Standard streams of the command that are closed, or cannot be written."""

from __future__ import annotations

import os
import sys

__all__ = ["drop_output", "is_of_output", "open_streams"]


def open_streams() -> None:
    """Replace standard streams that were closed when the process began: Python has None for these.

    What is read or written then fails only where it is; a daemon that needs none of them runs.
    """
    if sys.stdin is None:
        sys.stdin = open(os.devnull)  # noqa: SIM115  # until the process ends, as those below
    if sys.stdout is None:
        # Each write to it fails, as with the closed descriptor.
        sys.stdout = open(os.open(os.devnull, os.O_RDONLY), "w")  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115


def is_of_output(error: OSError) -> bool:
    """Return whether ``error`` is standard output's; if so, what was not written is dropped."""
    try:
        # Without a buffer nothing is left of what failed.
        print(flush=True)
    except OSError as again:
        drop_output()
        return again.errno == error.errno
    return False


def drop_output() -> None:
    """Drop what standard output has not taken. Python would complain about it again at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
