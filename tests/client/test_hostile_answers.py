"""A service that answers as it likes, and a publisher that publishes what it likes: those who are told go on."""

from __future__ import annotations

import json
import logging
import struct
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from random import Random
from typing import Any

import gevent
import pytest
import zmq

from rpcmq import Client
from rpcmq.errors import CallError, PayloadRefused, RemoteError
from rpcmq.testing import eventually
from rpcmq.transport.batches import BatchSocket, new_context
from rpcmq.wire import Address, Flag, Kind, body_of, control, key_of, pack, split
from tests.client.endpoints import Compute
from tests.client.endpoints import message as message_of
from tests.payload.hostile import P5, RUNS_CODE

EVIL = Address("evil").encode()


class Raw:
    """A process that says what it is told to."""

    def __init__(self, url: str, context: zmq.Context[Any], name: str, queue_type: str = "roundrobin") -> None:
        self.socket = BatchSocket(context, zmq.DEALER, max_bytes=1 << 26)
        self.socket.socket.connect(url)
        self.answer: Callable[[bytes], list[bytes]] = lambda message: []
        hello = {"identity": name, "queue_type": queue_type, "versions": [1], "accepts": ["json", "pickle"]}
        self.say(control(Kind.HELLO, hello))
        welcome = body_of(self.hear()[0])
        self.origin = struct.pack(">IQ", welcome["router_id"], welcome["handle"])
        self._sequence = 0
        self._greenlet = gevent.spawn(self._run)

    def say(self, *messages: bytes) -> None:
        self.socket.send(b"", messages)

    def hear(self) -> list[bytes]:
        with gevent.Timeout(30):
            while not self.socket.readable():
                gevent.sleep(0.001)
        _, batch, payloads = self.socket.receive()
        return split(batch, payloads)

    def key(self) -> bytes:
        self._sequence += 1
        return self.origin + self._sequence.to_bytes(8)

    def _run(self) -> None:
        while True:
            if not self.socket.readable():
                gevent.sleep(0.002)
                continue
            _, batch, payloads = self.socket.receive()
            for message in split(batch, payloads):
                if message[5] == Kind.REQUEST:
                    for said in self.answer(message):
                        self.say(said)

    def close(self) -> None:
        self._greenlet.kill()
        self.socket.close()


@pytest.fixture
def raw(router: Any) -> Iterator[Callable[..., Raw]]:
    with ExitStack() as stack:
        context = new_context()
        stack.callback(context.destroy, linger=0)

        def make(name: str, queue_type: str = "roundrobin") -> Raw:
            made = Raw(router.url, context, name, queue_type)
            stack.callback(made.close)
            return made

        yield make


@pytest.fixture
def evil(raw: Callable[..., Raw]) -> Raw:
    made = raw("evil")
    made.say(control(Kind.REGISTER, {"credit": 1000}, key=made.key(), consumer=0, address=EVIL))
    return made


def about(request: bytes, kind: int, payload: bytes = b"", format: int = 1, **fields: Any) -> bytes:
    return pack(kind, payload, format=format, key=key_of(request), attempt=request[9], consumer=request[11], **fields)


def deep(levels: int, opening: str = "[", closing: str = "]") -> bytes:
    return (opening * levels + closing * levels).encode()


