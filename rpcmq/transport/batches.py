"""Batches over one ZeroMQ socket, without losing a wake-up.

The file descriptor that libzmq offers for a socket is edge-triggered (zmq_getsockopt(3), ZMQ_FD): it
becomes readable when something *may* have changed, and any send or receive may consume that sign. So
a wake-up drains the socket until ``ZMQ_EVENTS`` says that nothing is left, and looks at
``ZMQ_EVENTS`` again after it has sent.
"""

from __future__ import annotations

import resource
from collections.abc import Sequence
from typing import Any

import zmq
from zmq import zmq_poll

from rpcmq.core.common.session import Session
from rpcmq.transport.curve import Curve
from rpcmq.wire import Detached

__all__ = ["Arrival", "BatchSocket", "flush_session", "new_context"]

# Plain integers: pyzmq's enums cost as much as the calls they are given to.
_NOBLOCK = int(zmq.NOBLOCK)
_MORE = int(zmq.NOBLOCK) | int(zmq.SNDMORE)
_EVENTS = int(zmq.EVENTS)
_POLLIN = int(zmq.POLLIN)
#: Most batches (ZeroMQ messages) waiting to be sent on one connection.
_HIGH_WATER = 10_000
#: Reconnect interval that exceeds the life of any broken socket (milliseconds).
_NO_RECONNECT_MS = 3_600_000

#: One received ZeroMQ message: route (empty on a DEALER), batch, detached payloads.
Arrival = tuple[bytes, bytes, Sequence[bytes | memoryview]]


def new_context(io_threads: int = 1) -> zmq.Context[Any]:
    """A ZeroMQ context that allows as many sockets and connections as the process may open."""
    context: zmq.Context[Any] = zmq.Context(io_threads)
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    most, default = context.get(zmq.SOCKET_LIMIT), context.get(zmq.MAX_SOCKETS)
    # libzmq's default of 1023 is 341 clients: each has three.
    context.set(zmq.MAX_SOCKETS, most if files == resource.RLIM_INFINITY else min(most, max(default, files)))
    return context


class BatchSocket:
    """A ROUTER or DEALER that carries batches.

    Args:
        context: the ZeroMQ context.
        kind: ``zmq.ROUTER`` or ``zmq.DEALER``.
        max_bytes: a peer that sends a larger frame is disconnected by libzmq.
        lost_seconds: a peer's host that has been silent for so long is disconnected.
        handshake_seconds: how long the ZMTP handshake of a connection may take.
        ipv6: whether the url is an IPv6 one; libzmq shows even IPv4 addresses as IPv6 then.
        curve: keys; None: neither encryption nor authentication.
        shares_interpreter: other OS threads may be computing: the interpreter is let go of no more often than needed.
    """

    def __init__(
        self,
        context: zmq.Context[Any],
        kind: int,
        *,
        max_bytes: int,
        lost_seconds: float = 60.0,
        handshake_seconds: float = 10.0,
        ipv6: bool = False,
        curve: Curve | None = None,
        shares_interpreter: bool = False,
    ) -> None:
        self._routed = kind == zmq.ROUTER
        self.socket = socket = context.socket(kind)
        _set_bounds(socket, max_bytes, lost_seconds, handshake_seconds)
        socket.ipv6 = ipv6
        if curve is not None:
            curve.apply(socket)
        if self._routed:
            socket.router_mandatory = True
            socket.backlog = 4096
        else:
            # We reconnect ourselves, with a new socket: libzmq would send what it had queued before
            # we could say HELLO. Not "never" (-1): then it throws away what came before a connection broke and was not
            # read yet, such as the answers that a router sent before it left to a process that was busy.
            socket.reconnect_ivl = _NO_RECONNECT_MS
        self.fd = int(socket.fd)
        backend: Any = super(zmq.Socket, socket)
        # The Python layer of pyzmq around these costs more than the calls themselves.
        self._recv = backend.recv
        self._send = backend.send
        self._get = backend.get
        #: The descriptor that :meth:`readable` polls; None: it asks for ``ZMQ_EVENTS``.
        self._polled: list[tuple[Any, int]] | None = None if shares_interpreter else [(socket, _POLLIN)]
        self._last: Any = None
        #: Remaining frames of a partly sent batch; 0 if there is none.
        self._torn = 0

    def readable(self) -> bool:
        """Return whether a message waits. Must be asked after each round of sends, too."""
        if self._polled is not None:
            # The same answer in half the time, because pyzmq looks up each option in an enum. But a poll lets other
            # threads have the interpreter, which they may keep for milliseconds.
            return bool(zmq_poll(self._polled, 0))
        return bool(self._get(_EVENTS) & _POLLIN)

    def receive(self) -> Arrival:
        """Return the next message; only after :meth:`readable` returned True."""
        recv = self._recv
        route: bytes = recv(_NOBLOCK) if self._routed else b""
        self._last = frame = recv(_NOBLOCK, False)
        if not frame.more:
            return route, frame.bytes, ()
        payloads: list[memoryview] = []
        batch = frame.bytes
        while frame.more:
            frame = recv(_NOBLOCK, False)
            payloads.append(frame.buffer)
        return route, batch, payloads

    def last_fd(self) -> int:
        """File descriptor of the connection that the last message came on (-1 if it has none)."""
        try:
            return int(self._last.get(zmq.SRCFD))
        except zmq.ZMQError:
            return -1

    def last_user(self) -> str:
        """The public key (Z85) that the connection of the last message was authenticated with.

        Only of a socket with CURVE: elsewhere a peer could say anything here.
        """
        try:
            return str(self._last.get("User-Id"))
        except zmq.ZMQError:
            return ""

    def send(self, route: bytes, messages: Sequence[bytes], has_detached: bool | None = None) -> int:
        """Send ``messages`` as one batch.

        Args:
            has_detached: whether any of them has a detached payload; None: to be found out.

        Returns:
            Bytes of the batch and its payloads.

        Raises:
            zmq.Again: the connection's pipe is full; nothing was sent.
            zmq.ZMQError: EHOSTUNREACH: a ROUTER has no such connection.
            Exception: any other, after which the batch may or may not have been sent: break the connection, so that
                the session's resumption tells. The peer never takes half a batch, nor half of one with the next.
        """
        if self._torn:
            self._complete_partial_send()
        batch = messages[0] if len(messages) == 1 else b"".join(messages)
        payloads: list[zmq.Frame] = []
        size_bytes = len(batch)
        if has_detached or (has_detached is None and Detached in map(type, messages)):
            # Prepare everything before the first frame is sent: nothing may fail between two frames.
            payloads = [_frame_of(message.payload) for message in messages if isinstance(message, Detached)]
            size_bytes += sum(map(len, payloads))
        send, begun = self._send, False
        try:
            if self._routed:
                send(route, _MORE)
                begun = True
            if not payloads:
                send(batch, _NOBLOCK)
                return size_bytes
            send(batch, _MORE)
            begun = True
            for payload in payloads[:-1]:
                send(payload, _MORE)
            send(payloads[-1], _NOBLOCK)
        except BaseException as error:
            # libzmq refuses the first frame of a message or none; a signal handler can raise after any of them.
            # A message of one frame is either sent or not.
            if begun or ((self._routed or payloads) and not isinstance(error, zmq.ZMQError)):
                self._torn = 1 + len(payloads)
                self._complete_partial_send()
            raise
        return size_bytes

    def _complete_partial_send(self) -> None:
        """Complete a partly sent message with so many frames that the peer refuses all of it."""
        try:
            for more in range(self._torn, -1, -1):
                self._send(b"", _MORE if more else _NOBLOCK)
        except zmq.ZMQError:
            pass  # the connection has gone, and what was sent of the message with it
        self._torn = 0

    def close(self, linger_seconds: float = 0.0) -> None:
        """Close; queued messages have ``linger_seconds`` to leave."""
        self._polled = None  # a closed socket would be taken for file descriptor 0
        if not self.socket.closed:
            self.socket.close(linger=int(linger_seconds * 1000))


