"""Watches a socket: which connections come and go, and whether a wake-up was lost."""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from time import monotonic

import zmq

from rpcmq.transport.batches import BatchSocket
from rpcmq.transport.forks import abandon_after_fork
from rpcmq.transport.shell import Handle, Shell

__all__ = ["LOST_EVENTS", "ConnectionWatch", "Watchdog"]

#: Events after which a socket that connects has no connection.
LOST_EVENTS = (
    zmq.EVENT_DISCONNECTED,
    zmq.EVENT_CLOSED,
    zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL,
    zmq.EVENT_HANDSHAKE_FAILED_AUTH,
)


#: First frame of what libzmq's monitor tells: event, value. ``zmq.utils.monitor`` reads it too, but imports asyncio, a
#: tenth of all that a process loads to start.
_EVENT = Struct("=hi")

_WATCHDOG = 0.5
#: Longest look at a descriptor and its socket that says something of both at the same time (seconds): in a longer one
#: another thread had the interpreter, and a message may have come in between.
_AT_ONCE = 0.0005

#: All but EVENT_HANDSHAKE_FAILED_PROTOCOL: libzmq 4.3.5 also reports a message that does not decrypt by it, and
#: loses the errno that would end the connection. That then stays half dead, and aborts the process at a heartbeat.
_EVENTS = (
    zmq.EVENT_DISCONNECTED
    | zmq.EVENT_ACCEPTED
    | zmq.EVENT_CONNECTED
    | zmq.EVENT_HANDSHAKE_SUCCEEDED
    | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
    | zmq.EVENT_HANDSHAKE_FAILED_AUTH
    | zmq.EVENT_CLOSED
    | zmq.EVENT_MONITOR_STOPPED
)


#: Watches of closed sockets that have not ended, kept also where their loop ends before.
_ending: set[ConnectionWatch] = set()


class ConnectionWatch:
    """Calls ``on_event(event, value)`` in the loop of ``shell`` for each connection event of ``socket``.

    ``value`` is the connection's file descriptor, or an errno where libzmq says so.
    """

    def __init__(self, socket: zmq.Socket[bytes], on_event: Callable[[int, int], None], shell: Shell) -> None:
        self._watched = socket
        self._on_event = on_event
        self._shell = shell
        self._monitor = socket.get_monitor_socket(_EVENTS)
        self._io = shell.call_when_readable(int(self._monitor.fd), self.read)
        # Events before the watcher started gave no edge.
        self._soon = shell.call_soon(self.read)

    def read(self) -> None:
        """Report all events so far."""
        while not self._monitor.closed and int(self._monitor.get(zmq.EVENTS)) & zmq.POLLIN:
            told, _address = self._monitor.recv_multipart(zmq.NOBLOCK)
            self._on_event(*_EVENT.unpack(told))

    def end_with_socket(self, on_end: Callable[[], object]) -> None:
        """Report nothing more but the end of the socket, and stop listening then. The caller closes the socket next.

        A closed socket ends when what it had to send has left, or its linger is over. Until then it is listened to,
        whether somebody waits for it or not: libzmq's thread that ends the sockets of the whole process tells of the
        end, and waits for ever where nobody can be told.
        """

        def is_end(event: int, value: int) -> None:
            if event == zmq.EVENT_MONITOR_STOPPED:
                _ending.discard(self)
                on_end()
                self.close()

        self._on_event = is_end
        _ending.add(self)
        abandon_after_fork(self, self._shell)

    def close(self) -> None:
        """Stop listening to a socket that is open or has ended."""
        self._io.stop()
        self._io.close()
        self._soon.stop()
        if not self._watched.closed:
            self._watched.disable_monitor()
        if not self._monitor.closed:
            self._monitor.close(linger=0)

    def abandon(self, loop_runs: bool = True) -> None:
        """Stop listening without touching the sockets: they are another process's."""
        if loop_runs:
            self._io.stop()
            self._soon.stop()


class Watchdog:
    """Checks periodically for messages whose wake-up was lost.

    Args:
        socket: gives the socket, None while there is none.
        wake: receives what waits.
        shell: the loop that it checks in.
    """

    def __init__(self, socket: Callable[[], BatchSocket | None], wake: Callable[[], None], shell: Shell) -> None:
        self._socket = socket
        self._wake = wake
        self._seen = 0
        self._shell = shell
        self._timer: Handle | None = None
        #: To be counted up by each wake-up.
        self.wakes = 0
        #: Wake-ups that were lost. Must stay 0.
        self.lost = 0

    def start(self) -> None:
        """Start checking."""
        self._timer = self._shell.call_every(_WATCHDOG, self._look)

    def stop(self) -> None:
        """Stop checking."""
        if self._timer is not None:
            self._timer.stop()
            self._timer.close()
            self._timer = None

    def _look(self) -> None:
        socket = self._socket()
        if socket is None:
            return
        # While the file descriptor shows a sign, the wake-up is only late. To ask the socket itself
        # takes the sign away, so from then on it is for us to receive what there is.
        looked = monotonic()
        signalled = zmq.zmq_poll([(socket.fd, zmq.POLLIN)], 0)
        if socket.readable():
            if not signalled and self.wakes == self._seen and monotonic() - looked < _AT_ONCE:
                self.lost += 1
            self._wake()
        self._seen = self.wakes
