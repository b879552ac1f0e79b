"""The processes of ``rpcmq proxy``: a fetcher and front ends, started again when one ends, and a router for them."""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from time import monotonic

import gevent
from gevent.event import Event

from rpcmq.cli.exit_codes import ExitCode
from rpcmq.cli.options import State
from rpcmq.cli.stopping import ended_by_signals
from rpcmq.config import load_router_config
from rpcmq.errors import ConfigError
from rpcmq.proxy.settings import ProxySettings
from rpcmq.server.child_process import BackOff, ChildProcess
from rpcmq.server.embedded import EmbeddedRouter
from rpcmq.server.log import log_event

__all__ = ["end_with", "run_processes"]

_log = logging.getLogger("rpcmq.proxy")

#: Pauses before a process is started again (seconds).
_FIRST_PAUSE, _LONGEST_PAUSE = 0.2, 10.0
#: Seconds beyond those for requests under way that a process may take to end.
_MARGIN = 10.0
#: Seconds between two looks at whether the parent lives.
_LOOK_SECONDS = 0.5


class _Kept:
    """A process that is started again whenever it ends.

    Args:
        on_unusable: called where it cannot be started even once with its settings.
    """

    def __init__(self, name: str, command: Sequence[str], on_unusable: Callable[[], object]) -> None:
        self.name = name
        self._on_unusable = on_unusable
        self._command = command
        self._child = ChildProcess()
        self._is_stopping = False

    def run(self) -> None:
        """Start it, again and again."""
        back_off = BackOff(_FIRST_PAUSE, _LONGEST_PAUSE)
        is_first = True
        while True:
            begun = monotonic()
            code = self._child.run(self._command)
            if self._has_to_end():
                return
            if is_first and code == ExitCode.USAGE:
                # It has said what is wrong with its settings, which will be as wrong the next time.
                self._on_unusable()
                return
            is_first = False
            pause = back_off.pause_after(monotonic() - begun)
            text = f"{self.name} has ended with {code}; it is started again in {pause:g} s"
            log_event(_log, logging.ERROR, "ended", text, name=self.name, code=code)
            gevent.sleep(pause)
            if self._has_to_end():
                return

    def _has_to_end(self) -> bool:
        return self._is_stopping

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        self._child.signal(number)

    def stop(self) -> None:
        """Have it end."""
        self._is_stopping = True
        self._child.signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it at once."""
        self._child.kill()


def run_processes(state: State, settings: ProxySettings, role: str, arguments: Sequence[str]) -> None:
    """Run the processes of ``role`` until a signal comes: ``front`` or ``all``.

    Args:
        arguments: for each of them.

    Raises:
        ConfigError: the same is wrong for all of them.
        SystemExit: with 2, a process could not be started even once with its settings, and has said why.
    """
    front = settings.front
    if front.processes > 1 and any(address.endswith(":0") for address in (front.http, front.https) if address):
        raise ConfigError("front.http and front.https need a port of their own where several processes share it")
    # A signal ends the wait, and nothing else.
    with ExitStack() as stack, suppress(KeyboardInterrupt, SystemExit), ended_by_signals():
        url = state.router
        if role == "all" and url is None:
            router = EmbeddedRouter(load_router_config(None, {}, {"router.listen": "tcp://127.0.0.1:*"}))
            stack.callback(router.close)
            url = router.url
        base = [sys.executable, "-m", "rpcmq", "proxy", *arguments, "--parent", str(os.getpid())]
        for name, value in (("--router", url), ("--key-file", state.key_file), ("--exchange", state.exchange)):
            base += [name, value] if value is not None else []
        is_unusable = Event()
        fronts = [
            _Kept(f"front end {number}", [*base, "--role", "front", "--number", str(number)], is_unusable.set)
            for number in range(front.processes)
        ]
        fetchers = [_Kept("the fetcher", [*base, "--role", "fetch"], is_unusable.set)] if role == "all" else []
        for group in (fetchers, fronts):
            # The last ones end first: front ends need the fetcher for what they still answer.
            stack.callback(_stop, group, front.drain_seconds + _MARGIN, [gevent.spawn(kept.run) for kept in group])
        gevent.signal_handler(signal.SIGHUP, _signal, fronts, signal.SIGHUP)
        is_unusable.wait()
    if is_unusable.is_set():
        raise SystemExit(ExitCode.USAGE)


def end_with(parent: int) -> None:
    """Have this process end in order once its parent is gone."""

    def watch() -> None:
        while os.getppid() == parent:
            gevent.sleep(_LOOK_SECONDS)
        os.kill(os.getpid(), signal.SIGTERM)

    gevent.spawn(watch)


def _signal(group: Sequence[_Kept], number: signal.Signals) -> None:
    for kept in group:
        kept.signal(number)


def _stop(group: Sequence[_Kept], seconds: float, greenlets: Sequence[gevent.Greenlet[..., None]]) -> None:
    for kept in group:
        kept.stop()
    gevent.joinall(greenlets, timeout=seconds)
    for kept in group:
        kept.kill()
    gevent.killall(greenlets)
