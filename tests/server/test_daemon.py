"""The router as a real process: start, drain, reload, views, service manager."""

from __future__ import annotations

import json
import os
import resource
import signal
import socket
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gevent
import pytest
from gevent import subprocess
from gevent.event import Event

from rpcmq import Client, Service
from rpcmq.errors import NoConsumer, Overloaded, RouterUnreachable
from tests.server.daemons import COMMAND, SECONDS, Daemon, environment, eventually, router, run

pytestmark = pytest.mark.integration


def fetch(url: str, method: str = "GET") -> tuple[int, bytes]:
    request = urllib.request.Request(url, method=method)
    try:
        with urllib.request.urlopen(request, timeout=SECONDS) as answer:
            assert answer.headers["Content-Type"] == "application/json"
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read()


class Blocking:
    """An endpoint whose method returns when the test says so."""

    def __init__(self) -> None:
        self.entered = Event()
        self.leave = Event()
        self.done: list[int] = []

    def work(self, ctx: Any, number: int = 0) -> int:
        self.entered.set()
        assert self.leave.wait(SECONDS)
        self.done.append(number)
        return number


@pytest.fixture
def endpoint() -> Iterator[Blocking]:
    endpoint = Blocking()
    yield endpoint
    endpoint.leave.set()


def work(number: int) -> dict[str, Any]:
    return {"method": "work", "args": {"number": number}}


# --- start --------------------------------------------------------------------------------------


def test_first_line_of_a_text_log_says_where_it_listens_whatever_the_level() -> None:
    process = subprocess.Popen(
        [*COMMAND, "router", "--listen", "tcp://127.0.0.1:0", "--log-level", "error"],
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    )
    try:
        assert process.stderr is not None
        line = process.stderr.readline()
        process.send_signal(signal.SIGINT)
        _, rest = process.communicate(timeout=SECONDS)
    finally:
        process.kill()
        process.wait()
    assert "INFO    listening on tcp://127.0.0.1:" in line
    assert (process.returncode, rest) == (0, "")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (
            "[link]\nlost_seconds = 'soon'\n",
            "{file}: link.lost_seconds = 'soon': expected seconds from 0.1 to 86400, as a number or text like",
        ),
        ("[link]\nlost_second = 3\n", "{file}: link.lost_second: unknown; did you mean link.lost_seconds?"),
        ("[link\n", "{file}: not valid TOML: "),
    ],
)
def test_a_wrong_file_is_refused_with_file_key_value_and_what_is_expected(tmp_path: Path, text: str, line: str) -> None:
    file = tmp_path / "router.toml"
    file.write_text(text)
    ended = run("router", "--config", str(file))
    assert ended.returncode == 2
    assert ended.stderr.startswith("rpcmq: " + line.format(file=file))
    assert ended.stdout == "" and len(ended.stderr.splitlines()) == 1


def test_all_wrong_values_are_named_at_once() -> None:
    ended = run("router", "--queue-max-messages", "0", env={"RPCMQ_LINK_MAX_LINKS": "many"})
    assert ended.returncode == 2
    assert ended.stderr.splitlines() == [
        "rpcmq: environment: RPCMQ_LINK_MAX_LINKS = 'many': expected an integer >= 1",
        "rpcmq: command line: --queue-max-messages = '0': expected an integer >= 1",
    ]


def test_a_taken_address_is_refused() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        listen = run("router", "--listen", f"tcp://{address}")
        http = run("router", "--listen", "tcp://127.0.0.1:0", "--http", address)
    assert listen.returncode == http.returncode == 2
    assert f"router.listen = 'tcp://{address}': cannot listen there: Address already in use" in listen.stderr
    assert f"router.http = '{address}': cannot listen there: Address already in use" in http.stderr


def test_a_recovery_window_that_is_too_short_is_warned_of() -> None:
    with router("--recovery-seconds", "300ms") as daemon:
        warning = daemon.wait_for("short recovery", recovery_seconds=0.3)
        assert "router.recovery_seconds = 0.3: processes may need 1 s to come back" in warning["message"]


def cores_of(pid: int) -> list[set[int]]:
    """Those on which each thread of a process may run."""
    return [os.sched_getaffinity(int(thread)) for thread in os.listdir(f"/proc/{pid}/task")]


def test_it_runs_on_the_core_that_it_is_given_with_all_its_threads(tmp_path: Path, endpoint: Blocking) -> None:
    core = max(os.sched_getaffinity(0))
    with (
        router("--cpu", str(core), "--dispatch-log", str(tmp_path)) as daemon,
        Service("compute", endpoint, host="a", router=daemon.url),
        Client(daemon.url) as client,
    ):
        endpoint.leave.set()
        assert client.call(None, "compute", work(1), timeout=SECONDS) == 1
        threads = cores_of(daemon.process.pid)
        # The loop, an I/O thread and the reaper of ZeroMQ, the writer of the log.
        assert len(threads) >= 4
        assert all(cores == {core} for cores in threads)


