"""The demo's last part: its router's dispatch log, turned into the report that an operator reads."""

from __future__ import annotations

import sys
from pathlib import Path

from gevent.subprocess import DEVNULL, Popen

_SECONDS = 300.0


def write_report(log: Path, out: Path) -> bool:
    """Ship ``log``, which has all that the demo's router dispatched, and report on it; whether that worked."""
    shipped = _rpcmq("ship", "--log", str(log), "--once", quiet=True)
    return shipped and _rpcmq("latency", "report", "--log", str(log), "--out", str(out))


def _rpcmq(*arguments: str, quiet: bool = False) -> bool:
    with Popen([sys.executable, "-m", "rpcmq", *arguments], stdout=DEVNULL if quiet else None) as command:
        try:
            return int(command.wait(_SECONDS)) == 0
        except BaseException:
            command.terminate()
            raise
