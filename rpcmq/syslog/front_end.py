"""Takes messages of syslog over TCP and UDP, and publishes each as an event."""

from __future__ import annotations

import logging
import socket
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict
from time import monotonic
from typing import Any

import gevent
from gevent.pool import Pool
from gevent.server import StreamServer
from gevent.socket import socket as GeventSocket

from rpcmq.adapters.places import Places
from rpcmq.client import Client
from rpcmq.client.limited_log import RateLimitedLog
from rpcmq.errors import ConfigError, LinkLost, Overloaded, RouterUnreachable, RpcError
from rpcmq.syslog.counters import Counters
from rpcmq.syslog.datagrams import Datagrams
from rpcmq.syslog.framing import Frame, Framing, OutOfStep
from rpcmq.syslog.messages import MalformedMessage, parse_message
from rpcmq.syslog.settings import SyslogSettings
from rpcmq.syslog.topics import topic_of

__all__ = ["FrontEnd"]

_RECEIVE_BYTES = 64 * 1024
#: Messages after which others have their turn.
_TURN = 100
_SAMPLE_SECONDS = 1.0


class FrontEnd:
    """Listens as ``settings`` say, and publishes by ``client``.

    While the router takes no events, connections over TCP are not read, so that their senders wait; what comes over UDP
    is kept within ``udp.max_waiting_bytes``, and then lost by the sender that has the most, and counted.

    Raises:
        ConfigError: an address cannot be listened at.
    """

    def __init__(self, client: Client, settings: SyslogSettings) -> None:
        self._client = client
        self._settings = settings
        self._log = RateLimitedLog(logging.getLogger("rpcmq.syslog"))
        self._tcp, self._udp = Counters(), Counters()
        self._sampler: Any = None
        self._pool = Pool(settings.tcp.max_connections)
        self._connections: set[Any] = set()
        self._addresses = Places(settings.tcp.max_connections_per_address)
        self._stopped = False
        self._stream: StreamServer | None = None
        self._datagrams: Datagrams | None = None
        if settings.tcp.bind:
            self._stream = StreamServer(_listener(settings.tcp.bind), self._serve, spawn=self._pool)
        try:
            if settings.udp.bind:
                self._datagrams = Datagrams(settings, self._udp, self._log, self._publish_datagram)
        except ConfigError:
            if self._stream:
                self._stream.close()
            raise

    @property
    def addresses(self) -> dict[str, tuple[str, int]]:
        """Host and port of each transport, by its name."""
        found = {}
        if self._stream:
            found["tcp"] = self._stream.socket.getsockname()[:2]
        if self._datagrams:
            found["udp"] = self._datagrams.address
        return found

    def start(self) -> None:
        """Take messages."""
        self._client.event_link().on_refused = self._refused
        if self._stream:
            self._stream.start()
        if self._datagrams:
            self._datagrams.start()
        self._sampler = gevent.spawn(self._sample)

    def stop(self, seconds: float) -> int:
        """Take no more, and publish what has come.

        What the kernel has of a connection is read, and each connection closed.

        Args:
            seconds: that this may take.

        Returns:
            Number of messages that became no events, because the time was over.
        """
        if self._stopped:
            return 0
        self._stopped = True
        end = monotonic() + seconds
        if self._stream:
            self._stream.close()
        for connection in self._connections:
            try:
                # What has come can still be read; then it is at its end.
                connection.shutdown(socket.SHUT_RD)
            except OSError:
                pass  # its peer has closed it
        self._pool.join(max(0.0, end - monotonic()))
        without_event = self._datagrams.stop(end) if self._datagrams else 0
        before = self._tcp.lost
        self._pool.kill()
        self._sampler.kill()
        return self._tcp.lost - before + without_event

    def statistics(self) -> dict[str, Any]:
        """Counts and rates of each transport: see :class:`rpcmq.syslog.counters.Counters`."""
        now = monotonic()
        found = {"tcp": self._tcp.shown(now) | {"open": len(self._connections)}}
        if self._datagrams:
            self._datagrams.count_drops()
        found["udp"] = self._udp.shown(now) | (self._datagrams.shown() if self._datagrams else {})
        return found

    # --- TCP ---------------------------------------------------------------------------------

    def _serve(self, connection: Any, peer: tuple[str, int]) -> None:
        address = peer[0]
        if not self._addresses.take(address):
            # Nothing is read of it, so that nothing of it costs more than this.
            self._tcp.connections_refused += 1
            limit = f"tcp.max_connections_per_address = {self._addresses.most}"
            self._log.warning("address", f"a connection was refused: {address} has more than {limit}")
            return
        try:
            self._read(connection, peer)
        finally:
            self._addresses.give_back(address)

    def _read(self, connection: Any, peer: tuple[str, int]) -> None:
        self._tcp.connections += 1
        self._connections.add(connection)
        source = _shown(peer)
        framing = Framing(self._settings.message.max_bytes)
        connection.settimeout(self._settings.tcp.idle_seconds)
        try:
            while data := connection.recv(_RECEIVE_BYTES):
                self._take(framing.feed(data), source)
                # To read what is there already lets nobody else run.
                gevent.sleep(0)
            last = framing.end()
            self._take([last] if last else [], source)
        except OutOfStep as error:
            self._take(error.frames, source)
            self._tcp.out_of_step += 1
            self._log.warning("out of step", f"connection of {source} closed: {error}")
        except TimeoutError:
            self._tcp.idle += 1
        except OSError as error:
            self._log.warning("connection", f"connection of {source} lost: {error}")
        finally:
            self._connections.discard(connection)

    def _take(self, frames: Sequence[Frame], source: str) -> None:
        done = 0
        try:
            for frame in frames:
                self._publish_frame(frame, "tcp", source, self._tcp)
                done += 1
                if done % _TURN == 0:
                    gevent.sleep(0)
        except gevent.GreenletExit:
            self._tcp.lost += len(frames) - done
            raise

    # --- both --------------------------------------------------------------------------------

    def _publish_datagram(self, frame: Frame, peer: tuple[str, int]) -> None:
        self._publish_frame(frame, "udp", _shown(peer), self._udp)

    def _publish_frame(self, frame: Frame, transport: str, source: str, counters: Counters) -> None:
        origin = {"transport": transport, "peer": source}
        try:
            if frame.size > self._settings.message.max_bytes:
                counters.too_long += 1
                limit = f"message.max_bytes = {self._settings.message.max_bytes}"
                raise MalformedMessage(f"it has {frame.size} bytes, more than {limit}")
            message = parse_message(frame.data)
        except MalformedMessage as error:
            counters.malformed += 1
            self._log.warning("malformed", f"a message of {source} is malformed: {error}")
            if topic := self._settings.event.malformed_topic:
                text = frame.data.decode(errors="backslashreplace")
                self._publish(topic, {"problem": str(error), "text": text, **origin}, counters)
            return
        if self._publish(topic_of(message, self._settings.event.topic), asdict(message) | origin, counters):
            counters.messages += 1
            counters.bytes += frame.size

    def _publish(self, topic: str, payload: dict[str, Any], counters: Counters) -> bool:
        """Publish an event, however long the router takes none."""
        while True:
            try:
                self._client.publish(None, topic, payload)
            except (Overloaded, RouterUnreachable, LinkLost) as error:
                self._log.warning("waiting", f"messages wait: {error}")
                gevent.sleep(0.1)
            except RpcError as error:
                counters.lost += 1
                self._log.error("refused", f"a message became no event: {error}")
                return False
            else:
                return True

    def _refused(self, payload: Any) -> None:
        """The router has refused an event that was published, and counted, before."""
        counters = self._udp if payload["transport"] == "udp" else self._tcp
        counters.refused += 1
        if "problem" not in payload:
            counters.messages -= 1

    def _sample(self) -> None:
        while True:
            now = monotonic()
            self._tcp.rate.sample(now, self._tcp.messages)
            self._udp.rate.sample(now, self._udp.messages)
            gevent.sleep(_SAMPLE_SECONDS)


def _listener(address: str) -> Any:
    host, _, port = address.rpartition(":")
    with ExitStack() as stack:
        try:
            found = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
            family, *_, where = found[0]
            made = stack.enter_context(GeventSocket(family, socket.SOCK_STREAM))
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            made.bind(where)
            made.listen(1024)
        except OSError as error:
            raise ConfigError(f"tcp.bind = {address!r}: cannot listen there: {error}") from error
        stack.pop_all()
    return made


def _shown(peer: tuple[Any, ...]) -> str:
    return f"[{peer[0]}]:{peer[1]}" if ":" in peer[0] else f"{peer[0]}:{peer[1]}"
