"""A headless Chromium, driven over its DevTools protocol."""

from __future__ import annotations

import base64
import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import gevent
from gevent import subprocess

from rpcmq.testing.orphans import ending_with_this_process
from tests.gateway.browsers import Browser
from tests.gateway.programs import CHROMIUM

SECONDS = 60.0


class Page:
    """A page of the browser."""

    def __init__(self, port: int, target: str) -> None:
        self._wire = Browser(("127.0.0.1", port), path=f"/devtools/page/{target}", host=f"127.0.0.1:{port}")
        assert self._wire.status == 101
        self._number = 0

    def do(self, method: str, **params: Any) -> dict[str, Any]:
        """Have the browser do something; return its answer."""
        self._number += 1
        self._wire.send(id=self._number, method=method, params=params)
        with gevent.Timeout(SECONDS):
            while (answer := self._wire.next()).get("id") != self._number:
                assert answer, "the browser has gone"
        assert "error" not in answer, answer
        found: dict[str, Any] = answer["result"]
        return found

    def run(self, script: str) -> Any:
        """The value of an expression, which may be a promise."""
        answer = self.do("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def picture(self, path: Path) -> None:
        """Write what is seen into a file."""
        path.write_bytes(base64.b64decode(self.do("Page.captureScreenshot", format="png")["data"]))

    def close(self) -> None:
        self._wire.close()


@contextmanager
def chromium(url: str, size: str = "1100,820") -> Iterator[Page]:
    """A browser that shows ``url``."""
    assert CHROMIUM is not None
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        process = subprocess.Popen(
            [CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
             f"--user-data-dir={folder}", "--remote-debugging-port=0", f"--window-size={size}", url],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            preexec_fn=ending_with_this_process(), start_new_session=True,
        )  # fmt: skip
        try:
            page = _loaded(Path(folder), url)
            try:
                yield page
            finally:
                page.close()
        finally:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(10)


def _loaded(folder: Path, url: str) -> Page:
    """The page, once it is there; what is there before it has another session."""
    with gevent.Timeout(SECONDS):
        while True:
            page = Page(*_target_of(folder, url))
            here = f"location.href.startsWith({json.dumps(url.partition('#')[0])}) && document.readyState == 'complete'"
            if page.run(here):
                return page
            page.close()
            gevent.sleep(0.2)


def _target_of(folder: Path, url: str) -> tuple[int, str]:
    """The port of the browser, and the id of the page that it shows, once it does."""
    with gevent.Timeout(SECONDS):
        while True:
            gevent.sleep(0.1)
            try:
                port = int((folder / "DevToolsActivePort").read_text().split()[0])
                with gevent.Timeout(5):
                    targets = _targets(port)
            except (OSError, ValueError, IndexError, gevent.Timeout):
                continue
            for target in targets:
                if target["type"] == "page" and target["url"].startswith(url.partition("#")[0]):
                    return port, str(target["id"])


def _targets(port: int) -> list[dict[str, Any]]:
    from gevent import socket

    with socket.create_connection(("127.0.0.1", port), 5) as sock:
        sock.sendall(f"GET /json/list HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode())
        data = b""
        while b"\r\n\r\n" not in data:
            data += sock.recv(65536)
        head, _, body = data.partition(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length:")[2].split()[0])
        while len(body) < length:
            body += sock.recv(65536)
    found: list[dict[str, Any]] = json.loads(body)
    return found
