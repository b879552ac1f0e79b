"""Clients and echo servers on bare DEALER sockets, for a router and for libzmq's proxy.

Both sides are written with the same care, by the same low-level calls. To the router they speak its
protocol: they block for one batch and send what it calls for as a batch. The proxy knows no batches,
only one ZeroMQ message for each message: its client blocks for one, takes what else is there, and
sends as many.

Most programs use pyzmq's own ``send_multipart`` and ``recv_multipart``, which cost several times the
calls underneath; ``plain`` gives the proxy's peers these, for comparison.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable
from time import monotonic, perf_counter, sleep
from typing import Any, NoReturn

import zmq

from benchmarks.children import commands, say
from benchmarks.workload import ARGUMENTS, CONTEXT, METHOD, Meter
from rpcmq.core.common.session import ACK_MESSAGES
from rpcmq.wire import KEY, KIND_AT, Address, Kind, body_of, control, pack, split

__all__ = ["batch_client", "batch_echo", "proxy", "proxy_client", "proxy_echo"]

_NOBLOCK = int(zmq.NOBLOCK)
_MORE = int(zmq.SNDMORE)
_REQUEST, _REPLY = int(Kind.REQUEST), int(Kind.REPLY)
_LINK_KINDS = 0x10
#: After so long without a message a peer of the router gives a sign of life (milliseconds).
_IDLE_MS = 3000
_PAYLOAD = pickle.dumps((CONTEXT, {"method": METHOD, "args": ARGUMENTS}), protocol=5)
_ADDRESS = Address("compute").encode()


class _Dealer:
    """A DEALER without the Python layer of pyzmq, which costs more than the calls themselves."""

    def __init__(self, url: str) -> None:
        self.socket = zmq.Context().socket(zmq.DEALER)
        self.socket.rcvtimeo = _IDLE_MS
        self.socket.connect(url)
        backend: Any = super(zmq.Socket, self.socket)
        self.send: Callable[[bytes, int], None] = backend.send
        self.recv: Callable[[int], bytes] = backend.recv


def _drive(send: Callable[[int], None], receive: Callable[[int], int]) -> None:
    """For each command, keep ``width`` calls outstanding for ``seconds`` and say how that went.

    With ``pause``, wait for so many seconds before new ones are sent.

    Args:
        send: sends so many requests.
        receive: waits for answers, of which so many are outstanding, and returns how many came.
    """
    say("ready")
    while True:
        command = commands().get()
        width, pause = command["width"], command.get("pause", 0.0)
        meter = Meter(command["seconds"])
        # When how many were sent, and when how many came back: looked at when it is over, because to
        # do so for each message would slow down those more who send one at a time.
        sent = [(perf_counter(), width)]
        back = []
        send(width)
        outstanding = width
        while outstanding:
            came = receive(outstanding)
            now = perf_counter()
            back.append((now, came))
            if pause:
                sleep(pause)
                now = perf_counter()
            if now < meter.end:
                sent.append((now, came))
                send(came)
            else:
                outstanding -= came
        _count(meter, sent, back)
        say(meter.result())


def _count(meter: Meter, sent: Iterable[tuple[float, int]], back: Iterable[tuple[float, int]]) -> None:
    """Everything comes back in the order in which it was sent."""
    departures = iter(sent)
    departed, there = 0.0, 0
    for returned, left in back:
        while left:
            if not there:
                departed, there = next(departures)
            calls = min(left, there)
            meter.count(departed, returned, calls)
            left -= calls
            there -= calls


# --- through the proxy ---------------------------------------------------------------------------


def proxy() -> None:
    """A proxy of libzmq's own, from ROUTER to DEALER."""
    context = zmq.Context()
    sockets = [context.socket(kind) for kind in (zmq.ROUTER, zmq.DEALER)]
    say([f"tcp://127.0.0.1:{socket.bind_to_random_port('tcp://127.0.0.1')}" for socket in sockets])
    zmq.proxy(*sockets)


def proxy_client(url: str, plain: bool) -> None:
    """Calls through the proxy."""
    dealer = _Dealer(url)
    put, get = (dealer.socket.send, dealer.socket.recv_multipart) if plain else (dealer.send, dealer.recv)

    def send(number: int) -> None:
        for _ in range(number):
            put(_PAYLOAD, _NOBLOCK)

    def receive(outstanding: int) -> int:
        get(0)
        number = 1
        try:
            while number < outstanding:
                get(_NOBLOCK)
                number += 1
        except zmq.Again:
            pass
        return number

    _drive(send, receive)