SHARED = P5 + b"]\x94" + b"".join(b"]\x94(h%ch%ce" % (n, n) for n in range(60)) + b"."
PAYLOADS: dict[str, tuple[int, bytes]] = {
    "empty json": (1, b""),
    "empty pickle": (2, b""),
    "no json": (1, b"\xff\xfe\x00nonsense"),
    "truncated pickle": (2, P5 + b"]\x94(K"),
    "deep json": (1, deep(10_000)),
    "very deep json": (1, deep(1_000_000)),
    "deep objects": (1, b'{"a":' * 3000 + b"1" + b"}" * 3000),
    "deep tagged": (1, b'{"$":"tuple","v":[' * 2000 + b"]}" * 2000),
    "deep pickle": (2, P5 + b"]" * 100_000 + b"a" * 99_999 + b"."),
    "shared lists": (2, SHARED),
    "no frame": (2, P5 + b"\x95" + b"\xff" * 8 + b"."),
    "a string of 2**62 bytes": (2, P5 + b"\x8d" + (1 << 62).to_bytes(8, "little") + b"x."),
    "bytes of 2**62 bytes": (2, P5 + b"\x8e" + (1 << 62).to_bytes(8, "little") + b"x."),
    "a bytearray of 2**62 bytes": (2, P5 + b"\x96" + (1 << 62).to_bytes(8, "little") + b"x."),
    "a long of 2**31 bytes": (2, P5 + b"\x8b" + (2**31 - 1).to_bytes(4, "little") + b"x."),
    "memo 2**32": (2, P5 + b"K\x01r\xff\xff\xff\xff."),
    "a long integer": (1, b"9" * 1_000_000),
    "a long tagged integer": (1, b'{"$":"int","v":"' + b"f" * 1_000_000 + b'"}'),
    "a large exponent": (1, b'{"$":"decimal","v":"1E+999999999"}'),
    "an overflowing float": (1, b"1e999999"),
    "an unknown tag": (1, b'{"$":"os.system","v":"x"}'),
    "a member twice": (1, b'{"a":1,"a":2}'),
    "a lone surrogate": (1, b'"\\ud800"'),
    "no bytes": (1, b'{"$":"bytes","v":"*"}'),
    "an impossible date": (1, b'{"$":"datetime","v":"9999-99-99T99:99:99"}'),
    "format 0": (0, b"1"),
    "format 4": (4, b"1"),
    "format 7": (7, b"1"),
    "format 255": (255, b"1"),
    "dill": (3, P5 + b"K\x01."),
    **{f"pickle: {name}": (2, pickle) for name, pickle in list(RUNS_CODE.items())[::6]},
}
KINDS = {"reply": Kind.REPLY, "fault": Kind.FAULT, "item": Kind.ITEM, "progress": Kind.ALIVE, "end": Kind.END}


def ended(action: Callable[[], Any]) -> BaseException | None:
    """Run ``action``, which must end soon; return its exception, which must be printable in a bounded space."""
    with gevent.Timeout(30):
        try:
            action()
        except (CallError, RemoteError, PayloadRefused) as error:
            assert len(str(error)) < 10_000 and len(repr(error)) < 20_000
            return error
        except Exception as error:  # what a FAULT was rebuilt to
            assert len(str(error)) < 1_100_000
            return error
    return None


@pytest.mark.parametrize("kind", KINDS)
def test_no_answer_hangs_or_breaks_its_caller(evil: Raw, client: Client, serve: Any, kind: str) -> None:
    serve(Compute())
    client.connect(5)
    for name, (form, payload) in PAYLOADS.items():
        message = KINDS[kind]

        def answer(request: bytes, form: int = form, payload: bytes = payload, message: Kind = message) -> list[bytes]:
            said = [about(request, message, payload, form)]
            if message in (Kind.ITEM, Kind.ALIVE):
                said.append(about(request, Kind.END if message == Kind.ITEM else Kind.REPLY, b"null", 1))
            return said

        evil.answer = answer
        if message == Kind.ITEM:
            ended(lambda: list(client.multicall(None, "evil", message_of("run"), timeout=5)))
        else:
            ended(lambda: client.call(None, "evil", message_of("run"), timeout=5, on_progress=lambda value: None))
        assert client.call(None, "compute", message_of("add", a=1), timeout=5) == 1, name
    process = client.process
    assert not process.calls.open and not process.uplink.discarded


