"""Messages over UDP: read from all sockets in turn, kept in bounded memory, and published sender by sender."""

from __future__ import annotations

from collections.abc import Callable
from operator import itemgetter
from time import monotonic
from typing import Any

import gevent
from gevent.event import Event

from rpcmq.client.limited_log import RateLimitedLog
from rpcmq.errors import ConfigError
from rpcmq.syslog.counters import Counters
from rpcmq.syslog.datagram_sockets import DatagramSockets
from rpcmq.syslog.fair_queue import FairQueue
from rpcmq.syslog.framing import Frame
from rpcmq.syslog.settings import SyslogSettings

__all__ = ["Datagrams"]

_RECEIVE_BYTES = 64 * 1024
#: Bytes of memory that a datagram takes beside its own.
_OVERHEAD = 500
#: Datagrams of a socket, and messages that are published, after which others have their turn.
_READ_TURN, _PUBLISH_TURN = 64, 100
#: Messages that wait above which a socket's turn is shorter: what is read beyond what is published is only lost later.
_BACKLOG, _SHORT_TURN = 1000, 8
#: Datagrams of a socket that are read at once where its room was full of a sender that has just got one of its own.
_FULL_TURN = 2048
#: A sender that has this part of the bytes that are read of a socket that loses datagrams is loud.
_LOUD_PART = 1 / 4


class Datagrams:
    """Listens at ``udp.bind``.

    Args:
        publish: makes an event of a frame and its sender; waits while the router takes none.

    Raises:
        ConfigError: the address cannot be listened at.
    """

    def __init__(
        self,
        settings: SyslogSettings,
        counters: Counters,
        log: RateLimitedLog,
        publish: Callable[[Frame, Any], None],
    ) -> None:
        self._max_bytes = settings.message.max_bytes
        self._limit = settings.udp.max_waiting_bytes
        self._counters, self._log, self._publish = counters, log, publish
        self._queue: FairQueue[tuple[Frame, Any]] = FairQueue(self._limit)
        self._have_waiting = Event()
        self._all_received = False
        self._buffer = bytearray(_RECEIVE_BYTES)
        self._readers: list[Any] = []
        self._publisher: Any = None
        try:
            self._sockets = DatagramSockets(settings.udp.bind, settings.udp.kernel_bytes)
        except OSError as error:
            raise ConfigError(f"udp.bind = {settings.udp.bind!r}: cannot listen there: {error}") from error

    @property
    def address(self) -> tuple[str, int]:
        """Host and port."""
        host, port = self._sockets.all[0].getsockname()[:2]
        return host, port

    def start(self) -> None:
        """Take messages."""
        if self._sockets.problem:
            text = "a flood by UDP costs all senders messages, for they share one socket"
            self._log.warning("sockets", f"{text}: {self._sockets.problem}")
        asked, granted = self._sockets.asked_bytes, self._sockets.granted_bytes
        if granted < asked:
            where = f"each of {len(self._sockets.all)} sockets"
            self._log.warning(
                "room",
                f"the kernel keeps {granted} bytes of datagrams for {where}, and udp.kernel_bytes asks for {asked}: "
                "raise net.core.rmem_max (sysctl), or bursts are lost sooner",
            )
        self._readers = [gevent.spawn(self._receive, number) for number in range(len(self._sockets.all))]
        self._publisher = gevent.spawn(self._publish_waiting)

    def stop(self, end: float) -> int:
        """Read what the kernel has, and publish it until ``end`` (monotonic seconds).

        Returns:
            Number of messages that became no events.
        """
        gevent.killall(self._readers)
        self._read_rest()
        self._all_received = True
        self._have_waiting.set()
        self._publisher.join(max(0.0, end - monotonic()))
        self.count_drops()
        self._sockets.close()
        self._publisher.kill()
        left = len(self._queue)
        self._counters.lost += left
        return left

    def count_drops(self) -> None:
        """Count what the kernel has lost; once closed, it tells no more."""
        lost, of_loud = self._sockets.drops()
        self._counters.lost_in_kernel = max(self._counters.lost_in_kernel, lost)
        self._counters.lost_in_kernel_of_loud = max(self._counters.lost_in_kernel_of_loud, of_loud)

    def shown(self) -> dict[str, Any]:
        """Return the figures of the moment: messages that wait, and loud senders."""
        return {
            "waiting": len(self._queue),
            "waiting_bytes": self._queue.size,
            "sockets": len(self._sockets.all),
            "loud": self._sockets.loud,
        }

    def _receive(self, number: int) -> None:
        sock = self._sockets.all[number]
        drops = taken = 0
        heard: dict[str, int] = {}
        while True:
            try:
                host, size = self._read(sock)
            except OSError as error:
                self._log.warning("datagrams", f"a datagram could not be read: {error}")
                gevent.sleep(0.1)
                continue
            heard[host] = heard.get(host, 0) + size
            taken += 1
            if taken < _READ_TURN:
                if taken % _SHORT_TURN == 0 and taken > 0 and len(self._queue) > _BACKLOG:
                    gevent.sleep(0)
                continue
            taken = 0
            if self._sockets.shares(number) and (now := self._sockets.drops_of(number)) != drops:
                drops = now
                if self._set_loud_apart(heard):
                    taken = _READ_TURN - _FULL_TURN
            heard.clear()
            gevent.sleep(0)

    def _read(self, sock: Any) -> tuple[str, int]:
        """Read a datagram, keep it, and return whose it is, and the bytes of memory that it takes."""
        length, peer = sock.recvfrom_into(self._buffer)
        # Nobody else has used the buffer since: to wait is over before it is filled.
        data = bytes(memoryview(self._buffer)[: min(length, self._max_bytes)])
        host, size = peer[0], length + _OVERHEAD
        for _, loser in self._queue.put(host, (Frame(data, length, True), peer), size):
            self._counters.lost += 1
            self._counters.lost_without_room += 1
            self._log.warning(
                "lost",
                f"a datagram of {loser[0]} lost, which has the most of the {self._queue.size} bytes that wait; "
                f"udp.max_waiting_bytes = {self._limit}",
            )
        self._have_waiting.set()
        return host, size

    def _set_loud_apart(self, heard: dict[str, int]) -> bool:
        host, most = max(heard.items(), key=itemgetter(1))
        try:
            if most <= sum(heard.values()) * _LOUD_PART or not self._sockets.set_apart(host, monotonic()):
                return False
        except OSError as error:
            self._log.warning("loud", f"{host} sends faster than is read, and gets no socket of its own: {error}")
            return False
        self._log.warning("loud", f"{host} sends faster than is read, and has a socket of its own now")
        return True

    def _read_rest(self) -> None:
        """Take what the kernel has, and nothing that comes later than the first moment without any."""
        left = list(self._sockets.all)
        for each in left:
            each.settimeout(0.0)
        end = monotonic() + 1.0
        while left and monotonic() < end:
            left = [each for each in left if self._read_turn(each)]

    def _read_turn(self, sock: Any) -> bool:
        """Read some datagrams; return whether there may be more."""
        try:
            for _ in range(_READ_TURN):
                self._read(sock)
        except OSError:
            return False  # there is none
        return True

    def _publish_waiting(self) -> None:
        done = 0
        while True:
            try:
                frame, peer = self._queue.take()
            except LookupError:
                if self._all_received:
                    return
                self._have_waiting.clear()
                self._have_waiting.wait()
                continue
            self._publish(frame, peer)
            self._queue.done()
            done += 1
            if done % _PUBLISH_TURN == 0:
                gevent.sleep(0)
