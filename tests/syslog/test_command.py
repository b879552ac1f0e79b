"""``rpcmq syslog``, with the logger(1) of util-linux."""

from __future__ import annotations

import shutil
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from gevent import socket as gevent_socket
from gevent import subprocess

from rpcmq import Client
from rpcmq.cli import syslog
from rpcmq.testing import eventually
from tests.keys import Folder, right
from tests.server.daemons import SECONDS, Daemon, environment, router, run, started

pytestmark = pytest.mark.integration

FREE = ("--tcp", "127.0.0.1:0", "--udp", "127.0.0.1:0")


@pytest.fixture(scope="module")
def daemon() -> Iterator[Daemon]:
    """A router."""
    with router() as daemon:
        yield daemon


def log_by_logger(address: str, *options: str) -> None:
    host, port = address.split(":")
    subprocess.run(["logger", "-n", host, "-P", port, *options], check=True, timeout=SECONDS, env=environment())


@pytest.mark.skipif(not shutil.which("logger"), reason="logger(1) of util-linux is not installed")
def test_what_logger_sends_is_heard(daemon: Daemon) -> None:
    heard: list[tuple[str, dict[str, Any]]] = []
    env = {"RPCMQ_ROUTER": daemon.url}
    with Client(daemon.url) as client, started("syslog", *FREE, env=env) as front_end:
        client.subscribe("syslog.#", lambda ctx, topic, payload: heard.append((topic, payload)))
        at = front_end.wait_for("listening")
        log_by_logger(
            at["tcp"], "-T", "--octet-count", "--rfc5424=notq", "-p", "auth.err", "-t", "sshd", "counted\nlines"
        )
        log_by_logger(at["tcp"], "-T", "--rfc5424=notq", "-p", "cron.info", "-t", "cron", "a line")
        data = ("--sd-id", "zoo@123", "--sd-param", 'tiger="hungry"')
        log_by_logger(at["udp"], "-d", "--rfc5424=notq", *data, "-p", "local0.debug", "-t", "zoo", "a datagram")
        eventually(lambda: len(heard) == 3)
        found = {payload["app"]: payload for _, payload in heard}
        assert found["sshd"]["text"] == "counted\nlines" and found["sshd"]["severity"] == "err"
        assert found["cron"]["facility"] == "cron" and found["cron"]["transport"] == "tcp"
        assert found["zoo"]["structured_data"]["zoo@123"] == {"tiger": ["hungry"]}
        counts = client.call(None, "syslog", {"method": "statistics", "args": {}})
        assert (counts["tcp"]["messages"], counts["udp"]["messages"]) == (2, 1)
        front_end.process.send_signal(signal.SIGTERM)
        assert front_end.process.wait(SECONDS) == 0
        assert front_end.wait_for("stopped")["lost"] == 0


@pytest.mark.fault
def test_a_stop_says_how_many_events_no_router_has(tmp_path: Path) -> None:
    with (
        router() as away,
        started("syslog", *FREE, "--drain-seconds", "1", env={"RPCMQ_ROUTER": away.url}) as front_end,
    ):
        host, port = front_end.wait_for("listening")["tcp"].split(":")
        with Client(away.url) as client:
            with gevent_socket.create_connection((host, int(port)), SECONDS) as stream:
                heard: list[Any] = []
                client.subscribe("syslog.#", lambda ctx, topic, payload: heard.append(payload))
                message = b"<165>1 - node-3 app - - - text"
                stream.sendall(b"%d %s" % (len(message), message))
                eventually(lambda: len(heard) == 1)
                away.process.kill()
                away.process.wait(SECONDS)
                stream.sendall(b"%d %s" % (len(message), message) * 5)
                stream.shutdown(socket.SHUT_WR)
                assert stream.recv(1) == b""  # all were read
            front_end.process.send_signal(signal.SIGTERM)
            assert front_end.process.wait(SECONDS) == 0
            # The first one the router had, and perhaps not acknowledged yet.
            assert front_end.wait_for("stopped")["lost"] in (5, 6)
            client.close(0.0)