def test_random_answers(evil: Raw, client: Client, serve: Any) -> None:
    rng = Random(5)
    serve(Compute())
    client.connect(5)
    flags = (0, 0, 0, Flag.SEALED, Flag.STREAM, Flag.FANOUT, 0xFFFE, Flag.SEALED | Flag.IDEMPOTENT)

    def answer(request: bytes) -> list[bytes]:
        said = []
        for _ in range(rng.randrange(1, 6)):
            kind = rng.choice(list(KINDS.values()))
            payload = rng.choice([rng.randbytes(rng.randrange(60)), rng.choice(list(PAYLOADS.values()))[1]])
            message = about(
                request, kind, payload, rng.randrange(5), flags=rng.choice(flags), ttl=rng.randrange(1 << 32)
            )
            said.append(message)
        # It ends, at the latest with this.
        return [*said, about(request, Kind.REPLY, b"1")]

    evil.answer = answer
    for number in range(150):
        if number % 3:
            ended(lambda: client.call(None, "evil", message_of("run"), timeout=5, on_progress=lambda value: None))
        else:
            ended(lambda: list(client.multicall(None, "evil", message_of("run"), timeout=5)))
    assert client.call(None, "compute", message_of("add", a=1), timeout=5) == 1
    assert not client.process.calls.open


def test_progress_that_is_not_decoded_does_not_say_that_nothing_has_run(evil: Raw, client: Client) -> None:
    evil.answer = lambda request: [about(request, Kind.ALIVE, RUNS_CODE["os.system"], 2)]
    with pytest.raises(RemoteError, match="the method runs, but its progress was not decoded"):
        client.call(None, "evil", message_of("run"), timeout=20, on_progress=lambda value: None)
    assert not client.process.calls.open


def test_items_and_progress_without_end_cost_a_caller_little(evil: Raw, client: Client, serve: Any) -> None:
    serve(Compute())

    def answer(request: bytes) -> list[bytes]:
        alive = about(request, Kind.ALIVE, b"1")
        return [*[alive] * 5000, *[about(request, Kind.ITEM, b"1")] * 100]

    evil.answer = answer
    error = ended(lambda: list(client.multicall(None, "evil", message_of("run"), timeout=5)))
    assert isinstance(error, CallError) and "more items than were granted" in str(error)
    error = ended(lambda: client.call(None, "evil", message_of("run"), timeout=5))
    assert error is not None
    assert client.call(None, "compute", message_of("add", a=1), timeout=5) == 1
    assert not client.process.calls.open


def test_hostile_events_are_counted_and_logged_at_a_bounded_rate(
    raw: Callable[..., Raw], client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[Any] = []
    client.subscribe("#", lambda ctx, topic, payload: seen.append(payload))
    mallory = raw("mallory", "pubsub")
    caplog.set_level(logging.INFO)
    topic = Address("a").encode()
    sent = 0
    for form, payload in PAYLOADS.values():
        if len(payload) < 30_000:
            for _ in range(20):
                flags = (0, Flag.SEALED)[sent % 2]
                mallory.say(pack(Kind.PUBLISH, payload, format=form, key=mallory.key(), address=topic, flags=flags))
                sent += 1
    honest = json.dumps({"context": None, "payload": "honest"}).encode()
    mallory.say(pack(Kind.PUBLISH, honest, format=1, key=mallory.key(), address=topic))
    eventually(lambda: "honest" in seen, 20)
    assert seen == ["honest"]
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) < 60 and max(map(len, lines), default=0) < 2000, lines[:5]


def test_hostile_requests_and_casts_are_counted_and_logged_at_a_bounded_rate(
    raw: Callable[..., Raw], client: Client, serve: Any, caplog: pytest.LogCaptureFixture
) -> None:
    compute = Compute()
    serve(compute)
    mallory = raw("mallory")
    caplog.set_level(logging.INFO)
    address = Address("compute").encode()
    for kind in (Kind.REQUEST, Kind.CAST):
        for form, payload in PAYLOADS.values():
            if 0 < form < 4 and len(payload) < 30_000:
                messages = [
                    pack(kind, payload, format=form, key=mallory.key(), address=address, method=method, flags=flags)
                    for method in (b"add", b"\xff", b"", b"x" * 255, b"__class__", b"rpcmq.ping")
                    for flags in (0, Flag.SEALED, Flag.STREAM)
                ]
                mallory.say(*messages)
        assert client.call(None, "compute", message_of("add", a=1), timeout=10) == 1
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) < 120 and max(map(len, lines), default=0) < 3000, (len(lines), lines[:5])
    eventually(lambda: not client.query("calls")["calls"])
