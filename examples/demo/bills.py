"""The queue of bills as an operator sees it: what ``rpcmq queue show --json`` says, when it has come to rest."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from time import monotonic
from typing import Any

import gevent
from gevent.subprocess import DEVNULL, PIPE, Popen

_SETTLE_SECONDS = 40.0
_PAUSE = 0.5


def settled(url: str, queue: str) -> Sequence[Mapping[str, Any]]:
    """Wait until every item of ``queue`` has ended, but not for ever; return its figures at each owner."""
    deadline = monotonic() + _SETTLE_SECONDS
    while True:
        owners = _show(url, queue)
        if not sum(row[state] for row in owners for state in ("ready", "postponed", "running")) and owners:
            return owners
        if monotonic() > deadline:
            return owners
        gevent.sleep(_PAUSE)


def _show(url: str, queue: str) -> list[dict[str, Any]]:
    command = [sys.executable, "-m", "rpcmq", "queue", "show", queue, "--json", "--router", url]
    with Popen(command, stdout=PIPE, stdin=DEVNULL) as process:
        output, _ = process.communicate()
    return list(json.loads(output)["owners"]) if output else []
