"""Decide who may finish a CURVE handshake: libzmq's authentication requests (ZAP, RFC 27) in the loop of a shell.

libzmq asks the socket ``inproc://zeromq.zap.01`` of its context about each handshake, and takes
everybody where there is none. pyzmq's own handlers want a thread or asyncio.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from time import monotonic
from typing import Any, NamedTuple

import zmq
from zmq.utils import z85

from rpcmq.transport.forks import abandon_after_fork
from rpcmq.transport.shell import Handle, Shell

__all__ = ["Decide", "ZapHandler"]

log = logging.getLogger("rpcmq.security")

_ENDPOINT = "inproc://zeromq.zap.01"
#: An edge of the socket's file descriptor could be missed, as with any socket of ZeroMQ (seconds).
_LOOK = 0.2
#: Retry interval of deferred requests (seconds), and the most of them.
_AGAIN = 0.02
_MOST_PUT_OFF = 1000
#: Requests answered before the loop gets its turn again.
_MOST_AT_ONCE = 256

#: Whether the public key (Z85) at the address may connect: empty if so, else why not.
Decide = Callable[[str, str], str]


class _Request(NamedTuple):
    route: bytes
    number: bytes
    domain: str
    key: str
    address: str
    until: float


class ZapHandler:
    """Answers for the domains that are registered; denies everything else.

    Args:
        context: whose sockets it answers for. There can be one handler in each context.
        shell: the loop that it lives in.
    """

    def __init__(self, context: zmq.Context[Any], shell: Shell) -> None:
        self._socket = context.socket(zmq.ROUTER)
        self._socket.linger = 0
        self._socket.bind(_ENDPOINT)
        self._domains: dict[str, tuple[Decide, float]] = {}
        self._defer: deque[_Request] = deque()
        self._closed = False
        #: Malformed requests, and requests of unknown domains.
        self.malformed = 0
        #: Requests refused because deciding about them raised an exception.
        self.failed = 0
        self._shell = shell
        self._io = shell.call_when_readable(int(self._socket.fd), self._read)
        self._timer = shell.call_every(_LOOK, self._read)
        self._again: Handle | None = None
        abandon_after_fork(self, shell)
        self._read()

    def register(self, domain: str, decide: Decide, patience: float = 0.0) -> None:
        """Let ``decide`` say who may connect to sockets of ``domain``.

        Args:
            patience: for how long (seconds) a no may still become a yes: a key that is just being announced.
        """
        self._domains[domain] = decide, patience

    def unregister(self, domain: str) -> bool:
        """Unregister ``domain``, denying everybody; return whether it was the last one."""
        self._domains.pop(domain, None)
        return not self._domains

    def _read(self) -> None:
        socket = self._socket
        for _ in range(_MOST_AT_ONCE):
            if self._closed or not int(socket.get(zmq.EVENTS)) & zmq.POLLIN:
                return
            self._handle(socket.recv_multipart(zmq.NOBLOCK))
        # A flood of unknown peers must not delay known ones.
        self._shell.call_soon(self._read)

    def _handle(self, frames: list[bytes]) -> None:
        try:
            self._parse_request(frames)
        except Exception:
            # An internal error must admit nobody, and must not stop later handshakes.
            self.failed += 1
            log.exception("cannot decide about a handshake; it is refused")
            if len(frames) > 3:
                self._answer(frames[0], frames[3], "", "internal error")

    def _parse_request(self, frames: list[bytes]) -> None:
        # route, delimiter, version, request number, domain, address, routing id, mechanism, credentials
        if len(frames) < 8:
            self.malformed += 1
            return
        route, _, version, number, domain, address, _, mechanism, *credentials = frames
        if version != b"1.0" or mechanism != b"CURVE" or len(credentials) != 1 or len(credentials[0]) != 32:
            self.malformed += 1
            self._answer(route, number, "", "only CURVE is accepted")
            return
        key = z85.encode(credentials[0]).decode()
        found = self._domains.get(domain.decode(errors="replace"))
        patience = found[1] if found is not None else 0.0
        until = monotonic() + patience
        request = _Request(route, number, domain.decode(errors="replace"), key, address.decode(errors="replace"), until)
        if not self._decide(request, bool(patience) and len(self._defer) < _MOST_PUT_OFF):
            self._defer.append(request)
            if self._again is None:
                self._again = self._shell.call_every(_AGAIN, self._try_again)

    def _decide(self, request: _Request, may_wait: bool) -> bool:
        found = self._domains.get(request.domain)
        if found is None:
            self.malformed += 1
            problem = "unknown domain"
        else:
            problem = found[0](request.key, request.address)
        if problem and may_wait and monotonic() < request.until:
            return False
        self._answer(request.route, request.number, "" if problem else request.key, problem)
        return True

    def _try_again(self) -> None:
        for _ in range(len(self._defer)):
            request = self._defer.popleft()
            try:
                if not self._decide(request, True):
                    self._defer.append(request)
            except Exception:
                self.failed += 1
                log.exception("cannot decide about a handshake; it is refused")
                self._answer(request.route, request.number, "", "internal error")
        if not self._defer and self._again is not None:
            self._again.stop()
            self._again.close()
            self._again = None

    def _answer(self, route: bytes, number: bytes, user: str, problem: str) -> None:
        status, text = (b"400", problem.encode()) if problem else (b"200", b"OK")
        try:
            self._socket.send_multipart(
                [route, b"", b"1.0", number, status, text[:255], user.encode(), b""], zmq.NOBLOCK
            )
        except zmq.ZMQError:
            pass  # the handshake that asked is gone
        # Sending consumes the edge of requests that came meanwhile.
        if not self._closed and int(self._socket.get(zmq.EVENTS)) & zmq.POLLIN:
            self._shell.call_soon(self._read)

    def close(self) -> None:
        """Stop answering. Sockets of this context then accept anybody: close them before."""
        if self._closed:
            return
        self._stop()
        self._socket.close(linger=0)

    def abandon(self, loop_runs: bool) -> None:
        """After a fork, in the child: the socket is the parent's."""
        self._closed = True
        if loop_runs:
            self._stop()

    def _stop(self) -> None:
        self._closed = True
        for handle in (self._io, self._timer, self._again):
            if handle is not None:
                handle.stop()
                handle.close()
