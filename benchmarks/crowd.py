"""Many bare processes, topics and messages, to see what a router full of them costs.

They speak the protocol on plain DEALER sockets, many of them in one process of the machine.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from time import perf_counter, sleep
from typing import Any

import zmq

from benchmarks.children import commands, say
from benchmarks.workload import METHOD
from rpcmq.core.common.session import ACK_MESSAGES, BATCH_MESSAGES
from rpcmq.errors import Outcome
from rpcmq.wire import (
    ATTEMPT_AT,
    CONSUMER_AT,
    FIRST_SESSION_KIND,
    KEY,
    KIND_AT,
    SETTLEMENT,
    Address,
    Kind,
    body_of,
    control,
    pack,
    split,
)

__all__ = ["Process", "consumer", "idle", "sender", "topics"]

_WAIT_MS = 20_000
#: Sign of life of each process, as the router wants it (seconds), and how often some of them give theirs.
_HEARTBEAT = 5.0
_STEP = 0.05
#: As the client library has it (milliseconds).
_ZMTP_HEARTBEAT_MS = 15_000
#: Connections that are begun at once: fewer than a router has handshakes under way (`link.max_handshakes`).
_AT_ONCE = 250
_TAGS = 250
_CREDIT = 65_535
_SIZE = 200
_METHOD = METHOD.encode()
_LIFE_MS = 3_600_000
_BEAT = pack(Kind.HEARTBEAT)


def make_context(sockets: int) -> zmq.Context[Any]:
    """A context for so many sockets."""
    context: zmq.Context[Any] = zmq.Context()
    context.set(zmq.MAX_SOCKETS, sockets + 10)
    return context


class Process:
    """The least that a process must do on its link."""

    def __init__(self, context: zmq.Context[Any], url: str, identity: str) -> None:
        self._socket = context.socket(zmq.DEALER)
        self._socket.linger = 0
        self._socket.rcvhwm = 0
        self._socket.heartbeat_ivl = _ZMTP_HEARTBEAT_MS
        self._socket.rcvtimeo = self._socket.sndtimeo = _WAIT_MS
        self._socket.connect(url)
        # The Python layer of pyzmq around these would take more of the machine than the router does.
        backend: Any = super(zmq.Socket, self._socket)
        self._put: Callable[[bytes, int], None] = backend.send
        self._get: Callable[[int], bytes] = backend.recv
        self._beaten = False
        self._received = self._acknowledged = self._sequence = 0
        self.origin = b""
        body = {
            "versions": [1],
            "identity": identity,
            "queue_type": "roundrobin",
            "role": "process",
            "accepts": ["json"],
        }
        self._socket.send(control(Kind.HELLO, body))

    def welcomed(self) -> None:
        """Wait for the router's WELCOME."""
        welcome = body_of(self._socket.recv())
        if "handle" not in welcome:
            raise RuntimeError(f"not welcome: {welcome}")
        self.origin = welcome["router_id"].to_bytes(4) + welcome["handle"].to_bytes(8)

    def keys(self, number: int) -> list[bytes]:
        """Keys for so many new messages."""
        first = self._sequence + 1
        self._sequence += number
        return [self.origin + sequence.to_bytes(8) for sequence in range(first, self._sequence + 1)]

    def send(self, messages: list[bytes]) -> None:
        """Send, in batches."""
        for start in range(0, len(messages), BATCH_MESSAGES):
            self._socket.send(b"".join(messages[start : start + BATCH_MESSAGES]))

    def receive(self) -> list[bytes]:
        """Wait for messages that are not about the link; acknowledge them when that is due."""
        messages: list[bytes] = []
        while not messages:
            messages = [message for message in split(self._socket.recv()) if message[KIND_AT] >= FIRST_SESSION_KIND]
        self._received += len(messages)
        if self._received - self._acknowledged >= ACK_MESSAGES:
            self._acknowledged = self._received
            self._socket.send(pack(Kind.ACK, sequence=self._received))
        return messages

    def take(self, number: int, kind: Kind) -> list[bytes]:
        """Wait for so many messages, all of one kind."""
        messages: list[bytes] = []
        while len(messages) < number:
            messages += self.receive()
        if unexpected := [message for message in messages if message[KIND_AT] != kind]:
            raise RuntimeError(f"{unexpected[0]!r} came where {kind!r} was expected")
        return messages

    def register(self, addresses: list[bytes]) -> None:
        """Consume each of ``addresses``; their tags count from 0."""
        self.send(
            [
                control(Kind.REGISTER, {"credit": _CREDIT}, key=key, address=address, consumer=tag)
                for tag, (key, address) in enumerate(zip(self.keys(len(addresses)), addresses, strict=True))
            ]
        )
        self.take(len(addresses), Kind.REGISTERED)

    def settle(self, casts: list[bytes]) -> None:
        """Casts that came have been run."""
        by_tag: dict[int, list[bytes]] = {}
        for message in casts:
            by_tag.setdefault(message[CONSUMER_AT], []).append(
                SETTLEMENT.pack(message[KEY], message[ATTEMPT_AT], Outcome.OK, 0)
            )
        self.send([pack(Kind.SETTLE, b"".join(done), consumer=tag) for tag, done in by_tag.items()])

    def heartbeat(self) -> None:
        """Give a sign of life."""
        self._put(pack(Kind.HEARTBEAT, sequence=self._received), 0)
        self._acknowledged = self._received

    def arrived(self) -> None:
        """Wait until the router has dealt with all that was sent so far."""
        self.heartbeat()
        while split(self._socket.recv())[0][5] != Kind.HEARTBEAT:
            pass

    def beat(self) -> None:
        """Give a sign of life, and take the router's answer to the one before."""
        if self._beaten:
            self._get(0)
        self._beaten = True
        self._put(_BEAT, 0)


