"""The sockets at the UDP address of the front end: a flood fills those of its senders, and no others."""

from __future__ import annotations

import random
import socket
import struct
from contextlib import ExitStack
from typing import Any

from gevent.socket import socket as GeventSocket

from rpcmq.syslog.steering import attach, packed_address, steering_program

__all__ = ["DatagramSockets"]

#: Sockets that senders share by a hash of their address, and those for one loud sender each.
_HASHED, _LOUD = 56, 8
#: Time without a loss after which another loud sender may have a loud one's socket (seconds).
_QUIET_SECONDS = 60.0
_SO_MEMINFO = 55  # Linux 4.12; Python has no name for it
_MEMINFO = struct.Struct("=9I")
_DROPS = 8  # SK_MEMINFO_DROPS


class _Loud:
    """A sender with a socket of its own, which had lost so many datagrams when it last lost one."""

    def __init__(self, host: str, drops: int, now: float) -> None:
        self.host, self.drops, self.since = host, drops, now


class DatagramSockets:
    """Sockets that are bound to one address: many where the kernel can choose among them by sender, else one.

    Args:
        address: host and port, as of the settings.
        kernel_bytes: of datagrams that the kernel is asked to keep in all of them together.

    Raises:
        OSError: the address cannot be had.
    """

    def __init__(self, address: str, kernel_bytes: int) -> None:
        host, _, port = address.rpartition(":")
        found = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_DGRAM, flags=socket.AI_PASSIVE)
        self._family: int = found[0][0]
        where: Any = found[0][-1]
        self._key = random.SystemRandom().getrandbits(32) | 1
        self._loud: dict[int, _Loud] = {}
        #: The reason for which all senders share one socket; empty: they do not.
        self.problem = ""
        #: Bytes that each was asked to keep in the kernel.
        self.asked_bytes = kernel_bytes // (_HASHED + _LOUD)
        with ExitStack() as stack:
            # Nobody else has the address: only then may others share it.
            first = self._bound(stack, where)
            self.all: list[Any] = [first]
            try:
                with ExitStack() as more:
                    first.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
                    where = first.getsockname()
                    rest = [self._bound(more, where, shared=True) for _ in range(_HASHED + _LOUD - 1)]
                    attach(first, steering_program(_HASHED, {}, self._key))
                    more.pop_all()
                    self.all += rest
            except (OSError, AttributeError) as error:
                # No Linux, or one that cannot: one socket has the room of all.
                self.problem = str(error)
                self.asked_bytes = kernel_bytes
                self._size(first)
            stack.pop_all()

    @property
    def granted_bytes(self) -> int:
        """Bytes of datagrams that the kernel keeps in each: at most ``net.core.rmem_max`` of Linux."""
        # Linux shows the double, which is for its own bookkeeping.
        return int(self.all[0].getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)) // 2

    @property
    def loud(self) -> list[str]:
        """Senders that have a socket of their own."""
        return sorted(each.host for each in self._loud.values())

    def drops_of(self, number: int) -> int:
        """Return how many datagrams a socket has lost in the kernel; 0 where that cannot be known."""
        try:
            info = self.all[number].getsockopt(socket.SOL_SOCKET, _SO_MEMINFO, _MEMINFO.size)
            return int(_MEMINFO.unpack(info)[_DROPS])
        except (OSError, struct.error):
            return 0  # it is closed, or no Linux

    def drops(self) -> tuple[int, int]:
        """Return how many datagrams were lost in the kernel: of all, and those among them of loud senders' sockets."""
        each = [self.drops_of(number) for number in range(len(self.all))]
        return sum(each), sum(each[_HASHED:])

    def shares(self, number: int) -> bool:
        """Return whether many senders share the socket ``number``, and one of them could have its own."""
        return number < _HASHED < len(self.all)

    def set_apart(self, host: str, now: float) -> bool:
        """Give a sender a socket of its own; return False if it has one, or none is free.

        One whose sender has lost nothing for a minute is free.

        Raises:
            OSError: the kernel refuses; all is as it was.
        """
        if any(each.host == host for each in self._loud.values()):
            return False
        number = self._free(now)
        if number is None:
            return False
        loud = self._loud | {number: _Loud(host, self.drops_of(number), now)}
        known = {packed_address(each.host): number for number, each in loud.items()}
        attach(self.all[0], steering_program(_HASHED, known, self._key))
        self._loud = loud
        return True

    def _free(self, now: float) -> int | None:
        for number in range(_HASHED, len(self.all)):
            if number not in self._loud:
                return number
        for number, each in self._loud.items():
            if (drops := self.drops_of(number)) != each.drops:
                each.drops, each.since = drops, now
            elif now - each.since >= _QUIET_SECONDS:
                return number
        return None

    def close(self) -> None:
        """Close all."""
        for each in self.all:
            each.close()

    def _bound(self, stack: ExitStack, where: Any, shared: bool = False) -> Any:
        made = stack.enter_context(GeventSocket(self._family, socket.SOCK_DGRAM))
        self._size(made)
        if shared:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        made.bind(where)
        return made

    def _size(self, sock: Any) -> None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, max(self.asked_bytes, 1))
