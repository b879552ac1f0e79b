"""Direct links on one ZeroMQ ROUTER socket, which listens for peers and connects to them."""

from __future__ import annotations

import errno
import resource
import secrets
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from ipaddress import ip_address
from itertools import count
from time import monotonic
from urllib.parse import urlsplit

import zmq

from rpcmq.core.process.direct_links import DirectLink, DirectLinkTable
from rpcmq.errors import RouterUnreachable
from rpcmq.transport.batches import BatchSocket
from rpcmq.transport.curve import Curve
from rpcmq.transport.forks import abandon_after_fork
from rpcmq.transport.owned_sockets import break_connection, socket_inode
from rpcmq.transport.process_context import (
    close_at_exit,
    forget_at_exit,
    process_context,
    process_zap,
    release_zap,
)
from rpcmq.transport.shell import Shell
from rpcmq.transport.unidentified import UnidentifiedConnections
from rpcmq.transport.watch import ConnectionWatch, Watchdog
from rpcmq.wire import KIND_AT
from rpcmq.wire.bodies import RefusedBody

__all__ = ["PeerSocket", "local_host_towards"]

_CONTROL = 0x10
#: Most ZeroMQ messages, and rpcmq messages in them, received before other greenlets get their turn.
_ROUNDS = 64
_MESSAGES = 1000
#: Longest delay of a peer's handshake until the router announces the peer (seconds): the two race.
_PATIENCE = 0.5
_HELLO = 0x01
#: Connections that have not shown a ticket, how long they have for it (seconds), and links that others have made:
#: no more than leave this process half of the files that it may open.
_MAX_UNIDENTIFIED = 1000
_HELLO_SECONDS = 10.0
_MAX_LINKS = 4096
_numbers = count(1)


def local_host_towards(url: str) -> str:
    """The address of this host by which those behind the router at ``url`` can reach it."""
    import socket

    target = urlsplit(url)
    if target.scheme != "tcp" or not target.hostname:
        return "127.0.0.1"
    family = socket.AF_INET6 if ":" in target.hostname else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((target.hostname, target.port or 1))  # sends nothing: it only chooses a route
        except OSError:
            return "127.0.0.1"
        return str(probe.getsockname()[0])


def _is_numeric(url: str) -> bool:
    """Return whether ``url`` is one of TCP, of an IP address and a port."""
    scheme, _, place = url.partition("://")
    host, _, port = place.rpartition(":")
    try:
        ip_address(host[1:-1] if host.startswith("[") and host.endswith("]") else host)
    except ValueError:
        return False
    return scheme == "tcp" and port.isascii() and port.isdecimal() and 0 < int(port[:6]) < 1 << 16


