"""The settings of work queues: which queue server follows from them, and its key."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from typing import Any

import pytest

from rpcmq.config import RouterConfig, load_router_config
from rpcmq.core.router.rights import MESH_VERB
from rpcmq.errors import ConfigError, NotInstalled
from rpcmq.server.metrics import metrics_text
from rpcmq.server.queue_command import check_queues, queue_server, reachable_url
from rpcmq.server.queue_key import authorized_queue_server, queue_server_keys
from rpcmq.store.location import STORE_VARIABLE, is_database, shown
from rpcmq.transport.curve import derived_pair, new_pair, public_of
from rpcmq.transport.key_files import KeyFile

URL = "tcp://127.0.0.1:7700"
SECRET = "postgresql://rpcmq:hunter2@db/queues"


def config(**queue: object) -> RouterConfig:
    return load_router_config(None, {}, {f"queue.{name}": value for name, value in queue.items()})


def test_there_is_none_unless_it_is_asked_for() -> None:
    assert not config().queue.has_server
    assert config(dir="queue").queue.has_server and config(store=SECRET).queue.has_server


@pytest.mark.parametrize("url", ["mysql://db/queues", "/var/lib/queue", "postgresql://db/\n"])
def test_a_store_that_is_no_database_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match=r"--queue-store = .*: expected a URL like 'postgresql://"):
        config(store=url)


@pytest.mark.parametrize(
    ("package", "queue", "text"),
    [
        ("apsw", {"dir": "queue"}, r"queue\.dir: apsw is not installed: pip install 'rpcmq\[queue\]'"),
        ("cronsim", {"dir": "queue"}, r"queue\.dir: cronsim is not installed: pip install 'rpcmq\[queue\]'"),
        ("psycopg", {"store": SECRET}, r"queue\.store: psycopg is not installed: pip install 'rpcmq\[postgres\]'"),
    ],
)
def test_a_package_that_is_missing_is_named(
    monkeypatch: pytest.MonkeyPatch, package: str, queue: dict[str, str], text: str
) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr("rpcmq.server.queue_command.find_spec", lambda name: None if name == package else find(name))
    with pytest.raises(NotInstalled, match=text):
        check_queues(config(**queue))
    check_queues(config())


def test_a_router_that_no_other_process_reaches_has_no_queue_server() -> None:
    flags = {"queue.dir": "queue", "router.listen": "inproc://router"}
    with pytest.raises(ConfigError, match=r"cannot reach router\.listen = 'inproc://router'; listen on"):
        check_queues(load_router_config(None, {}, flags))


@pytest.mark.parametrize(
    ("bound", "url"),
    [
        ("tcp://0.0.0.0:7700", "tcp://127.0.0.1:7700"),
        ("tcp://[::]:7700", "tcp://[::1]:7700"),
        ("tcp://10.0.0.7:7700", "tcp://10.0.0.7:7700"),
        ("ipc:///run/rpcmq:1.sock", "ipc:///run/rpcmq:1.sock"),
    ],
)
def test_the_url_at_which_the_same_machine_reaches_a_router(bound: str, url: str) -> None:
    assert reachable_url(bound) == url


def test_one_with_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RPCMQ_ROUTER", "tcp://elsewhere:1")
    monkeypatch.setenv("NOTIFY_SOCKET", "/run/notify")
    server = queue_server(config(dir="queue", orphan_seconds="5s"), URL, "router 1", None)
    assert server.directory == str(tmp_path / "queue") and not server.is_temporary and server.key == ""
    flags = dict(zip(server.flags[::2], server.flags[1::2], strict=True))
    assert flags["--store"] == server.directory and flags["--owner"] == "router 1"
    assert flags["--orphan-seconds"] == "5.0"
    assert not any(name.startswith(("RPCMQ_", "NOTIFY_")) for name in server.environment)
    assert server.environment["PATH"] == os.environ["PATH"]


@pytest.mark.parametrize("directory", ["", "log"])
def test_one_whose_router_has_a_dispatch_log_tells_of_deaths(directory: str) -> None:
    settings = load_router_config(None, {}, {"queue.dir": "queue", "dispatch_log.directory": directory})
    assert ("--tell-deaths" in queue_server(settings, URL, "a", None).flags) is bool(directory)


def test_one_with_a_database_has_its_url_in_no_argument(tmp_path: Path) -> None:
    server = queue_server(config(store=SECRET, dir=str(tmp_path)), URL, "a", None)
    assert server.environment[STORE_VARIABLE] == SECRET and "hunter2" not in " ".join(server.flags)
    assert server.directory == str(tmp_path) and not server.is_temporary


def test_one_with_a_database_alone_ends_with_its_router() -> None:
    server = queue_server(config(store=SECRET), URL, "a", None)
    try:
        assert server.is_temporary and server.flags[server.flags.index("--orphan-seconds") + 1] == "0.0"
    finally:
        os.rmdir(server.directory)


@pytest.mark.parametrize(
    ("where", "text"),
    [
        ("/var/lib/a:b@c", "/var/lib/a:b@c"),
        ("postgresql://db/queues", "postgresql://db/queues"),
        ("postgresql://me@db/queues", "postgresql://me@db/queues"),
        (SECRET, "postgresql://rpcmq:***@db/queues"),
        ("postgresql://me:a:b@c@db/queues", "postgresql://me:***@db/queues"),
        ("postgres://db/q?user=me&password=hunter2&sslmode=on", "postgres://db/q?user=me&password=***&sslmode=on"),
        ("postgresql://db/q?sslpassword=hunter2", "postgresql://db/q?sslpassword=***"),
    ],
)
def test_passwords_are_not_shown(where: str, text: str) -> None:
    assert shown(where) == text
    assert is_database(where) == ("://" in where)


# --- its key -------------------------------------------------------------------------------------


def router_pair() -> KeyFile:
    return KeyFile(*new_pair())


def test_its_key_is_the_same_in_each_life_of_the_router_and_another_for_each_router() -> None:
    router = router_pair()
    (key,) = queue_server_keys(router)
    assert queue_server_keys(router) == (key,) and queue_server_keys(router_pair()) != (key,)
    assert public_of(key.secret) == key.public != router.public and key.router == router.public
    assert derived_pair(router.secret.encode(), b"another purpose")[0] != key.public
    assert key.secret not in repr(key)


def test_in_a_mesh_its_key_is_the_same_at_each_router_and_follows_from_nothing_but_the_secret() -> None:
    router, other = router_pair(), router_pair()
    own, alone = queue_server_keys(router, "secret")
    assert own.public == queue_server_keys(other, "secret")[0].public != queue_server_keys(router, "other")[0].public
    assert (alone,) == queue_server_keys(router) and own.router == alone.router == router.public


@pytest.mark.parametrize(
    ("verb", "exchange", "topic", "is_allowed"),
    [
        ("serve", "rpcmq.queue", "billing.router-1", True),
        ("serve", "rpcmq.queue", "rpcmq.queues", True),
        ("call", "rpcmq.queue", "billing.router-2", False),
        ("call", "rpcmq.queue", "rpcmq.queues.router-2", True),
        ("serve", "rpcmq.queue.admin", "look.router-1", True),
        ("serve", "rpcmq.queue.admin", "other.router-1", False),
        ("call", "rpcmq.queue.admin", "change.router-1", False),
        ("fanout", "rpcmq.queue.admin", "settings", True),
        ("call", "rpcmq.queue.admin", "claims.router-1", True),
        ("fanout", "rpcmq.queue.admin", "change", False),
        ("call", "rpcmq.work", "billing", True),
        ("serve", "rpcmq.work", "billing", False),
        ("call", "", "billing", False),
        ("cast", "rpcmq.work", "billing", False),
        ("admin", "", "summary", False),
        (MESH_VERB, "", "billing", False),
    ],
)
def test_its_rights(verb: str, exchange: str, topic: str, is_allowed: bool) -> None:
    key = authorized_queue_server(queue_server_keys(router_pair())[0])
    assert any(right.allows(verb, exchange, topic) for right in key.rights) == is_allowed


# --- its figures ---------------------------------------------------------------------------------

STATS: dict[str, Any] = {
    "calls": 0, "casts": 0, "outcomes": {}, "dropped": {}, "published": {}, "refused": {}, "counters": {},
    "hedges": {"calls": 0}, "uptime_seconds": 1,
}  # fmt: skip
SUMMARY: dict[str, Any] = {
    "process": {"cpu_seconds": 1, "max_rss_bytes": 1}, "links": 0, "topics": 0, "calls_in_flight": 0, "stuck": 0,
}  # fmt: skip


def test_metrics_of_queues() -> None:
    figures: dict[str, Any] = {"ready": 3, "dead": 1, "is_paused": False}
    figures |= {"oldest": {"ready": 1.5}, "counters": {"put": 9, "odd": "x"}}
    waiting = {"count": 3, "sum": 4e6, "p50": 5e5, "p90": 1e6, "p99": 2e6, "max": 2e6}
    figures |= {"still": 61.5, "why": "no worker", "times": {"waiting": waiting, "odd": {"count": 1}}}
    server = {"state": "serving", "restarts": 2, "queues": {'bill"ing': figures, "empty": {}}}
    lines = metrics_text(STATS, SUMMARY | {"queue": server}).splitlines()
    assert 'rpcmq_queue_items{queue="bill\\"ing",state="ready"} 3' in lines
    assert 'rpcmq_queue_oldest_seconds{queue="bill\\"ing",state="ready"} 1.5' in lines
    assert 'rpcmq_queue_events_total{queue="bill\\"ing",event="put"} 9' in lines
    assert 'rpcmq_queue_still_seconds{queue="bill\\"ing"} 61.5' in lines
    assert 'rpcmq_queue_seconds{queue="bill\\"ing",phase="waiting",quantile="0.99"} 2.0' in lines
    assert 'rpcmq_queue_seconds_sum{queue="bill\\"ing",phase="waiting"} 4.0' in lines
    assert 'rpcmq_queue_seconds_count{queue="bill\\"ing",phase="waiting"} 3' in lines
    assert not any('state="still"' in line for line in lines)
    assert "rpcmq_queue_server_up 1" in lines and "rpcmq_queue_server_restarts_total 2" in lines
    assert not any("odd" in line or "paused" in line for line in lines)
    assert "rpcmq_queue_server_up 0" in metrics_text(STATS, SUMMARY | {"queue": server | {"state": "unavailable"}})
    assert "queue_server" not in metrics_text(STATS, SUMMARY)
