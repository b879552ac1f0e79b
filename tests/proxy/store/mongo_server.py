"""A server that speaks MongoDB's protocol, for the tests of the store.

``RPCMQ_TEST_MONGO_URI`` names one that runs, a true mongod say. Without it, secantusd-py is started, which ``make
mongo-server``
installs into an environment of its own: its licence is the GPL, and nothing of rpcmq imports it.
"""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import gevent
import pytest
from gevent import subprocess
from pymongo import MongoClient

PROGRAM = Path(__file__).parents[3] / ".venv-mongo" / "bin" / "secantusd-py"
SECONDS = 30


class Server:
    """A private server on a port that it picks."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.port = 0
        self.start()

    @property
    def uri(self) -> str:
        return f"mongodb://127.0.0.1:{self.port}"

    def start(self) -> None:
        command = [str(PROGRAM), "--host", "127.0.0.1", "--port", str(self.port), "--storage-path", str(self._folder)]
        self._process = subprocess.Popen(command, stderr=subprocess.PIPE)
        assert self._process.stderr is not None
        with gevent.Timeout(SECONDS):
            for line in self._process.stderr:
                if found := re.search(rb"listening on 127.0.0.1:([0-9]+)", line):
                    self.port = int(found[1])
                    return
        raise AssertionError("the server has ended before it listened")

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """The process stands still meanwhile."""
        self._process.send_signal(signal.SIGSTOP)
        try:
            with gevent.Timeout(SECONDS):
                while " T " not in Path(f"/proc/{self._process.pid}/stat").read_text():
                    gevent.sleep(0.01)
            yield
        finally:
            self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        assert self._process.stderr is not None
        self._process.stderr.close()


@pytest.fixture(scope="session")
def mongo_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server of this test run that may be stopped and killed."""
    if not PROGRAM.exists():
        pytest.skip("no server for the tests of the MongoDB store: make mongo-server")
    server = Server(tmp_path_factory.mktemp("mongo"))
    yield server
    server.kill()


@pytest.fixture(scope="session")
def mongo_uri(request: pytest.FixtureRequest) -> str:
    """The URI of a server."""
    given = os.environ.get("RPCMQ_TEST_MONGO_URI")
    return given or request.getfixturevalue("mongo_server").uri


@pytest.fixture
def mongo_database(mongo_uri: str) -> Iterator[str]:
    """The name of an empty database, which goes after the test."""
    name = f"rpcmq_test_{os.getpid()}"
    with MongoClient[dict[str, object]](mongo_uri) as client:
        client.drop_database(name)
        yield name
        client.drop_database(name)