def test_events_without_a_right_are_counted_as_refused_and_not_as_messages(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    config = tmp_path / "router.toml"
    config.write_text(f'[security]\nkeys = "{folder}"\n')
    rights = (right("publish", "syslog.auth.#"), right("serve", "syslog.#"))
    with router("--config", str(config)) as keyed:
        env = {"RPCMQ_ROUTER": keyed.url, "RPCMQ_KEY_FILE": folder.add("syslog", *rights)}
        with (
            started("syslog", *FREE, env=env) as front_end,
            Client(keyed.url, key_file=folder.add("operator"), shell="gevent") as client,
        ):
            at = front_end.wait_for("listening")
            host, port = at["tcp"].split(":")

            def counts() -> Any:
                return client.call(None, "syslog", {"method": "statistics", "args": {}})

            with gevent_socket.create_connection((host, int(port)), SECONDS) as stream:
                for priority in (b"<34>1", b"<13>1", b"<13>", b"<34>1"):  # auth.crit, user.notice, none, auth.crit
                    message = priority + b" - node-3 app - - - text"
                    stream.sendall(b"%d %s" % (len(message), message))
                eventually(lambda: counts()["tcp"]["refused"] == 2 and counts()["tcp"]["messages"] == 2)
            host, port = at["udp"].split(":")
            with gevent_socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams:
                datagrams.sendto(b"<13>1 - node-3 app - - - text", (host, int(port)))
                eventually(lambda: counts()["udp"]["refused"] == 1)
            assert counts()["udp"]["messages"] == 0 and counts()["tcp"]["malformed"] == 1


def test_twenty_lines_of_configuration_are_enough(daemon: Daemon, tmp_path: Path) -> None:
    path = tmp_path / "syslog.toml"
    path.write_text('[tcp]\nbind = "127.0.0.1:0"\n[udp]\nbind = ""\n[event]\ntopic = "logs.{host}"\n')
    env = {"RPCMQ_ROUTER": daemon.url}
    with started("syslog", "--config", str(path), "--serve", "", env=env) as front_end:
        assert "udp" not in front_end.wait_for("listening")
        front_end.process.send_signal(signal.SIGINT)
        assert front_end.process.wait(SECONDS) == 0


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (("--tcp", "nowhere"), "tcp.bind = 'nowhere': expected host:port"),
        (("--topic", "a.{hst}"), "event.topic = 'a.{hst}': expected words between dots"),
        (("--config", "no-such-file"), "no-such-file"),
        (("--tcp", "", "--udp", ""), "tcp.bind and udp.bind are both ''"),
        (("--udp", "203.0.113.1:0"), "udp.bind = '203.0.113.1:0': cannot listen there"),
    ],
)
def test_wrong_input_is_named(daemon: Daemon, options: tuple[str, ...], text: str) -> None:
    ended = run("syslog", *options, env={"RPCMQ_ROUTER": daemon.url})
    assert ended.returncode == 2 and text in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_router_that_is_not_there_is_told(free_port: int) -> None:
    ended = run("syslog", *FREE, "--timeout", "1", env={"RPCMQ_ROUTER": f"tcp://127.0.0.1:{free_port}"})
    assert ended.returncode == 3 and "not reachable" in ended.stderr


@pytest.mark.parametrize(("taken", "left"), [(2.0, [8.0, 8.0]), (10.0, [0.0, 1.0])])
def test_a_stop_takes_no_longer_than_it_may(monkeypatch: pytest.MonkeyPatch, taken: float, left: list[float]) -> None:
    now = [100.0]
    given: list[float] = []
    monkeypatch.setattr(syslog, "monotonic", lambda: now[0])

    class Part:
        at_risk = 4

        def stop(self, seconds: float) -> int:
            if not given:
                now[0] += taken
            given.append(seconds)
            return 3

        def close(self, linger_seconds: float) -> None:
            given.append(linger_seconds)

    assert syslog._stop(Part(), Part(), Part(), 10.0) == 7
    assert given == [10.0, *left]