def test_it_runs_on_any_core_unless_told_otherwise() -> None:
    with router() as daemon:
        assert all(cores == os.sched_getaffinity(0) for cores in cores_of(daemon.process.pid))


def test_a_core_that_does_not_exist_is_refused_with_those_that_do() -> None:
    ended = run("router", "--listen", "tcp://127.0.0.1:0", "--cpu", "4000")
    assert ended.returncode == 2
    assert ended.stderr.startswith("rpcmq: router.cpu = 4000: there is no such core, or this process may not run there")
    cores = ", ".join(map(str, sorted(os.sched_getaffinity(0))))
    assert f"it runs on: {cores}. Choose one of them, or -1 for any" in ended.stderr
    assert len(ended.stderr.splitlines()) == 1
    wrong = run("router", "--cpu", "all")
    assert wrong.returncode == 2
    assert wrong.stderr == "rpcmq: command line: --cpu = 'all': expected an integer from -1 to 65535\n"


def test_it_allows_itself_as_many_files_as_it_may_have_and_says_if_they_are_too_few() -> None:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, 1024))

    with router("--http", "127.0.0.1:0", preexec_fn=limit) as daemon:
        warning = daemon.wait_for("open files", max_open_files=1024, max_links=100_000)
        assert warning["level"] == "warning" and "LimitNOFILE" in warning["message"]
        limits = Path(f"/proc/{daemon.process.pid}/limits").read_text()
        assert "1024                 1024                 files" in limits


def test_a_router_that_can_open_no_more_files_serves_those_who_are_connected(endpoint: Blocking) -> None:
    with (
        router() as daemon,
        Service("compute", endpoint, host="a", router=daemon.url),
        Client(daemon.url) as caller,
    ):
        caller.connect()
        pid = daemon.process.pid
        limits = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        most = max(int(name) for name in os.listdir(f"/proc/{pid}/fd")) + 1
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (most, limits[1]))
        host, port = daemon.url.removeprefix("tcp://").split(":")
        filling = [socket.create_connection((host, int(port)), SECONDS) for _ in range(most)]
        waiting = Client(daemon.url, connect_timeout=SECONDS)
        connected = gevent.spawn(waiting.connect)
        endpoint.leave.set()
        for number in range(20):
            assert caller.call(None, "compute", work(number), timeout=SECONDS) == number
        assert not connected.ready()
        resource.prlimit(pid, resource.RLIMIT_NOFILE, limits)
        for connection in filling:
            connection.close()
        connected.get(timeout=SECONDS)
        waiting.close()


def test_it_loads_nothing_that_decodes_payloads() -> None:
    # pyzmq imports the pickle module, for methods that rpcmq does not use: so nothing may be unpickled.
    program = """
import atexit, sys
def hook(event, args):
    if event == "pickle.find_class":
        print("unpickled", args)
sys.addaudithook(hook)
atexit.register(lambda: print("modules", *sys.modules))
from rpcmq.cli import main
main()
"""
    flags = ["router", "--listen", "tcp://127.0.0.1:0", "--http", "127.0.0.1:0", "--log-format", "json"]
    process = subprocess.Popen(
        [sys.executable, "-c", program, *flags],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
    )
    daemon = Daemon(process)
    try:
        service = Service("compute", Blocking(), host="a", router=daemon.url)
        service.endpoint.leave.set()
        with service, Client(daemon.url) as client:
            assert client.call(None, "compute", work(3)) == 3
            client.notify(None, "instance.create.end", {"when": 1})
            assert fetch(daemon.http + "/topics")[0] == 200
        daemon.signal(signal.SIGTERM)
        assert daemon.exit_code() == 0
        assert process.stdout is not None
        output = process.stdout.read().decode()
    finally:
        daemon.close()
        assert process.stdout is not None
        process.stdout.close()
    assert "unpickled" not in output
    modules = set(output.split())
    assert "rpcmq.core.router.router" in modules
    assert not {"dill", "cloudpickle", "rpcmq.client", "rpcmq.payload.codec", "rich"} & modules
    assert not {name for name in modules if name.startswith("rpcmq.") and "pickle" in name}


# --- drain --------------------------------------------------------------------------------------


