"""An origin that says what a script has, and a client that hides nothing: plain HTTP/1.1 on gevent's sockets."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass, field
from email.utils import formatdate
from typing import Any

import gevent
from gevent import socket
from gevent.server import StreamServer

from tests.proxy.conformance.case import Fields, Response

SECONDS = 15.0
_DATE = re.compile(r"\{now([+-][0-9]+)\}")
_REASONS = {200: "OK", 206: "Partial Content", 304: "Not Modified", 404: "Not Found"}


@dataclass(frozen=True)
class Message:
    """A request or response as it came; names of fields in small letters."""

    first: str
    fields: list[tuple[str, str]]
    body: bytes

    @property
    def status(self) -> int:
        return int(self.first.split(" ")[1])

    def every(self, name: str) -> list[str]:
        return [value for each, value in self.fields if each == name.lower()]

    def get(self, name: str) -> str | None:
        values = self.every(name)
        return ", ".join(values) if values else None


class Broken(Exception):
    """A connection that ended before its message did."""


def filled(value: str, url: str = "") -> str:
    """Return a value with its dates and its URL."""
    now = time.time()
    return _DATE.sub(lambda found: formatdate(int(now) + int(found[1]), usegmt=True), value).replace("{url}", url)


def read_message(file: Any, *, has_body: bool = True) -> Message | None:
    """Read a message; None: the connection ends before it begins."""
    first = file.readline()
    if not first:
        return None
    fields: list[tuple[str, str]] = []
    while (line := file.readline()) not in (b"\r\n", b"\n"):
        if not line:
            raise Broken("it ends within a head")
        name, _, value = line.decode("latin-1").partition(":")
        fields.append((name.strip().lower(), value.strip()))
    message = Message(first.decode("latin-1").rstrip(), fields, b"")
    if not has_body or (message.first.startswith("HTTP/") and message.status in (204, 304)):
        return message
    return Message(message.first, fields, _read_body(file, message))


def _read_body(file: Any, message: Message) -> bytes:
    if "chunked" in (message.get("transfer-encoding") or ""):
        body = b""
        while size := int(file.readline().partition(b";")[0] or b"0", 16):
            body += file.read(size)
            file.readline()
        while file.readline().strip():
            pass
        return body
    length = message.get("content-length")
    if length is not None:
        body = file.read(int(length))
        if len(body) < int(length):
            raise Broken("it ends within a body")
        return bytes(body)
    return bytes(file.read()) if message.first.startswith("HTTP/") else b""


def ask(address: tuple[str, int], method: str, target: str, fields: Fields) -> Message:
    """Send a request on a connection of its own, and return the final response.

    Raises:
        Broken: there is none.
        OSError: the proxy is not there.
    """
    lines = [f"{method} {target} HTTP/1.1", f"Host: {address[0]}:{address[1]}"]
    lines += [f"{name}: {filled(value)}" for name, value in fields]
    if method in ("POST", "PUT", "PATCH", "FROB"):
        lines.append("Content-Length: 0")
    if not any(name == "Connection" for name, _ in fields):
        lines.append("Connection: close")
    with gevent.Timeout(SECONDS, Broken("it takes too long")), socket.create_connection(address) as connection:
        connection.sendall("\r\n".join([*lines, "", ""]).encode("latin-1"))
        with connection.makefile("rb") as file:
            while True:
                message = read_message(file, has_body=method != "HEAD")
                if message is None:
                    raise Broken("the proxy closes the connection")
                if message.status >= 200:
                    return message


@dataclass
class Script:
    """The responses of one case, by the number of the step, and the requests that came."""

    responses: list[Response]
    url: str = ""
    requests: dict[int, list[Message]] = field(default_factory=dict)


class Origin:
    """Answers each request by the script of its path and the step in its field X-Step."""

    def __init__(self) -> None:
        self.scripts: dict[str, Script] = {}
        self._server = StreamServer(("127.0.0.1", 0), self._serve)
        self._server.start()

    @property
    def port(self) -> int:
        return int(self._server.server_port or 0)

    def close(self) -> None:
        self._server.stop()

    def _serve(self, connection: Any, _: object) -> None:
        with connection, connection.makefile("rb") as file:
            try:
                while (request := read_message(file)) is not None:
                    if not self._answer(connection, request):
                        return
            except (Broken, OSError, ValueError):
                # A proxy may end its connections as it likes.
                return

    def _answer(self, connection: Any, request: Message) -> bool:
        method, target, _ = request.first.split(" ")
        # A proxy may send the whole URL.
        path = re.sub(r"^https?://[^/]*", "", target)
        script = self.scripts.get("/".join(re.split(r"[/?]", path)[:3]))
        if script is None:
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nCache-Control: no-store\r\n\r\nok")
            return True
        number = int(request.get("x-step") or 0)
        script.requests.setdefault(number, []).append(request)
        response = script.responses[number]
        if response.status == 0:
            return False
        head, body = _rendered(response, request, method, number, script.url)
        connection.sendall(head + (b"" if method == "HEAD" else body))
        return response.length is None


def _rendered(response: Response, request: Message, method: str, number: int, url: str) -> tuple[bytes, bytes]:
    names = {name.lower(): value for name, value in response.fields}
    status, told = response.status, response.fields
    body = (f"step {number}" if response.body is None else response.body).encode()
    if response.confirms and _has_it(request, names):
        status, told, body = 304, response.confirmation or response.fields, b""
    fields = [(name, filled(value, url)) for name, value in told if (name, value) != ("Date", "")]
    if "date" not in names:
        fields.append(("Date", formatdate(usegmt=True)))
    if status != 304:
        fields.append(("X-Served", str(number)))
    if status not in (204, 304):
        fields.append(("Content-Length", str(response.length or len(body))))
    lines = [f"HTTP/1.1 {status} {_REASONS.get(status, 'Status')}", *(f"{name}: {value}" for name, value in fields)]
    return "\r\n".join([*lines, "", ""]).encode("latin-1"), b"" if status in (204, 304) else body


def _has_it(request: Message, names: dict[str, str]) -> bool:
    tag, wanted = names.get("etag"), request.get("if-none-match")
    if tag is not None and wanted is not None:
        return tag in wanted
    return "last-modified" in names and request.get("if-modified-since") is not None
