"""Notifies systemd of the daemon's state, as in sd_notify(3): datagrams to ``$NOTIFY_SOCKET``."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Mapping
from time import monotonic_ns

from rpcmq.server.log import log_event

__all__ = ["Notifier"]

log = logging.getLogger("rpcmq.router")


class Notifier:
    """Sends states; where no service manager listens, does nothing.

    Args:
        environ: the process's variables: ``NOTIFY_SOCKET`` (a path, or ``@name`` for an abstract
            socket), ``WATCHDOG_USEC``, ``WATCHDOG_PID``.
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        path = environ.get("NOTIFY_SOCKET", "")
        self._path = "\0" + path[1:] if path.startswith("@") else path
        self._socket: socket.socket | None = None
        self._failed = False
        if self._path:
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
            self._socket.setblocking(False)
        #: Longest interval between WATCHDOG=1 messages (seconds); None: none are wanted.
        self.watchdog_seconds = _watchdog_seconds(environ) if self._path else None

    def ready(self, status: str) -> None:
        """Started, or done with a reload."""
        self._send(f"READY=1\nSTATUS={status}")

    def status(self, status: str) -> None:
        """Nothing is new but the text."""
        self._send(f"STATUS={status}")

    def reloading(self) -> None:
        """A reload has begun; :meth:`ready` ends it."""
        # systemd orders a reload by this time (Type=notify-reload).
        self._send(f"RELOADING=1\nMONOTONIC_USEC={monotonic_ns() // 1000}")

    def stopping(self, status: str) -> None:
        """Shutting down."""
        self._send(f"STOPPING=1\nSTATUS={status}")

    def watchdog(self) -> None:
        """Still alive."""
        self._send("WATCHDOG=1")

    def close(self) -> None:
        """Send nothing more."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _send(self, state: str) -> None:
        if self._socket is None:
            return
        try:
            self._socket.sendto(state.encode(), self._path)
        except OSError as error:
            # The daemon does its work with or without the service manager.
            if not self._failed:
                self._failed = True
                text = f"cannot tell the service manager at NOTIFY_SOCKET: {error}"
                log_event(log, logging.WARNING, "service manager", text)


def _watchdog_seconds(environ: Mapping[str, str]) -> float | None:
    for_pid = environ.get("WATCHDOG_PID")
    text = environ.get("WATCHDOG_USEC", "")
    if not text.isascii() or not text.isdigit() or int(text) == 0 or for_pid not in (None, str(os.getpid())):
        return None
    return int(text) / 1e6