def test_drain_lets_a_call_finish_refuses_new_callers_and_exits_0(endpoint: Blocking) -> None:
    with (
        router("--http", "127.0.0.1:0") as daemon,
        Service("compute", endpoint, host="a", router=daemon.url, drain_seconds=0.1),
        Client(daemon.url) as caller,
        Client(daemon.url, connect_timeout=3.0) as late,
    ):
        call = gevent.spawn(caller.call, None, "compute", work(7), timeout=SECONDS)
        assert endpoint.entered.wait(SECONDS)
        assert fetch(daemon.http + "/healthz") == (200, b'{"status": "ok"}\n')

        daemon.signal(signal.SIGTERM)
        daemon.wait_for("draining", signal="SIGTERM")
        assert fetch(daemon.http + "/healthz") == (503, b'{"status": "draining"}\n')
        with pytest.raises(RouterUnreachable, match="shutting down"):
            late.call(None, "compute", work(8), timeout=3.0)
        assert daemon.process.poll() is None

        endpoint.leave.set()
        assert call.get(timeout=SECONDS) == 7
        assert daemon.exit_code() == 0
    left = daemon.wait_for("drained", level="info")["left"]
    assert not any(left.values())
    assert daemon.records[-1]["event"] == "stopped"


def test_drain_runs_the_casts_that_have_a_consumer(endpoint: Blocking) -> None:
    with (
        router() as daemon,
        Service("compute", endpoint, host="a", router=daemon.url, concurrency=1, drain_seconds=0.1),
        Client(daemon.url) as caller,
    ):
        for number in range(5):
            caller.cast(None, "compute", work(number), confirm=True)
        assert endpoint.entered.wait(SECONDS)
        daemon.signal(signal.SIGTERM)
        daemon.wait_for("draining")
        endpoint.leave.set()
        assert daemon.exit_code() == 0
        eventually(lambda: endpoint.done == [0, 1, 2, 3, 4])
    assert daemon.wait_for("drained")["left"]["casts"] == 0


def test_drain_names_what_it_leaves_behind(endpoint: Blocking) -> None:
    with (
        router("--drain-seconds", "200ms") as daemon,
        Service("compute", endpoint, host="a", router=daemon.url, drain_seconds=0.1),
        Client(daemon.url) as caller,
    ):
        for topic in ("volume", "volume", "network.node-3"):
            caller.cast(None, topic, work(1), confirm=True)
        call = gevent.spawn(caller.call, None, "compute", work(1), timeout=SECONDS)
        assert endpoint.entered.wait(SECONDS)
        daemon.signal(signal.SIGTERM)
        assert daemon.exit_code() == 0
        call.kill()
    left = {r["topic"]: (r["casts"], r["kept"]) for r in daemon.records if r["event"] == "casts left"}
    assert left == {"volume": (2, 2), "network.node-3": (1, 1)}
    drained = daemon.wait_for("drained", level="warning")
    assert drained["left"] == {"casts": 3, "calls": 1, "events": 0, "unsent messages": 0}
    assert drained["message"].endswith("left behind: 3 casts, 1 calls")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_second_signal_ends_it_at_once(endpoint: Blocking, number: signal.Signals) -> None:
    with (
        router() as daemon,
        Service("compute", endpoint, host="a", router=daemon.url, drain_seconds=0.1),
        Client(daemon.url) as caller,
    ):
        call = gevent.spawn(caller.call, None, "compute", work(1), timeout=SECONDS)
        assert endpoint.entered.wait(SECONDS)
        daemon.signal(signal.SIGTERM)
        daemon.wait_for("draining")
        daemon.signal(number)
        assert daemon.exit_code() == 128 + number
        call.kill()
    assert daemon.wait_for("forced stop", signal=number.name)


# --- reload -------------------------------------------------------------------------------------


def test_reload_applies_what_is_live_and_names_what_is_not(tmp_path: Path) -> None:
    file = tmp_path / "router.toml"
    file.write_text("[queue]\nmax_messages = 1\n")
    with router("--config", str(file), "--link-max-links", "50") as daemon, Client(daemon.url) as client:
        client.cast(None, "volume", work(1), confirm=True)
        with pytest.raises(Overloaded):
            client.cast(None, "volume", work(2), confirm=True)

        file.write_text(
            "[queue]\nmax_messages = 2\n[router]\nio_threads = 2\nlog_level = 'warning'\n[link]\nmax_links = 60\n"
        )
        daemon.signal(signal.SIGHUP)
        daemon.wait_for("reload", key="queue.max_messages", value=2)
        refused = daemon.wait_for("reload refused", key="router.io_threads", value=2)
        assert refused["level"] == "warning" and "needs a restart" in refused["message"]
        daemon.wait_for("reload", key="router.log_level", value="warning")
        client.cast(None, "volume", work(2), confirm=True)
        with pytest.raises(Overloaded):
            client.cast(None, "volume", work(3), confirm=True)

        daemon.signal(signal.SIGTERM)
        assert daemon.exit_code() == 0
    # The flag goes before the file, after a reload, too; and the new level holds.
    assert not [record for record in daemon.records if record.get("key") == "link.max_links"]
    assert not [record for record in daemon.records if record["event"] == "stopped"]


