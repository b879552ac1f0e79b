"""The socket of a process towards its router: opened for each attempt, with the monitor that reports on it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import zmq

from rpcmq.transport.batches import BatchSocket
from rpcmq.transport.curve import Curve
from rpcmq.transport.process_context import process_context
from rpcmq.transport.shell import Handle, Shell
from rpcmq.transport.watch import ConnectionWatch

__all__ = ["DialedSocket"]


class DialedSocket:
    """A ZeroMQ DEALER socket that is open or not, and whatever waits for it in the loop.

    Args:
        shell: the loop.
        curve: our keys and the router's; None: it has none.
        context: the ZeroMQ context to make the socket in; None: this process's own.

    Attributes:
        socket: the open socket; None between attempts.
    """

    __slots__ = ("_context", "_curve", "_name_check", "_reader", "_shell", "_watch", "socket")

    def __init__(self, shell: Shell, curve: Curve | None, context: zmq.Context[Any] | None = None) -> None:
        self._shell = shell
        self._curve = curve
        self._context = context
        self.socket: BatchSocket | None = None
        self._watch: ConnectionWatch | None = None
        self._name_check: Handle | None = None
        self._reader: Handle | None = None

    @property
    def has_keys(self) -> bool:
        """Whether it uses CURVE."""
        return self._curve is not None

    def open(
        self,
        url: str,
        max_bytes: int,
        lost_seconds: float,
        on_event: Callable[[int, int], None],
        on_readable: Callable[[], None],
        on_unknown_host: Callable[[str], None],
        server_key: str = "",
    ) -> None:
        """Begin to connect. After an exception call :meth:`close`.

        Args:
            url: the router's endpoint.
            max_bytes, lost_seconds: for :class:`BatchSocket`.
            on_event: called with each event of its monitor and its value.
            on_readable: called when there may be something to receive.
            on_unknown_host: called with a text if the name of the router's host does not resolve.
            server_key: the router's public key, if it is known to be another one than that of our keys.

        Raises:
            zmq.ZMQError: libzmq does not take the url, or no file descriptor is left.
        """
        curve = self._curve
        if curve is not None and (other := curve.server_keys.get(url) or server_key):
            curve = replace(curve, server_key=other)
        self.socket = opened = BatchSocket(
            self._context or process_context(),
            zmq.DEALER,
            max_bytes=max_bytes,
            lost_seconds=lost_seconds,
            ipv6="[" in url,
            curve=curve,
            shares_interpreter=self._shell.shares_interpreter,
        )
        self._watch = ConnectionWatch(opened.socket, on_event, self._shell)
        opened.socket.connect(url)
        self._name_check = self._shell.check_name(url, on_unknown_host)
        self._reader = self._shell.call_when_readable(opened.fd, on_readable)

    def host_is_reached(self) -> None:
        """The TCP connection stands: the host's name needs no further check."""
        if self._name_check is not None:
            self._name_check.close()
            self._name_check = None

    def read_events(self) -> None:
        """Report the events that there were, if that was not done yet."""
        if self._watch is not None:
            self._watch.read()

    def close(self, linger_seconds: float = 0.0) -> None:
        """Close the socket, if one is open; queued messages have ``linger_seconds`` to leave."""
        self.stop_reading()
        if self._watch is not None:
            self._watch.close()
            self._watch = None
        if self.socket is not None:
            self.socket.close(linger_seconds)
            self.socket = None

    def close_when_sent(self, linger_seconds: float) -> None:
        """Close the socket as :meth:`close` does, and wait for so long at most until the queued messages have left."""
        watch, socket = self._watch, self.socket
        if watch is not None and socket is not None:
            self.stop_reading()
            self.socket = self._watch = None
            sent = self._shell.event()
            watch.end_with_socket(sent.set)
            socket.close(linger_seconds)
            # libzmq ends the socket when it has let go of its connection.
            sent.wait(linger_seconds)

    def stop_reading(self) -> None:
        """Report no more that there may be something to receive."""
        self.host_is_reached()
        if self._reader is not None:
            self._reader.stop()
            self._reader.close()
            self._reader = None

    def abandon(self) -> None:
        """After a fork, in the child: forget the parent's socket without touching it."""
        self.host_is_reached()
        if self._reader is not None:
            self._reader.stop()
        if self._watch is not None:
            self._watch.abandon()
        self.socket = self._watch = None
