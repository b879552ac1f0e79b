"""The router of a drill: the daemon as it is, which also writes its part of the history.

``python -m rpcmq.drill.router FOLDER [--config FILE]`` writes a history into ``FOLDER``, another in each life; all
else it is told by its environment, as ``rpcmq router``.
"""

from __future__ import annotations

import argparse
import os
import sys
from functools import partial
from pathlib import Path

from rpcmq.config import RouterConfig, load_router_config
from rpcmq.core.router.model import Link
from rpcmq.drill.history import Recorder, What
from rpcmq.drill.names import ROUTER
from rpcmq.drill.watched import WatchedRouter
from rpcmq.latency.schema import outcome_name
from rpcmq.server.daemon import Daemon
from rpcmq.wire import trace_of

__all__ = ["main"]


class _Scribe:
    """Records the engine's events, under the router's names."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    def accepted(self, message: bytes) -> None:
        if trace_id := _trace_id(message):
            self._recorder.write(What.ACCEPT, trace_id)

    def dispatched(self, message: bytes, link: Link, attempt: int) -> None:
        if trace_id := _trace_id(message):
            self._recorder.write(What.DISPATCH, trace_id, to=link.origin.hex(), attempt=attempt)

    def settled(self, message: bytes, outcome: int) -> None:
        if trace_id := _trace_id(message):
            self._recorder.write(What.SETTLE, trace_id, outcome=outcome_name(outcome))

    def declared(self, link: Link) -> None:
        self._recorder.write(What.DECLARED, link.origin.hex(), state=link.state.value)


def _trace_id(message: bytes) -> str:
    return trace_of(message)[3:35].decode("ascii", "replace")


def main(arguments: list[str]) -> int:
    """Be the router of a drill, until a signal ends it."""
    parser = argparse.ArgumentParser(prog="rpcmq.drill.router")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--config")
    told = parser.parse_args(arguments)

    def load() -> RouterConfig:
        return load_router_config(told.config, os.environ, {})

    with Recorder(told.folder / f"router-{os.getpid()}.history", ROUTER) as recorder:
        return Daemon(load, partial(WatchedRouter, _Scribe(recorder))).run()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
