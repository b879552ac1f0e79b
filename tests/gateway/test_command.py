"""``rpcmq gateway`` as it is typed."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from rpcmq import Client
from rpcmq.cli.gateway import gateway_command
from rpcmq.cli.options import State
from rpcmq.errors import UsageError
from tests.gateway.browsers import browser, get
from tests.gateway.conftest import Demo
from tests.server.daemons import SECONDS, Daemon, router, run, started

pytestmark = pytest.mark.integration

HERE = ("--bind", "127.0.0.1:0")


@pytest.fixture(scope="module")
def daemon() -> Iterator[Daemon]:
    """A router."""
    with router() as daemon:
        yield daemon


def add(path: Path, name: str, *options: str) -> str:
    ended = run("gateway", "token", "add", name, "--tokens", str(path), *options)
    assert ended.returncode == 0, ended.stderr
    return str(ended.stdout.strip())


def address_of(gateway: Daemon) -> tuple[str, int]:
    host, _, port = gateway.wait_for("listening")["url"].rpartition("/")[2].rpartition(":")
    return host, int(port)


def test_from_a_token_to_a_call_and_a_stop_in_order(daemon: Daemon, tmp_path: Path) -> None:
    path = tmp_path / "tokens.toml"
    token = add(path, "web", "--allow", "call:demo", "--expires", "30d")
    assert token not in path.read_text()
    from rpcmq import Service

    env = {"RPCMQ_ROUTER": daemon.url}
    with (
        Client(daemon.url) as client,
        Service("demo", Demo(), router=daemon.url),
        started("gateway", *HERE, "--tokens", str(path), "--serve", "gateway", env=env) as gateway,
    ):
        with browser(address_of(gateway)) as page:
            assert page.hello(token)["op"] == "welcome"
            assert page.ask("call", topic="demo", method="echo", args={"x": 1})["value"]["args"] == {"x": 1}
            counts = client.call(None, "gateway", {"method": "statistics", "args": {}})
            assert counts["connections"] == 1 and counts["messages"]["call"] == 1
            assert get(address_of(gateway), "/rpcmq.js")[0] == 200
            other = add(path, "other", "--allow", "call:demo")
            with browser(address_of(gateway)) as second:
                assert second.hello(other)["op"] == "welcome"
            assert run("gateway", "token", "revoke", "web", "--tokens", str(path)).returncode == 0
            assert page.ended() == 4401
        gateway.process.send_signal(signal.SIGTERM)
        assert gateway.process.wait(SECONDS) == 0
        assert gateway.wait_for("stopped")["cut"] == 0


def test_tokens_are_listed_without_what_they_are(tmp_path: Path) -> None:
    path = tmp_path / "tokens.toml"
    add(path, "web", "--allow", "call,cast:nova/compute.#", "--origin", "https://a.example", "--rate", "50")
    add(path, "old", "--allow", "all:#", "--expires", "2020-01-01")
    listed = run("gateway", "token", "ls", "--tokens", str(path))
    assert "call,cast [nova] compute.#" in listed.stdout and "(expired)" in listed.stdout
    assert "rpcmqt_" not in listed.stdout
    shown = json.loads(run("gateway", "token", "ls", "--tokens", str(path), "--json").stdout)
    assert [(row["name"], row["is_valid"]) for row in shown] == [("web", True), ("old", False)]
    again = run("gateway", "token", "add", "web", "--tokens", str(path), "--allow", "call:a")
    assert again.returncode == 2 and "exists already" in again.stderr


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("token", "add", "a/b", "--allow", "call:a"), "is no name of a token"),
        (("token", "add", "web", "--allow", "serve:a"), "--allow 'serve:a': expected VERBS:TOPICS"),
        (("token", "add", "web", "--allow", "call:a..b"), "none empty"),
        (("token", "add", "web"), "--allow"),
        (("token", "add", "web", "--allow", "call:a", "--expires", "soon"), "--expires 'soon'"),
        (("token", "revoke", "web"), "there is no such file of tokens"),
        (("token", "ls"), "there is no such file of tokens"),
    ],
)
def test_wrong_commands_are_named(tmp_path: Path, arguments: tuple[str, ...], text: str) -> None:
    ended = run("gateway", *arguments, "--tokens", str(tmp_path / "tokens.toml"))
    assert ended.returncode == 2 and text in ended.stderr and "Traceback" not in ended.stderr
    assert not (tmp_path / "tokens.toml").exists()


def test_the_file_of_tokens_that_is_named_before_the_command_counts(tmp_path: Path) -> None:
    named, configured = tmp_path / "named.toml", tmp_path / "configured.toml"
    config = tmp_path / "gateway.toml"
    config.write_text(f"[access]\ntokens = '{configured}'\n")

    def gateway(*arguments: str) -> object:
        return CliRunner().invoke(gateway_command, arguments, obj=State(None)).exception

    assert gateway("--tokens", str(named), "token", "add", "a", "--allow", "call:demo") is None
    assert gateway("--config", str(config), "token", "add", "b", "--allow", "call:demo") is None
    assert '"a"' in named.read_text() and '"b"' in configured.read_text()
    assert gateway("--tokens", str(named), "token", "revoke", "a") is None
    assert '"a"' not in named.read_text()
    refused = gateway(*HERE, "token", "ls", "--tokens", str(named))
    assert isinstance(refused, UsageError) and "listen.bind is a setting of a gateway that runs" in str(refused)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (("--bind", "nowhere"), "listen.bind = 'nowhere': expected host:port"),
        (("--bind", "0.0.0.0:0"), "tokens would cross a network in the clear"),
        (("--bind", "203.0.113.1:0", "--certificate", "no.pem"), "cannot be used"),
        (("--tokens", "no-such-file"), "rpcmq gateway token add NAME --tokens no-such-file"),
        (("--pages", "no-such-folder"), "pages.folder = 'no-such-folder'"),
        (("--config", "no-such-file"), "no-such-file"),
        (("--origin", "app.example.org"), "access.origins"),
    ],
)
def test_wrong_settings_are_named(daemon: Daemon, tmp_path: Path, options: tuple[str, ...], text: str) -> None:
    path = tmp_path / "tokens.toml"
    add(path, "web", "--allow", "call:demo")
    ended = run("gateway", *HERE, "--tokens", str(path), *options, env={"RPCMQ_ROUTER": daemon.url})
    assert ended.returncode == 2 and text in ended.stderr and "Traceback" not in ended.stderr


def test_a_router_that_is_not_there_is_told(tmp_path: Path, free_port: int) -> None:
    path = tmp_path / "tokens.toml"
    add(path, "web", "--allow", "call:demo")
    env = {"RPCMQ_ROUTER": f"tcp://127.0.0.1:{free_port}"}
    ended = run("gateway", *HERE, "--tokens", str(path), "--timeout", "1", env=env)
    assert ended.returncode == 3 and "not reachable" in ended.stderr and "Traceback" not in ended.stderr


def test_the_client_is_written_where_it_is_wanted(tmp_path: Path) -> None:
    assert run("gateway", "client", str(tmp_path / "js")).returncode == 0
    assert sorted(path.name for path in (tmp_path / "js").iterdir()) == ["rpcmq-node.js", "rpcmq.js"]
    (tmp_path / "file").touch()
    ended = run("gateway", "client", str(tmp_path / "file"))
    assert ended.returncode == 2 and "cannot be written" in ended.stderr
