"""``rpcmq proxy`` as a user types it: settings, processes that are killed, signals, and the demo."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import ssl
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import gevent
import pytest
from gevent import subprocess
from gevent.subprocess import DEVNULL

from rpcmq.testing import eventually
from tests.proxy.certificates import make_certificate
from tests.proxy.world import Origin, saying

pytestmark = pytest.mark.integration

SECONDS = 60


@contextmanager
def running(*arguments: str, stderr: Path) -> Iterator[Any]:
    with stderr.open("w") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", "rpcmq", "proxy", *arguments], stdout=subprocess.PIPE, stderr=file
        )
        try:
            yield process
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(timeout=SECONDS)
            finally:
                process.kill()
                process.wait()
                assert process.stdout is not None
                process.stdout.close()


def run(*arguments: str) -> Any:
    return subprocess.run(
        [sys.executable, "-m", "rpcmq", "proxy", *arguments], capture_output=True, text=True, timeout=SECONDS
    )


def fetched(url: str, ca: str = "", method: str = "GET") -> tuple[int, str, str]:
    """Ask in a thread: origins live in the hub of this test."""

    def ask() -> tuple[int, str, str]:
        context = ssl.create_default_context(cafile=ca) if ca else None
        request = urllib.request.Request(url, method=method)
        try:
            with urllib.request.urlopen(request, timeout=20, context=context) as reply:
                return reply.status, reply.headers.get("cache-status", ""), reply.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, "", error.read().decode()

    found: tuple[int, str, str] = gevent.get_hub().threadpool.apply(ask)
    return found


def is_served(url: str) -> bool:
    try:
        return fetched(url)[0] == 200
    except OSError:
        return False


def test_settings_are_checked(tmp_path: Path) -> None:
    made = make_certificate(tmp_path, "localhost")
    path = tmp_path / "proxy.toml"
    good = (
        f'[[tls.certificates]]\nnames = ["localhost"]\nchain = "{made.chain}"\nkey = "{made.key}"\n'
        '[[sites]]\nnames = ["*"]\norigins = ["http://127.0.0.1:1"]\n'
    )
    path.write_text(good)
    done = run("--config", str(path), "--check")
    assert (done.returncode, done.stdout) == (0, "ok: 1 site(s), 1 certificate(s)\n")
    path.write_text(good + "helth_target = '/'\n")
    done = run("--config", str(path), "--check")
    assert done.returncode != 0 and "helth_target: unknown; did you mean health_target?" in done.stderr
    path.write_text(good.replace(made.key, "/nowhere"))
    done = run("--config", str(path), "--check")
    assert done.returncode != 0 and "/nowhere does not exist" in done.stderr
    path.write_text(good.replace(made.key, "/nowhere").replace("http://127", "https://127") + 'ca = "/neither"\n')
    done = run("--config", str(path), "--check")
    assert done.returncode != 0 and "/nowhere does not exist" in done.stderr and "sites.ca = '/neither'" in done.stderr
    done = run()
    assert done.returncode != 0 and "--config FILE" in done.stderr and "--demo" in done.stderr


def test_the_demo_serves_a_cached_site(tmp_path: Path) -> None:
    with running("--demo", stderr=tmp_path / "err") as process:
        lines = []
        while "Ctrl-C" not in (line := process.stdout.readline().decode()):
            assert line, (tmp_path / "err").read_text()
            lines.append(line)
        found = re.search(r"curl -i --cacert (\S+) (https://localhost:\d+/)", "".join(lines))
        assert found is not None
        ca, url = found.groups()
        first, again = fetched(url, ca), fetched(url, ca)
        assert first[0] == 200 and "stored" in first[1] and "as answer no. 1." in first[2]
        assert "; hit" in again[1] and again[2] == first[2]
        purge = re.search(r"'(http://\S+/purge\?tag=demo)'", "".join(lines))
        assert purge is not None and json.loads(fetched(purge[1], method="POST")[2])["purged"] == 1
        assert "as answer no. 2." in fetched(url, ca)[2]
    assert not Path(ca).exists() and process.returncode in (0, 143)


@pytest.mark.parametrize("processes", [1, 2])
def test_all_roles_in_one_command(tmp_path: Path, free_port: int, processes: int) -> None:
    origin = Origin(saying(b"hello"))
    origin.start()
    path, log = tmp_path / "proxy.toml", tmp_path / "access.log"
    path.write_text(
        f'[front]\nhttps = ""\nadmin = ""\nhttp = "127.0.0.1:{free_port}"\nprocesses = {processes}\ndrain_seconds = 2\n'
        f'[access_log]\npath = "{log}"\n[cache]\ndirectory = "{tmp_path}/cache"\n'
        f'[[sites]]\nnames = ["*"]\norigins = ["http://127.0.0.1:{origin.port}"]\n'
    )
    url = f"http://127.0.0.1:{free_port}/a"
    with running("--config", str(path), stderr=tmp_path / "err") as process:
        eventually(lambda: is_served(url), SECONDS)
        for _ in range(10):
            assert fetched(url)[2] == "hello"
        assert len(origin.requests) == 1
        children = eventually(lambda: all_of(process.pid, processes + 1), SECONDS)
        for child in children:
            os.kill(child, signal.SIGKILL)
        eventually(lambda: len(set(children_of(process.pid)) - set(children)) == processes + 1, SECONDS)
        # The folder is what the new front ends find.
        eventually(lambda: is_served(url), SECONDS)
        assert len(origin.requests) == 1
        log.rename(tmp_path / "old")
        process.send_signal(signal.SIGHUP)
        eventually(lambda: is_served(url) and log.exists() and bool(log.read_text()), SECONDS)
        children = eventually(lambda: all_of(process.pid, processes + 1), SECONDS)
    assert process.returncode in (0, 143)
    assert not any(Path(f"/proc/{child}").exists() for child in children)
    origin.stop()


def test_processes_end_with_the_command(tmp_path: Path, free_port: int) -> None:
    path = tmp_path / "proxy.toml"
    path.write_text(
        f'[front]\nhttps = ""\nadmin = ""\nhttp = "127.0.0.1:{free_port}"\ndrain_seconds = 1\n'
        '[[sites]]\nnames = ["*"]\norigins = ["http://127.0.0.1:1"]\n'
    )
    with running("--config", str(path), stderr=tmp_path / "err") as process:
        children = eventually(lambda: all_of(process.pid, 2), SECONDS)
        process.kill()
        eventually(lambda: not any(Path(f"/proc/{child}").exists() for child in children), SECONDS)


def test_keys_need_the_rights_that_the_page_says(tmp_path: Path, free_port: int) -> None:
    page = (Path(__file__).parents[2] / "docs/proxy.md").read_text()
    rights = dict(re.findall(r"rpcmq keys add (front|fetch) --allow '(\S+)'", page))
    assert set(rights) == {"front", "fetch"}
    keys = str(tmp_path / "keys")
    rpcmq = [sys.executable, "-m", "rpcmq"]
    subprocess.run([*rpcmq, "init", keys], check=True, capture_output=True, timeout=SECONDS)
    for name, right in rights.items():
        add = [*rpcmq, "keys", "add", name, "--keys", keys, "--allow", right]
        subprocess.run(add, check=True, capture_output=True, timeout=SECONDS)
    with socket.create_server(("127.0.0.1", 0)) as found:
        url = f"tcp://127.0.0.1:{found.getsockname()[1]}"
    origin = Origin(lambda exchange: saying(b"hello %d" % sum(map(len, exchange.body())))(exchange))
    origin.start()
    path = tmp_path / "proxy.toml"
    path.write_text(
        f'[front]\nhttps = ""\nadmin = ""\nhttp = "127.0.0.1:{free_port}"\n'
        f'[[sites]]\nnames = ["*"]\norigins = ["http://127.0.0.1:{origin.port}"]\n'
    )
    common = ["--config", str(path), "--router", url]
    router = subprocess.Popen([*rpcmq, "router", "--config", f"{keys}/router.toml", "--listen", url], stderr=DEVNULL)
    try:
        with (
            running(*common, "--role", "fetch", "--key-file", f"{keys}/fetch.key", stderr=tmp_path / "fetch"),
            running(*common, "--role", "front", "--key-file", f"{keys}/front.key", stderr=tmp_path / "front"),
        ):
            eventually(lambda: is_served(f"http://127.0.0.1:{free_port}/a"), SECONDS)
            assert "; hit" in fetched(f"http://127.0.0.1:{free_port}/a")[1]
            assert fetched(f"http://127.0.0.1:{free_port}/a", method="POST")[0] == 200
        assert "denied" not in (tmp_path / "front").read_text().lower()
    finally:
        router.terminate()
        router.wait(timeout=SECONDS)
        origin.stop()


def children_of(pid: int) -> list[int]:
    found = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for file in found for child in file.read_text().split()]


def all_of(pid: int, count: int) -> list[int]:
    """The children of a process, once there are so many; otherwise none."""
    children = children_of(pid)
    return children if len(children) == count else []


def test_settings_that_no_process_can_be_started_with_end_the_command(tmp_path: Path) -> None:
    path = tmp_path / "proxy.toml"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        path.write_text(
            f'[front]\nhttps = ""\nadmin = ""\nhttp = "127.0.0.1:{taken.getsockname()[1]}"\n'
            '[[sites]]\nnames = ["*"]\norigins = ["http://127.0.0.1:1"]\n'
        )
        done = run("--config", str(path))
    assert done.returncode == 2 and done.stderr.count("cannot listen there") == 1
    assert "started again" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--demo", "--config", "proxy.toml"], "leave out --config"),
        (["--demo", "--https", "nohost"], "expected host:port"),
    ],
)
def test_a_demo_with_wrong_arguments_says_so(arguments: list[str], problem: str) -> None:
    done = run(*arguments)
    assert done.returncode == 2 and problem in done.stderr
