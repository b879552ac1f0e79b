"""``rpcmq ship`` as a child of the router: started again when it dies, ended when the router has drained."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Set
from importlib.util import find_spec
from signal import SIGTERM
from time import monotonic

import gevent
from gevent.event import Event

from rpcmq.config import RouterConfig
from rpcmq.server.child_process import BackOff, ChildProcess
from rpcmq.server.log import log_event

__all__ = ["ShipperProcess", "command_for", "start_shipper"]

log = logging.getLogger("rpcmq.router")

#: Exit codes after which it is not restarted, and their reasons.
HOPELESS = {2: "its settings are wrong", 10: "a package is missing: pip install 'rpcmq[ship]'"}
#: Packages of the extra ``ship``.
_PACKAGES = ("numpy", "pyarrow")
#: Seconds before it is started again: the first time, and at most.
_FIRST_WAIT, _LONGEST_WAIT = 1.0, 60.0


def command_for(config: RouterConfig) -> list[str]:
    """Return the ``rpcmq ship`` command for the log that ``config`` describes."""
    settings = config.dispatch_log
    values = {
        "--log": settings.directory,
        "--interval": settings.ship_seconds,
        "--keep-age": settings.keep_seconds,
        "--keep-bytes": settings.keep_bytes,
        "--keep-ready": settings.keep_ready_seconds,
        "--log-format": config.router.log_format,
        "--log-level": config.router.log_level,
        # If this process is killed, the child must notice by itself.
        "--parent": os.getpid(),
    }
    flags = [str(each) for pair in values.items() for each in pair]
    return [sys.executable, "-m", "rpcmq", "ship", *flags]


def start_shipper(config: RouterConfig, cores: Set[int]) -> ShipperProcess | None:
    """Start ``rpcmq ship`` for the log of ``config`` on ``cores``; None, with an error logged: it is not installed."""
    missing = [name for name in _PACKAGES if find_spec(name) is None]
    if not missing:
        return ShipperProcess(command_for(config), cores=cores)
    text = (
        f"dispatch_log.ship: {' and '.join(missing)} not installed: pip install 'rpcmq[ship]'; "
        "rpcmq ship is not started, and the log stays in its spool"
    )
    log_event(log, logging.ERROR, "shipper failed", text, exit_code=10)
    return None


class ShipperProcess:
    """Runs ``command`` until ``stop``; its standard error is the router's.

    Args:
        command: the program and its arguments.
        first_wait: seconds before it is started again the first time.
        cores: on which it may run, whatever the router keeps to; None: where the router may.
    """

    def __init__(self, command: list[str], first_wait: float = _FIRST_WAIT, cores: Set[int] | None = None) -> None:
        self._command = command
        self._child = ChildProcess(cores)
        self._back_off = BackOff(first_wait, _LONGEST_WAIT)
        self._stop = Event()
        self._keeper = gevent.spawn(self._run)

    @property
    def pid(self) -> int | None:
        """The pid of the running child, or None."""
        return self._child.pid

    @property
    def ended(self) -> bool:
        """Whether it is not started again."""
        return bool(self._keeper.dead)

    def stop(self, seconds: float) -> None:
        """Let it ship what is complete, and end it after at most ``seconds``; the rest follows at its next start."""
        self._stop.set()
        self._child.signal(SIGTERM)
        self._keeper.join(seconds)
        if self._child.kill():
            log_event(log, logging.WARNING, "shipper killed", f"rpcmq ship did not end in {seconds:g} s: killed")

    def _run(self) -> None:
        while not self._stop.is_set():
            started = monotonic()
            code = self._run_child()
            if self._stop.is_set():
                return
            if code in HOPELESS:
                why = f"rpcmq ship ended with {code} ({HOPELESS[code]})"
                text = f"{why} and is not started again; the log stays in its spool"
                log_event(log, logging.ERROR, "shipper failed", text, exit_code=code)
                return
            wait = self._back_off.pause_after(monotonic() - started)
            text = f"rpcmq ship ended with {code}; started again in {wait:g} s"
            log_event(log, logging.WARNING, "shipper ended", text, exit_code=code, seconds=wait)
            self._stop.wait(wait)

    def _run_child(self) -> int:
        try:
            return self._child.run(self._command)
        except OSError as error:
            log_event(log, logging.WARNING, "shipper failed", f"rpcmq ship cannot be started: {error.strerror}")
            return -1
