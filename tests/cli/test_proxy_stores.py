"""``rpcmq proxy`` whose store fails: a disk that is full, or damages files, a MongoDB server that is slow or gone.

Clients get whole and right responses, and what was purged stays so.
"""

from __future__ import annotations

import errno
import json
import os
import random
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from gevent import subprocess

from rpcmq.proxy.http.exchange import Exchange
from rpcmq.proxy.messages import Headers, ResponseHead
from rpcmq.testing import eventually
from tests.cli.test_proxy import SECONDS, children_of, fetched, is_served, running
from tests.proxy.store.mongo_server import Server, mongo_database, mongo_server, mongo_uri
from tests.proxy.world import Origin

__all__ = ["mongo_database", "mongo_server", "mongo_uri"]

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.timeout(300)]

SIZE, URLS = 300_000, 30


class Site:
    """A proxy with two front ends, and an origin whose bodies tell its version and their URL."""

    def __init__(self, port: int, admin: int, process: Any) -> None:
        self.version = 1
        self.process = process
        self._url = f"http://127.0.0.1:{port}"
        self._admins = [f"http://127.0.0.1:{admin + number}" for number in range(2)]
        self._admin = self._admins[0]

    def answer(self, exchange: Exchange) -> None:
        body = self.body(exchange.request.target.decode())
        exchange.send(ResponseHead(200, Headers((("Cache-Control", "max-age=600"),))), body.encode())

    def body(self, target: str, version: int = 0) -> str:
        line = f"{version or self.version} {target}\n"
        return line * (SIZE // len(line))

    def check_all(self, *, version: int = 0) -> int:
        """Ask for all URLs; return the number of hits."""
        hits = 0
        for number in range(URLS):
            status, cache, body = fetched(f"{self._url}/{number}")
            assert status == 200 and body == self.body(f"/{number}", version), (number, status, len(body), body[:20])
            hits += "; hit" in cache
        return hits

    def is_stored(self) -> bool:
        """Return whether a response that was just asked for is a hit. One after the other they push each other out."""
        return [fetched(f"{self._url}/0")[0], "; hit" in fetched(f"{self._url}/0")[1]] == [200, True]

    def is_served(self) -> bool:
        return is_served(f"{self._url}/0")

    def purge_all(self) -> bool:
        """Purge everything; return whether the store has recorded it."""
        status, _, text = fetched(f"{self._admin}/purge?all=1", method="POST")
        recorded = json.loads(text)["recorded"]
        assert (status, recorded) in ((200, True), (202, False))
        return bool(recorded)

    def store(self) -> dict[str, int]:
        found: dict[str, int] = json.loads(fetched(f"{self._admin}/status")[2])["store"]
        return found

    def owed(self) -> list[int]:
        """Return how many purges each front end knows of that the store has yet to take; -1: it is being started."""
        found = []
        for admin in self._admins:
            try:
                found.append(json.loads(fetched(f"{admin}/status")[2])["purges_owed"])
            except OSError:
                found.append(-1)
        return found

    def purged_everywhere(self) -> bool:
        """Return whether no front end has responses of before the last purge: connections are spread over both."""
        return all(fetched(f"{self._url}/0")[2] == self.body("/0") for _ in range(20))

    def restart_front_ends(self) -> None:
        """Kill all processes, which forget what they had in memory."""
        children = children_of(self.process.pid)
        for child in children:
            os.kill(child, signal.SIGKILL)
        eventually(lambda: len(set(children_of(self.process.pid)) - set(children)) == len(children), SECONDS)
        eventually(self.is_served, SECONDS)


@contextmanager
def site(tmp_path: Path, ports: list[int], cache: str) -> Iterator[Site]:
    origin = Origin(lambda exchange: made.answer(exchange))  # noqa: PLW0108 - made comes later
    origin.start()
    path = tmp_path / "proxy.toml"
    path.write_text(
        f'[front]\nhttps = ""\nadmin = "127.0.0.1:{ports[1]}"\nhttp = "127.0.0.1:{ports[0]}"\nprocesses = 2\n'
        f'drain_seconds = 2\n[cache]\nmemory_bytes = "64KiB"\n{cache}\n'
        f'[[sites]]\nnames = ["*"]\norigins = ["http://127.0.0.1:{origin.port}"]\n'
    )
    with running("--config", str(path), stderr=tmp_path / "err") as process:
        made = Site(ports[0], ports[1], process)
        eventually(made.is_served, SECONDS)
        yield made
    origin.stop()


@pytest.fixture
def ports() -> list[int]:
    """Ports for clients, and for operators with the next one for the second front end."""
    import socket

    while True:
        with socket.socket() as first, socket.socket() as second, socket.socket() as third:
            for sock in (first, second):
                sock.bind(("127.0.0.1", 0))
            try:
                third.bind(("127.0.0.1", second.getsockname()[1] + 1))
            except OSError:
                continue
            return [first.getsockname()[1], second.getsockname()[1]]


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 4 MiB."""
    place = tmp_path / "cache"
    place.mkdir()
    run = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=4m,mode=700", "tmpfs", str(place)], capture_output=True, text=True
    )
    if run.returncode:
        pytest.skip(f"no file system can be mounted here: {run.stderr.strip()}")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def fill(place: Path) -> None:
    """Take what is left of a file system."""
    with open(place / "filler", "ab", buffering=0) as file:
        for size in (1 << 16, 1 << 12, 1):
            try:
                while True:
                    file.write(bytes(size))
            except OSError as error:
                assert error.errno == errno.ENOSPC


def test_a_full_disk(tmp_path: Path, ports: list[int], disk: Path) -> None:
    with site(tmp_path, ports, f'directory = "{disk}"') as made:
        made.check_all()
        made.check_all()
        fill(disk)
        made.check_all()
        assert made.store()["disk_full"] > 0 and not list(disk.glob("*/*/.*"))
        made.version = 2
        assert made.purge_all()
        eventually(made.purged_everywhere, SECONDS)
        made.check_all()
        # Whoever was not there when it was purged reads what was written down.
        made.restart_front_ends()
        made.check_all()
        (disk / "filler").unlink()
        made.check_all()
        eventually(made.is_stored, SECONDS)


def test_damaged_and_truncated_files(tmp_path: Path, ports: list[int]) -> None:
    with site(tmp_path, ports, f'directory = "{tmp_path}/cache"') as made:
        made.check_all()
        assert made.check_all() == URLS
        choose = random.Random(1)
        files = [path for path in (tmp_path / "cache").glob("*/*/*") if not path.name.startswith(".")]
        assert len(files) == URLS
        for number, path in enumerate(files):
            data = bytearray(path.read_bytes())
            if number % 3 == 0:
                del data[choose.randrange(len(data)) :]
            else:
                data[choose.randrange(len(data))] ^= 1 << choose.randrange(8)
            path.write_bytes(data)
        made.restart_front_ends()
        made.check_all()
        assert made.check_all() == URLS


@pytest.fixture
def mongo_site(tmp_path: Path, ports: list[int], mongo_server: Server, mongo_database: str) -> Iterator[Site]:
    """A site all of whose responses are stored in MongoDB."""
    with site(tmp_path, ports, f'mongodb = "{mongo_server.uri}"\nmongodb_database = "{mongo_database}"') as made:
        made.check_all()
        assert made.check_all() == URLS
        yield made


def test_a_mongodb_server_that_stands_still_or_is_killed(mongo_site: Site, mongo_server: Server) -> None:
    with mongo_server.stopped():
        mongo_site.check_all()
    mongo_server.kill()
    try:
        mongo_site.check_all()
        assert mongo_site.store()["failed"] > 0
    finally:
        mongo_server.start()
    # It is asked again, a little later.
    eventually(lambda: mongo_site.check_all() == URLS, SECONDS)
    mongo_site.version = 2
    mongo_site.purge_all()
    eventually(mongo_site.purged_everywhere, SECONDS)
    mongo_site.check_all()


def test_a_purge_outlasts_the_front_ends_that_heard_of_it_while_mongodb_is_away(
    mongo_site: Site, mongo_server: Server
) -> None:
    mongo_site.version = 2
    mongo_server.kill()
    try:
        assert not mongo_site.purge_all()
        eventually(lambda: min(mongo_site.owed()) >= 1, SECONDS)
        supervisor = mongo_site.process.pid
        fronts = [pid for pid in children_of(supervisor) if b"front" in command_of(pid)]
        assert len(fronts) == 2
        for front in fronts:
            os.kill(front, signal.SIGKILL)
            eventually(lambda: front not in children_of(supervisor), SECONDS)  # noqa: B023 - called at once
            # It has what the other one knows, though the server has never been there since it was started.
            eventually(lambda: min(mongo_site.owed()) >= 1, SECONDS)
    finally:
        mongo_server.start()
    eventually(lambda: mongo_site.owed() == [0, 0], SECONDS)
    mongo_site.check_all()
    eventually(lambda: mongo_site.check_all() == URLS, SECONDS)


def command_of(process: int) -> bytes:
    return Path(f"/proc/{process}/cmdline").read_bytes()