def test_reload_of_a_broken_file_changes_nothing(tmp_path: Path) -> None:
    file = tmp_path / "router.toml"
    file.write_text("[queue]\nmax_messages = 1\n")
    with router("--config", str(file)) as daemon, Client(daemon.url) as client:
        file.write_text("[queue]\nmax_messages = 2\nmax_bytes = 'all'\n")
        daemon.signal(signal.SIGHUP)
        failed = daemon.wait_for("reload failed", level="error")
        assert f"{file}: queue.max_bytes = 'all': expected bytes" in failed["message"]
        client.cast(None, "volume", work(1), confirm=True)
        with pytest.raises(Overloaded):
            client.cast(None, "volume", work(2), confirm=True)
        file.write_text("[queue]\nmax_messages = 1\n")
        daemon.signal(signal.SIGHUP)
        daemon.wait_for("reload", message="SIGHUP: nothing has changed")


# --- views --------------------------------------------------------------------------------------


def test_views_over_http(endpoint: Blocking) -> None:
    with (
        router("--http", "127.0.0.1:0") as daemon,
        Service("compute", endpoint, host="a", router=daemon.url, identity="worker"),
        Client(daemon.url, identity="api") as caller,
    ):
        call = gevent.spawn(caller.call, None, "compute", work(7), timeout=SECONDS)
        assert endpoint.entered.wait(SECONDS)

        def page(path: str) -> Any:
            status, body = fetch(daemon.http + path)
            assert status == 200
            return json.loads(body)

        pages = ["/healthz", "/varz", "/processes", "/stats", "/keys", "/topics", "/calls", "/methods"]
        pages += ["/dropped", "/stuck", "/mesh", "/addresses", "/metrics"]
        assert page("/")["pages"] == pages
        assert {row["identity"] for row in page("/processes")["processes"]} == {"worker", "api"}
        assert [row["topic"] for row in page("/topics")["topics"]] == ["compute"]
        [row] = page("/calls")["calls"]
        assert (row["caller"], row["method"], row["server"]) == ("api", "work", "worker")
        variables = page("/varz")
        assert variables["calls_in_flight"] == 1 and variables["process"]["url"] == daemon.url
        assert variables["process"]["lost_wakeups"] == 0 and variables["process"]["internal_errors"] == {}

        endpoint.leave.set()
        assert call.get(timeout=SECONDS) == 7
        [row] = page("/methods")["methods"]
        assert (row["topic"], row["method"], row["calls"]) == ("compute", "work", 1)


def test_http_is_off_unless_asked_for() -> None:
    with router() as daemon:
        assert "http" not in daemon.wait_for("listening")


# --- the service manager ------------------------------------------------------------------------


@pytest.mark.parametrize("abstract", [False, True])
def test_it_tells_the_service_manager(tmp_path: Path, abstract: bool) -> None:
    name = f"@rpcmq-test-{os.getpid()}" if abstract else str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.settimeout(SECONDS)
        manager.bind("\0" + name[1:] if abstract else name)
        told: list[str] = []

        def hear(wanted: str) -> None:
            told.append("")
            while wanted not in told[-1].splitlines():
                told.append(manager.recv(1000).decode())

        with router(env={"NOTIFY_SOCKET": name, "WATCHDOG_USEC": "200000"}) as daemon:
            hear("READY=1")
            assert f"STATUS=listening on {daemon.url}" in told[-1]
            hear("WATCHDOG=1")
            hear("WATCHDOG=1")
            daemon.signal(signal.SIGHUP)
            hear("RELOADING=1")
            assert "MONOTONIC_USEC=" in told[-1]
            hear("READY=1")
            daemon.signal(signal.SIGTERM)
            hear("STOPPING=1")
            assert daemon.exit_code() == 0


def test_a_service_manager_that_does_not_listen_does_no_harm() -> None:
    with router(env={"NOTIFY_SOCKET": "/nonexistent/socket"}) as daemon, Client(daemon.url) as client:
        with pytest.raises(NoConsumer):
            client.call(None, "compute", work(1), mandatory=True)
        daemon.signal(signal.SIGTERM)
        assert daemon.exit_code() == 0
    warnings = [record for record in daemon.records if "NOTIFY_SOCKET" in record["message"]]
    assert len(warnings) == 1