def _set_bounds(socket: zmq.Socket[bytes], max_bytes: int, lost_seconds: float, handshake_seconds: float) -> None:
    """Set how much ``socket`` may hold and how long its peers may be silent. See :class:`BatchSocket`."""
    socket.linger = 0
    socket.sndhwm = _HIGH_WATER
    # Unbounded: where libzmq has stopped reading a connection at its high-water mark and the peer goes, its next
    # heartbeat aborts the whole process (libzmq 4.3.5, "Assertion failed: !_io_error").
    socket.rcvhwm = 0
    # A batch of small messages can be a little larger than the largest single message.
    socket.maxmsgsize = max_bytes + (16 << 20)
    socket.handshake_ivl = int(handshake_seconds * 1000)
    socket.heartbeat_ivl = int(lost_seconds * 1000 / 4)
    socket.heartbeat_timeout = int(lost_seconds * 1000)


def _frame_of(payload: bytes | memoryview) -> zmq.Frame:
    """``payload`` as a frame that libzmq owns.

    Not pyzmq's ``copy=False``, which shares the sender's memory: it has a thread that lets go of what was sent, started
    by the first message of 64 KiB. In a monkey-patched process that thread is a greenlet, and the hub cannot wait for
    its start. To copy costs a sender 10 us for 64 KiB and 0.25 ms for 1 MiB. Who passes on what it has received, such
    as a router, copies nothing.
    """
    received: Any = payload.obj if isinstance(payload, memoryview) else None
    if isinstance(received, zmq.Frame) and len(received) == len(payload):
        return received
    return zmq.Frame(payload, copy=True)


def flush_session(socket: BatchSocket, session: Session, route: bytes) -> None:
    """Send what ``session`` has queued: its first messages, the outbox as far as it may be sent now, its last messages.

    The outbox leaves as batches.

    Raises:
        zmq.ZMQError: as :meth:`BatchSocket.send`; what was not sent stays queued.
        Exception: as :meth:`BatchSocket.send`; the batch counts as sent until a resumption tells what has arrived.
    """
    while session.first_messages:
        socket.send(route, session.first_messages[:1])
        del session.first_messages[0]
    while session.may_send:
        messages = session.batch()
        try:
            session.batch_was_sent(socket.send(route, messages, session.has_detached))
        except zmq.ZMQError:
            raise
        except BaseException:
            session.sending_was_interrupted()
            raise
    while session.last_messages:
        socket.send(route, session.last_messages[:1])
        del session.last_messages[0]