def proxy_echo(url: str, plain: bool) -> None:
    """Sends everything back through the proxy: the frame with the way back, and the payload."""
    dealer = _Dealer(url)
    if plain:
        _plain_echo(dealer.socket)
    put, get = dealer.send, dealer.recv
    more = _MORE | _NOBLOCK
    say("ready")
    while True:
        try:
            way_back = get(0)
            while True:
                payload = get(0)
                put(way_back, more)
                put(payload, _NOBLOCK)
                way_back = get(_NOBLOCK)
        except zmq.Again:
            pass


def _plain_echo(socket: zmq.Socket[bytes]) -> NoReturn:
    say("ready")
    while True:
        try:
            frames = socket.recv_multipart()
            while True:
                socket.send_multipart(frames)
                frames = socket.recv_multipart(_NOBLOCK)
        except zmq.Again:
            pass


# --- through the router --------------------------------------------------------------------------


class _Link:
    """The least that a process must do on its link: HELLO, count, acknowledge, be heard of."""

    def __init__(self, url: str, identity: str) -> None:
        self._dealer = _Dealer(url)
        self._put, self._get = self._dealer.send, self._dealer.recv
        self._received = self._acknowledged = 0
        hello = {"identity": identity, "queue_type": "roundrobin", "versions": [1], "accepts": ["json", "pickle"]}
        self._put(control(Kind.HELLO, hello), 0)
        welcome = body_of(self._get(0))
        if "handle" not in welcome:
            raise RuntimeError(f"the router does not welcome {identity}: {welcome}")
        #: Whether the router wants to know when answers are sent.
        self.stamps: bool = welcome.get("stamps", False)
        self.origin: bytes = welcome["router_id"].to_bytes(4) + welcome["handle"].to_bytes(8)

    def send(self, batch: bytes) -> None:
        self._put(batch, _NOBLOCK)

    def receive(self) -> list[bytes]:
        """Wait for a batch; none if the time is up, or it is about the link itself."""
        try:
            messages = split(self._get(0))
        except zmq.Again:
            self._put(pack(Kind.HEARTBEAT, sequence=self._received), _NOBLOCK)
            return []
        if messages[0][KIND_AT] < _LINK_KINDS:
            return []
        self._received += len(messages)
        if self._received - self._acknowledged >= ACK_MESSAGES:
            self._acknowledged = self._received
            self._put(pack(Kind.ACK, sequence=self._received), _NOBLOCK)
        return messages


def batch_client(url: str) -> None:
    """Calls through the router."""
    link = _Link(url, "raw-client")
    key = link.origin + bytes(8)
    template = pack(Kind.REQUEST, _PAYLOAD, format=2, ttl=60_000, key=key, address=_ADDRESS, method=METHOD.encode())
    before, after = template[:28], template[36:]
    sequence = 0

    def send(number: int) -> None:
        nonlocal sequence
        first = sequence + 1
        sequence += number
        link.send(b"".join([before + i.to_bytes(8) + after for i in range(first, sequence + 1)]))

    def receive(outstanding: int) -> int:
        messages: list[bytes] = []
        while not messages:
            messages = link.receive()
        if {message[KIND_AT] for message in messages} != {_REPLY}:
            raise RuntimeError(f"something else than replies: {messages}")
        return len(messages)

    _drive(send, receive)


def batch_echo(url: str) -> None:
    """Answers every call with its own payload."""
    link = _Link(url, "raw-echo")
    link.send(control(Kind.REGISTER, {"credit": 1000}, key=link.origin + (1).to_bytes(8), address=_ADDRESS))
    registered = link.receive()
    if [message[KIND_AT] for message in registered] != [int(Kind.REGISTERED)]:
        raise RuntimeError(f"not registered: {registered}")
    length = 40 + len(_PAYLOAD)
    start = pack(Kind.REPLY, _PAYLOAD, format=2)[:16]
    skipped = 40 + len(_ADDRESS) + len(METHOD)
    lengths = bytes(4)
    say("ready")
    while True:
        answers = [
            start + message[KEY] + lengths + message[skipped:]
            for message in link.receive()
            if message[KIND_AT] == _REQUEST
        ]
        if answers:
            assert len(answers[0]) == length
            if link.stamps:
                answers.insert(0, pack(Kind.CLOCK_STAMP, sequence=int(monotonic() * 1e6)))
            link.send(b"".join(answers))
