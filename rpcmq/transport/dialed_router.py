"""One connection to another router, on a ZeroMQ socket of its own: its state, and why it ended."""

from __future__ import annotations

import gevent
import zmq

from rpcmq.core.router.actions import Dial
from rpcmq.core.router.model import Link
from rpcmq.transport.batches import BatchSocket
from rpcmq.transport.dialed_socket import DialedSocket
from rpcmq.transport.shell import Handle
from rpcmq.transport.watch import Watchdog

__all__ = ["DialedRouter"]


class DialedRouter:
    """One connection to another router, which stands or is being made."""

    __slots__ = (
        "fd", "inode", "is_ready", "link", "lookup", "patience", "problem", "route", "stands", "transport", "url",
        "watchdog",
    )  # fmt: skip

    def __init__(self, dial: Dial, transport: DialedSocket) -> None:
        self.route, self.url = dial.route, dial.url
        self.transport = transport
        #: Gives up an attempt that takes too long.
        self.patience: Handle | None = None
        #: Looks up the host's name.
        self.lookup: gevent.Greenlet[[], None] | None = None
        self.watchdog: Watchdog | None = None
        #: The connection's file descriptor, and which socket that is.
        self.fd, self.inode = -1, -1
        #: The link that it carries, or has carried last.
        self.link: Link | None = None
        #: Whether its handshake is done.
        self.stands = False
        #: Whether there may be something to be read.
        self.is_ready = False
        #: The reason of its end, while the last that has come is still being read; empty before.
        self.problem = ""

    @property
    def socket(self) -> BatchSocket | None:
        """The open socket; None while the host's name is looked up."""
        return self.transport.socket

    def why_gone(self, event: int) -> str:
        """The reason for the end of it, or of the attempt to make it, as far as libzmq says."""
        if self.stands:
            return "the connection was lost"
        if event == zmq.EVENT_CLOSED:
            return "nothing listens there"
        if event == zmq.EVENT_HANDSHAKE_FAILED_AUTH:
            return "it does not accept the key of this router: it was revoked, has expired, or was never added"
        if self.transport.has_keys:
            return "it broke off the handshake; its server_key may be another one, or it runs without CURVE"
        return "it broke off the handshake; it may require CURVE (give its server_key), or not be an rpcmq router"