def _processes(url: str, number: int) -> list[Process]:
    context = make_context(number)
    made: list[Process] = []
    while len(made) < number:
        first = len(made)
        made += [Process(context, url, f"crowd-{os.getpid()}-{i}") for i in range(first, min(number, first + _AT_ONCE))]
        for process in made[first:]:
            process.welcomed()
    return made


def _live(processes: list[Process]) -> None:
    """Give signs of life while told to; a command is whether to."""
    say("ready")
    beating, place, due = False, 0, 0.0
    while True:
        sleep(_STEP)
        while not commands().empty():
            beating = commands().get()["beat"]
            say(beating)
        if not beating:
            continue
        due += len(processes) * _STEP / _HEARTBEAT
        while due >= 1:
            due -= 1
            process = processes[place]
            place = (place + 1) % len(processes)
            process.beat()


def idle(url: str, number: int) -> None:
    """Connections that do nothing but live."""
    _live(_processes(url, number))


def topics(url: str, number: int) -> None:
    """So many topics, each with a consumer, and each used once."""
    processes = _processes(url, -(-number // _TAGS))
    left = number
    for process in processes:
        addresses = [Address(f"idle.{i}", f"node-{i}").encode() for i in range(left, max(0, left - _TAGS), -1)]
        left -= len(addresses)
        process.register(addresses)
        keys = process.keys(len(addresses))
        process.send(
            [
                pack(Kind.CAST, b"{}", format=1, key=key, address=address, method=_METHOD)
                for key, address in zip(keys, addresses, strict=True)
            ]
        )
        process.settle(process.take(len(addresses), Kind.CAST))
        process.arrived()
    _live(processes)


# --- queues --------------------------------------------------------------------------------------


def _obey(action: Callable[[int], None]) -> None:
    """Do it to as many messages as each command says; say how many seconds that took."""
    say("ready")
    while True:
        command = commands().get()
        started = perf_counter()
        action(command["number"])
        say(perf_counter() - started)


def sender(url: str, topic: str, call: bool) -> None:
    """Sends calls or casts of 200 bytes, each given number of them, until the router has them."""
    (process,) = _processes(url, 1)
    address = Address(topic).encode()
    payload = bytes(_SIZE - 40 - len(address) - len(_METHOD))
    kind = Kind.REQUEST if call else Kind.CAST
    template = pack(
        kind, payload, format=1, ttl=_LIFE_MS, key=process.origin + bytes(8), address=address, method=_METHOD
    )
    before, after = template[:16], template[36:]

    def send(number: int) -> None:
        # In pieces, so that this process does not hold them all.
        while number:
            piece = min(number, 100 * BATCH_MESSAGES)
            number -= piece
            process.send([before + key + after for key in process.keys(piece)])
        process.arrived()

    _obey(send)


def consumer(url: str, topic: str, settles: bool) -> None:
    """Consumes ``topic`` from the first command on: takes each given number of messages, and settles them or not."""
    (process,) = _processes(url, 1)
    address = Address(topic).encode()
    registered = False

    def take(number: int) -> None:
        nonlocal registered
        if not registered:
            registered = True
            register = control(Kind.REGISTER, {"credit": _CREDIT}, key=process.keys(1)[0], address=address)
            process.send([register])
        while number:
            messages = [message for message in process.receive() if message[KIND_AT] != Kind.REGISTERED]
            number -= len(messages)
            if settles:
                process.settle(messages)
        process.arrived()

    _obey(take)
