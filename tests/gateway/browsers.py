"""A WebSocket client for the tests of the gateway, as strict or as rude as a test wants it."""

from __future__ import annotations

import json
import os
import struct
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import gevent
from gevent import socket

from rpcmq.gateway.websocket import Closed, Pinged, Received, WebSocket

SECONDS = 40.0


class Browser:
    """One connection. What is not awaited of what comes waits in ``messages``."""

    def __init__(
        self, address: tuple[str, int], origin: str | None = None, path: str = "/rpcmq", host: str = "localhost",
        buffer: int = 0, more: str = "", wrap: Any = None,
    ) -> None:  # fmt: skip
        plain = socket.socket()
        if buffer:
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        plain.settimeout(SECONDS)
        plain.connect(address)
        self.socket: Any = plain if wrap is None else wrap(plain)
        lines = [f"GET {path} HTTP/1.1", f"Host: {host}", "Connection: Upgrade", "Upgrade: websocket"]
        lines += ["Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="]
        lines += [f"Origin: {origin}"] if origin is not None else []
        self.socket.sendall(("\r\n".join(lines) + "\r\n" + more + "\r\n").encode())
        head = b""
        with suppress(ConnectionResetError):
            while b"\r\n\r\n" not in head and (data := self.socket.recv(4096)):
                head += data
        self.head, _, rest = head.partition(b"\r\n\r\n")
        self.status = int(self.head.split(b" ", 2)[1]) if self.head else 0
        self._websocket = WebSocket(1 << 26, is_client=True)
        self.messages: deque[dict[str, Any]] = deque()
        self.close_code: int | None = None
        self.close_reason = ""
        self._ids = iter(range(1, 1 << 20))
        if self.status == 101:
            self._take(rest)

    def close(self) -> None:
        self.socket.close()

    def send(self, **message: Any) -> None:
        self.send_text(json.dumps(message))

    def send_all(self, messages: Iterable[dict[str, Any]]) -> None:
        """Send them in one piece."""
        self.socket.sendall(b"".join(self._websocket.text(json.dumps(message).encode()) for message in messages))

    def send_text(self, text: str) -> None:
        self.socket.sendall(self._websocket.text(text.encode()))

    def hello(self, token: str) -> dict[str, Any]:
        self.send(op="hello", version=1, token=token, client="a test")
        return self.next()

    def next(self) -> dict[str, Any]:
        """The next message; ``{}``: the connection has ended."""
        while not self.messages and self.close_code is None:
            data = self.socket.recv(65536)
            if not data:
                self.close_code = 1006
                break
            self._take(data)
        return self.messages.popleft() if self.messages else {}

    def ask(self, op: str, **members: Any) -> dict[str, Any]:
        """Send a request, and return what ends it."""
        number = next(self._ids)
        self.send(op=op, id=number, **members)
        return self.answer(number)

    def answer(self, number: int) -> dict[str, Any]:
        """The message that ends the request ``number``; others are dropped."""
        while found := self.next():
            if found.get("id") == number and found["op"] in ("result", "error", "end"):
                return found
        raise AssertionError(f"closed: {self.close_code} {self.close_reason}")

    def ended(self) -> int:
        """The code with which the connection ends; what comes before is dropped."""
        while self.next():
            pass
        assert self.close_code is not None
        return self.close_code

    def _take(self, data: bytes) -> None:
        for event in self._websocket.receive(data):
            match event:
                case Received(text):
                    self.messages.append(json.loads(text))
                case Pinged(answer):
                    if answer:
                        self.socket.sendall(answer)
                case Closed(code, _):
                    self.close_code = code


@contextmanager
def browser(address: tuple[str, int], **options: Any) -> Iterator[Browser]:
    made = Browser(address, **options)
    try:
        yield made
    finally:
        made.close()


def frame(
    opcode: int, body: bytes = b"", is_last: bool = True, is_masked: bool = True, length: int | None = None
) -> bytes:
    """A frame of a WebSocket as a client sends it, or as it should not."""
    size = len(body) if length is None else length
    mask = os.urandom(4) if is_masked else b""
    bit = 0x80 if is_masked else 0
    if size < 126:
        head = bytes([bit | size])
    elif size < 1 << 16:
        head = bytes([bit | 126]) + struct.pack("!H", size)
    else:
        head = bytes([bit | 127]) + struct.pack("!Q", size)
    masked = bytes(byte ^ mask[at & 3] for at, byte in enumerate(body)) if is_masked else body
    return bytes([(0x80 if is_last else 0) | opcode]) + head + mask + masked


def get(
    address: tuple[str, int], path: str, *headers: str, method: str = "GET", wrap: Any = None
) -> tuple[int, bytes, bytes]:
    """Status, head and body of an HTTP request."""
    with gevent.Timeout(SECONDS), socket.create_connection(address, SECONDS) as plain:
        sock = plain if wrap is None else wrap(plain)
        sock.sendall("\r\n".join([f"{method} {path} HTTP/1.1", *(headers or ("Host: localhost",)), "", ""]).encode())
        data = b""
        while piece := sock.recv(65536):
            data += piece
        if wrap is not None:
            sock.close()
    head, _, body = data.partition(b"\r\n\r\n")
    return int(head.split(b" ", 2)[1]), head, body
