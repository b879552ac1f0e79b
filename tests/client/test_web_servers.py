"""A web application under gunicorn, with each kind of worker."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import gevent
import pytest

from rpcmq.testing import InProcessRouter, eventually
from rpcmq.testing.processes import Program
from tests.client.endpoints import Compute

PROGRAMS = Path(__file__).parent / "programs"

WORKERS = {
    "sync": ["--workers", "2"],
    "gthread": ["--worker-class", "gthread", "--threads", "8"],
    "gevent": ["--worker-class", "gevent"],
    "preload": ["--preload", "--worker-class", "gthread", "--threads", "8"],
}


class Server:
    """gunicorn with the application of programs/wsgi_application.py."""

    def __init__(self, program: Program, compute: Compute) -> None:
        self.compute = compute
        port = program.expect(r"Listening at: http://127.0.0.1:(\d+)")[1]
        self.url = f"http://127.0.0.1:{port}"

    def get(self, path: str) -> list[str]:
        """Fetch the page's words from an OS thread, as the router lives in this one's hub."""
        body: bytes = gevent.get_hub().threadpool.apply(self._get, (path,))
        return body.decode().split()

    def get_all(self, paths: list[str]) -> list[list[str]]:
        """The same of many requests at once."""

        def fetch() -> list[bytes]:
            with ThreadPoolExecutor(8) as pool:
                return list(pool.map(self._get, paths))

        return [body.decode().split() for body in gevent.get_hub().threadpool.apply(fetch)]

    def _get(self, path: str) -> bytes:
        with urlopen(f"{self.url}/{path}", timeout=30) as answer:
            body: bytes = answer.read()
            return body


@pytest.fixture(params=list(WORKERS))
def server(router: InProcessRouter, serve: Callable[..., Any], request: pytest.FixtureRequest) -> Iterator[Server]:
    compute = Compute()
    serve(compute)
    command = [sys.executable, "-m", "gunicorn", "--bind", "127.0.0.1:0", "--chdir", str(PROGRAMS)]
    environment = {"RPCMQ_ROUTER": router.url, "PYTHONWARNINGS": "ignore"}
    if request.param == "preload":
        environment["CALL_BEFORE_FORK"] = "yes"
    with Program([*command, *WORKERS[request.param], "wsgi_application"], environment, name="gunicorn") as program:
        yield Server(program, compute)
        program.signal(signal.SIGTERM)
        assert program.wait(20) == 0, program.said()


def test_calls_and_casts_of_a_web_application(router, server):
    answers = server.get_all([f"call/{n}" for n in range(40)])
    assert [int(answer[0]) for answer in answers] == list(range(40))
    # One connection for each worker, however many threads it has.
    identities = {(pid, identity) for _, pid, identity in answers}
    assert len({pid for pid, _ in identities}) == len(identities)
    for n in range(20):
        server.get(f"cast/{n}")
    # They run now, not when the worker stops.
    eventually(lambda: sorted(server.compute.seen) == list(range(20)))
