"""A line for each request."""

from __future__ import annotations

import json
import logging
import os
import re
from time import localtime, strftime, time
from typing import Any

import gevent

from rpcmq.client.limited_log import RateLimitedLog
from rpcmq.errors import ConfigError
from rpcmq.proxy.http.exchange import Exchange
from rpcmq.proxy.settings import AccessLogSettings

__all__ = ["AccessLog"]

_FLUSH_SECONDS = 0.5
#: Bytes after which lines are written without a wait.
_FLUSH_BYTES = 256 * 1024
_UNPRINTABLE = re.compile(r"[^ !#-\[\]-~]")


class AccessLog:
    """Appends lines to a file, a few hundred at once.

    Lines that cannot be written are dropped, and counted.

    Raises:
        ConfigError: the file cannot be opened.
    """

    def __init__(self, settings: AccessLogSettings) -> None:
        self._settings = settings
        self._format = _combined if settings.format == "combined" else _json
        self._lines: list[str] = []
        self._size = 0
        self._file = -1
        self._log = RateLimitedLog(logging.getLogger("rpcmq.proxy"))
        #: Lines that could not be written.
        self.dropped = 0
        self._file = self._open()
        self._writer = gevent.spawn(self._write_now_and_then)

    def _open(self) -> int:
        path = self._settings.path
        if path == "-":
            return os.dup(2)
        try:
            return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o640)
        except OSError as error:
            raise ConfigError(f"access_log.path = {path!r}: cannot be opened: {error}") from None

    def note(self, exchange: Exchange, cache: str, seconds: float) -> None:
        """Add a line for a request that has been answered, or broken off."""
        line = self._format(exchange, cache, seconds)
        self._lines.append(line)
        self._size += len(line)
        if self._size > _FLUSH_BYTES:
            self.flush()

    def reopen(self) -> None:
        """Open the file anew, whose former one may have been renamed; go on with that if it cannot be."""
        self.flush()
        try:
            opened = self._open()
        except ConfigError as error:
            self._log.error("reopen", str(error))
            return
        os.close(self._file)
        self._file = opened

    def flush(self) -> None:
        """Write what waits."""
        lines, self._lines, self._size = self._lines, [], 0
        if not lines:
            return
        data = memoryview("".join(lines).encode("utf-8", "replace"))
        try:
            while data:
                data = data[os.write(self._file, data) :]
        except OSError as error:
            self.dropped += len(lines)
            self._log.error("write", f"{len(lines)} lines of the access log could not be written: {error}")

    def close(self) -> None:
        """Write what waits, and end."""
        self._writer.kill()
        self.flush()
        os.close(self._file)

    def _write_now_and_then(self) -> None:
        while True:
            gevent.sleep(_FLUSH_SECONDS)
            self.flush()


_second = 0
_time_text = ""


def _local_time() -> str:
    global _second, _time_text
    now = int(time())
    if now != _second:
        _time_text, _second = strftime("%d/%b/%Y:%H:%M:%S %z", localtime(now)), now
    return _time_text


def _text(data: bytes) -> str:
    """``data`` without anything that could end a line or a quoted text."""
    text = data.decode("latin-1")
    return _UNPRINTABLE.sub(lambda found: f"\\x{ord(found[0]):02x}", text)


def _combined(exchange: Exchange, cache: str, seconds: float) -> str:
    """The format that Apache httpd and nginx call "combined"."""
    request = exchange.request
    version = "1.1" if request.is_http_11 else "1.0"
    first = f"{_text(request.method)} {_text(request.target)} HTTP/{version}"
    referer, agent = _text(request.header(b"referer") or b"-"), _text(request.header(b"user-agent") or b"-")
    sent = exchange.sent or "-"
    return f'{exchange.peer} - - [{_local_time()}] "{first}" {exchange.status} {sent} "{referer}" "{agent}"\n'


def _json(exchange: Exchange, cache: str, seconds: float) -> str:
    request = exchange.request
    line: dict[str, Any] = {
        "time": round(time(), 3),
        "peer": exchange.peer,
        "scheme": exchange.scheme,
        "host": request.host.decode("latin-1"),
        "method": request.method.decode("latin-1"),
        "target": request.target.decode("latin-1"),
        "status": exchange.status,
        "bytes": exchange.sent,
        "seconds": round(seconds, 6),
        "cache": cache,
        "whole": exchange.is_finished,
        "referer": (request.header(b"referer") or b"").decode("latin-1"),
        "user_agent": (request.header(b"user-agent") or b"").decode("latin-1"),
    }
    return json.dumps(line) + "\n"