class PeerSocket:
    """Runs ``peers`` in the loop of ``shell``.

    Args:
        host: address to listen on; the system picks the port.
        after_receive: called in the loop when something was received.
        shell: the loop that it lives in.
        curve: our keys: then only those whom the router has announced, with their keys, can connect.
        lost_seconds: a peer's host that has been silent for so long is disconnected.

    Raises:
        RouterUnreachable: the address cannot be bound.
    """

    def __init__(
        self, peers: DirectLinkTable, host: str, max_bytes: int, after_receive: Callable[[], None], shell: Shell,
        curve: Curve | None = None, lost_seconds: float = 60.0,
    ) -> None:  # fmt: skip
        self.shell = shell
        self._peers = peers
        peers.on_error = lambda error: self._failed()
        peers.on_admitted = self._admitted
        self._after_receive = after_receive
        self._curve, self._domain = curve, ""
        self._socket = BatchSocket(
            process_context(),
            zmq.ROUTER,
            max_bytes=max_bytes,
            lost_seconds=lost_seconds,
            ipv6=":" in host,
            curve=self._checking(curve) if curve is not None else None,
            shares_interpreter=shell.shares_interpreter,
        )
        self.url = self._listen(host)
        share = max(1, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 4)
        peers.max_inbound = min(_MAX_LINKS, share)
        self._unidentified = UnidentifiedConnections(min(_MAX_UNIDENTIFIED, share), _HELLO_SECONDS, self._count)
        #: Connections of inbound links: file descriptor and socket inode.
        self._inbound: dict[bytes, tuple[int, int]] = {}
        self._routes_by_fd: dict[int, bytes] = {}
        self._urls: dict[bytes, str] = {}
        self._closed = self._waking = False
        self._watch = ConnectionWatch(self._socket.socket, self._connection_event, shell)
        self._timer = shell.call_every(_HELLO_SECONDS / 10, self._end_unidentified)
        self._watchdog = Watchdog(lambda: self._socket, self._wake, shell)
        self._reader = shell.call_when_readable(self._socket.fd, self._wake)
        self._watchdog.start()
        close_at_exit(self)
        abandon_after_fork(self, shell)

    def _checking(self, curve: Curve) -> Curve:
        """``curve`` in a domain of its own, in which this object decides who may connect."""
        self._domain = f"peer-{next(_numbers)}"
        process_zap(self.shell).register(self._domain, self._decide, _PATIENCE)
        return replace(curve, domain=self._domain)

    def _listen(self, host: str) -> str:
        """Bind to a port that the system picks; return the url."""
        name = f"[{host}]" if ":" in host else host
        try:
            self._socket.socket.bind(f"tcp://{name}:0")
        except zmq.ZMQError as error:
            self._socket.close()
            self._release()
            raise RouterUnreachable(f"cannot listen for peers on {host}: {error}") from None
        return str(self._socket.socket.last_endpoint.decode())

    @property
    def lost_wakeups(self) -> int:
        """Wake-ups that only the watchdog found. Must stay 0."""
        return self._watchdog.lost

    def _decide(self, key: str, address: str) -> str:
        return "" if self._peers.is_announced(monotonic(), key) else "not announced by the router"

    def _count(self, reason: str) -> None:
        self._peers.refused[reason] += 1

    def _end_unidentified(self) -> None:
        now = monotonic()
        self._unidentified.close_expired(now)
        self._peers.refuse_unannounced(now)
        if self._peers.dirty:
            self.schedule()

    def _admitted(self, route: bytes) -> None:
        fd = next((fd for fd, known in self._routes_by_fd.items() if known == route), None)
        if fd is None:
            return
        # Its accept event may not have been read yet.
        self._watch.read()
        self._unidentified.forget(fd)
        if (socket := socket_inode(fd)) is not None:
            self._inbound[route] = fd, socket

    def _release(self) -> None:
        if self._domain:
            release_zap(self._domain)

    def connect(self, url: str, identity: str, ticket: str, key: str = "") -> DirectLink:
        """Begin a direct link.

        Args:
            key: the public key that the peer must have; with CURVE only.

        Raises:
            RouterUnreachable: the url is malformed, or one of the two has no keys.
        """
        if bool(key) != (self._curve is not None):
            raise RouterUnreachable(f"{identity} and this process do not both use CURVE")
        if not _is_numeric(url):
            # The consumer names the url: it must not name sockets of this host or process. And libzmq looks up a
            # host's name in the thread that moves the messages of all connections, for as long as that takes.
            text = (
                f"{identity} gives {url!r:.80} as its peer socket, which is no tcp:// url of an IP address and a port"
            )
            raise RouterUnreachable(text)
        if self._curve is not None:
            try:
                self._curve.towards(self._socket.socket, key)
            except (zmq.ZMQError, ValueError):
                raise RouterUnreachable(f"{identity} has no proper key: {key!r:.60}") from None
        # The name by which our own socket knows this connection. Peers name theirs themselves, and libzmq aborts
        # the process when it is given one that is in use: nobody must be able to guess it.
        route = b"peer-" + secrets.token_bytes(16)
        self._socket.socket.connect_rid = route
        self._socket.socket.reconnect_ivl = -1
        try:
            self._socket.socket.connect(url)
        except zmq.ZMQError as error:
            raise RouterUnreachable(f"cannot connect to {url}: {error}") from None
        self._urls[route] = url
        link = self._peers.connect(route, identity, ticket, key)
        self.schedule()
        return link

    def disconnect(self, link: DirectLink, reason: str) -> None:
        """End a direct link."""
        self._peers.lost(link.route, reason)
        inbound = self._inbound.pop(link.route, None)
        if inbound is not None:
            break_connection(*inbound)
        url = self._urls.pop(link.route, None)
        if url is not None:
            try:
                self._socket.socket.disconnect(url)
            except zmq.ZMQError:
                pass  # the connection had ended by itself
        self._after_receive()

    def schedule(self) -> None:
        """Flush queued messages at the end of this turn of the hub's loop."""
        if not self._waking:
            self.shell.call_soon(self._wake)

    def _wake(self) -> None:
        if self._closed or self._waking:
            return
        rounds = _ROUNDS
        try:
            self._waking = True
            self._watchdog.wakes += 1
            rounds = self._turn()
        finally:
            # Also after an exception: there may be more to receive, without another edge of the descriptor.
            self._waking = False
            if self._more(rounds):
                self.schedule()

    def _turn(self) -> int:
        socket = self._socket
        rounds = messages = 0
        while rounds < _ROUNDS and messages < _MESSAGES and socket.readable():
            rounds += 1
            try:
                messages += self._take(*socket.receive())
            except Exception:
                self._failed()
        self._after_receive()
        self._flush()
        return rounds

    def _take(self, route: bytes, batch: bytes, payloads: Sequence[bytes | memoryview]) -> int:
        user = ""
        if len(batch) > KIND_AT and batch[KIND_AT] < _CONTROL:
            fd = self._socket.last_fd()
            self._routes_by_fd[fd] = route
            # Where we are the client, the other side could say anything of its user.
            if self._curve is not None and batch[KIND_AT] == _HELLO and route not in self._urls:
                user = self._socket.last_user()
        return self._peers.receive(monotonic(), route, batch, tuple(payloads), user)

    def _failed(self) -> None:
        """Print the current exception, which ends one link at most."""
        error = sys.exception()
        if error is not None:
            self.shell.print_exception(self, error)

    def _more(self, rounds: int) -> bool:
        return not self._closed and (rounds >= _ROUNDS or self._socket.readable())

    def _flush(self) -> None:
        dirty, self._peers.dirty[:] = self._peers.dirty[:], []
        for link in dirty:
            messages, link.outbox = link.outbox, []
            try:
                self._socket.send(link.route, messages)
            except zmq.Again:
                self._peers.lost(link.route, "does not take what is sent", messages)
            except zmq.ZMQError as error:
                if error.errno != errno.EHOSTUNREACH:
                    self._failed()
                self._peers.lost(link.route, "connection lost", messages)
            except Exception as error:
                self._failed()
                self._peers.lost(link.route, f"internal error: {error}")
                self._refuse(link.route)
        if dirty:
            self._after_receive()

    def _refuse(self, route: bytes) -> None:
        """Tell the peer that its link has ended."""
        try:
            self._socket.send(route, [RefusedBody(reason="internal", text="an internal error there").message()])
        except Exception:
            self._failed()

    def _connection_event(self, event: int, value: int) -> None:
        if event == zmq.EVENT_ACCEPTED:
            self._unidentified.admit(monotonic(), value)
        elif event == zmq.EVENT_DISCONNECTED:
            self._unidentified.forget(value)
            route = self._routes_by_fd.pop(value, None)
            if route is not None:
                self._inbound.pop(route, None)
                self._peers.lost(route, "connection lost")
                self._urls.pop(route, None)
                self._after_receive()

    def close(self) -> None:
        """Close; direct calls in flight end with LinkLost."""
        if self._closed:
            return
        self._flush()
        self._closed = True
        for route in list(self._peers.links):
            self._peers.lost(route, "closed here")
        self._stop_watching()
        self._watch.close()
        self._socket.close(1.0)
        self._release()
        forget_at_exit(self)

    def close_and_wait(self) -> None:
        """Close at the end of the program: nothing may use the socket once the context has ended."""
        self.close()

    def abandon(self, loop_runs: bool) -> None:
        """After a fork, in the child: the socket is the parent's."""
        self._closed = True
        if loop_runs:
            self._stop_watching()
            self._watch.abandon()

    def _stop_watching(self) -> None:
        for watcher in (self._reader, self._timer):
            watcher.stop()
            watcher.close()
        self._watchdog.stop()
