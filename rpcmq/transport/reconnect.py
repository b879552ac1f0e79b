"""Opens and closes a process's socket to a router as the :mod:`dialer <rpcmq.core.process.dialer>` decides.

The dialer has the policy; the events of the socket, and what the router answers, are reported to it from here.
"""

from __future__ import annotations

import logging
from random import random
from time import monotonic
from typing import Protocol

import zmq

from rpcmq.core.process.dialer import Dialer, Phase, Step
from rpcmq.core.process.uplink import Uplink
from rpcmq.transport.dialed_socket import DialedSocket
from rpcmq.transport.handshake_errors import connection_error, is_about_keys
from rpcmq.transport.router_status import RouterStatus
from rpcmq.transport.watch import LOST_EVENTS

__all__ = ["Reconnector"]

log = logging.getLogger("rpcmq.client")

_LOST = "the connection was lost"


class Loop(Protocol):
    """The wake-ups of the connection, as far as the socket causes them."""

    def wake(self) -> None:
        """Receive what there is."""

    def schedule(self) -> None:
        """Wake up soon."""

    def receive_rest(self) -> None:
        """Receive everything that came on a connection that has broken."""


class Reconnector:
    """Keeps ``dialed`` connected to a router.

    Args:
        uplink: the engine of the link.
        dialer: decides when to connect and when to give up.
        status: told what those who wait for the router must know.
        dialed: the socket.

    Attributes:
        reconnects: how often a connection has ended on which the router had welcomed us.
    """

    __slots__ = ("_dialed", "_dialer", "_loop", "_status", "_uplink", "reconnects")

    _loop: Loop

    def __init__(
        self,
        uplink: Uplink,
        dialer: Dialer,
        status: RouterStatus,
        dialed: DialedSocket,
    ) -> None:
        self._uplink = uplink
        self._dialer = dialer
        self._status = status
        self._dialed = dialed
        self.reconnects = 0

    def attach(self, loop: Loop) -> None:
        """Have ``loop`` woken by the socket. To be called once, before :meth:`start`."""
        self._loop = loop

    def start(self) -> None:
        """Begin to connect."""
        self._dialer.start(monotonic())
        self._step()

    def tick(self, now: float) -> None:
        """Do what is due."""
        self._status.note_silence(now)
        self._step()

    def next_deadline(self) -> float | None:
        """The time of the next :meth:`tick` (monotonic seconds); None if nothing is due."""
        return self._dialer.next_deadline()

    def _step(self) -> None:
        was_ready, url = self._uplink.ready, self._dialer.url
        step = self._dialer.tick(monotonic(), random())
        if step is Step.HANG_UP:
            if was_ready:
                log.warning("%s: %s; connecting anew", url, self._dialer.problem)
            self._status.note_handshake(url, is_about_keys=False)
            self._hang_up(was_ready)
        elif step is Step.DIAL:
            try:
                self._open()
            except Exception as error:  # an url that libzmq does not take, or no file descriptor left
                self.end(f"cannot connect to it: {error}")

    def _open(self) -> None:
        uplink = self._uplink
        self._dialed.open(
            self._dialer.url,
            uplink.max_message_bytes,
            uplink.lost_seconds,
            self._connection_event,
            self._loop.wake,
            self.end,
            uplink.moves.server_key(self._dialer.url),
        )
        self._loop.schedule()

    def _connection_event(self, event: int, value: int) -> None:
        phase, url = self._dialer.phase, self._dialer.url
        if event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
            self._dialer.greeted(monotonic())
            self._loop.schedule()
        elif event == zmq.EVENT_CONNECTED:
            self._dialed.host_is_reached()
            self._dialer.reached(monotonic())
        elif event in LOST_EVENTS and phase is not Phase.STOPPED:
            error = connection_error(event, value, url, phase, self._dialed.has_keys)
            self._status.note_handshake(url, is_about_keys(event, phase))
            self.lost(_LOST if self._uplink.ready else error)
            if event == zmq.EVENT_HANDSHAKE_FAILED_AUTH:
                self._status.deny(url, error)

    def lost(self, problem: str = _LOST) -> None:
        """Handle the loss of the connection, on which messages may still wait to be received.

        They are handled first; the answers to them go to the next connection.
        """
        if self._dialed.socket is not None and self._uplink.ready:
            self._loop.receive_rest()
        self.end(problem)

    def end(self, problem: str) -> None:
        """Close the connection, or stop the attempt to make one, because of ``problem``."""
        self._hang_up(self._dialer.ended(monotonic(), random(), problem))

    def _hang_up(self, was_ready: bool) -> None:
        self.reconnects += was_ready
        self._status.ready.clear()
        self._dialed.close()
        self._loop.schedule()

    def welcomed(self) -> None:
        """Handle WELCOME."""
        self._status.welcomed()
        self._dialer.welcomed(monotonic())

    def refused(self, reason: str, text: str) -> None:
        """Handle REFUSED: ``reason`` in a word, and ``text`` for people."""
        was_ready, url = self._uplink.ready, self._dialer.url
        self._status.refused(reason, text)
        if self._dialer.refused(monotonic(), random(), reason, text) is Step.HANG_UP:
            self._hang_up(was_ready)
            if self._dialer.identity_taken:
                self._status.ready.set()  # those who wait are told
        self._status.note_handshake(url, reason == "key")
        if reason == "key":
            self._status.deny(url, text)
