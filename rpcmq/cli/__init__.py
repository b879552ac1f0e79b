"""The ``rpcmq`` command."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Sequence
from typing import NoReturn

__all__ = ["main"]

_INTERRUPTED = 128 + signal.SIGINT


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command that ``arguments`` (default: those of the process) name, and exit."""
    heed_interrupts = _end_quietly_when_interrupted()
    # Here, because Ctrl-C during an import would show a traceback from the middle of a library.
    from rpcmq.cli.commands import run

    try:
        heed_interrupts()
        code = run(arguments)
    except KeyboardInterrupt:
        code = _INTERRUPTED
    sys.exit(code)


def _end_quietly_when_interrupted() -> Callable[[], object]:
    """Have SIGINT end the process at once and without a word. Returns a function that undoes that."""
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        return lambda: None  # ignored, as in a background job of a script; or the program's own
    try:
        signal.signal(signal.SIGINT, lambda number, frame: os._exit(_INTERRUPTED))
    except ValueError:
        return lambda: None  # not the main thread, to which all signals come
    return lambda: signal.signal(signal.SIGINT, signal.default_int_handler)
