"""``examples/legacy``, a cloud controller of early 2012, as real processes at a real router; and its own tests.

Nothing in it knows of rpcmq or of the shim: each process is started by ``python -m compat.nova run``.
"""

from __future__ import annotations

import json
import re
import shutil
import signal
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import gevent
import pytest

from compat.nova.options import OPTIONS
from rpcmq.client import Client
from rpcmq.testing import eventually
from rpcmq.testing.processes import Program, RouterProcess
from rpcmq.wire import Address
from tests.compat.conversion import convert, needs_2to3

CHECKOUT = Path(__file__).parents[2]
LEGACY = CHECKOUT / "examples" / "legacy"
TREE = CHECKOUT / "examples" / "legacy-tree"
FLAGFILE = LEGACY / "etc" / "minicloud.conf"

pytestmark = [pytest.mark.integration, pytest.mark.fault]


def run(*command: str, **env: str) -> tuple[list[str], dict[str, str]]:
    """Command and environment of a program under the shim."""
    here = {"PYTHONPATH": str(CHECKOUT), "PYTHONDONTWRITEBYTECODE": "1"}
    return [sys.executable, "-m", "compat.nova", "run", "--", *command], here | env


class Refused(Exception):
    """A command failed; has what was printed of its error."""


class Shell(Program):
    """The cloud's command line, which reads its commands from here."""

    def __init__(self, router: str) -> None:
        super().__init__(*run(str(LEGACY / "bin/minicloud"), f"--flagfile={FLAGFILE}", RPCMQ_ROUTER=router), "shell")

    def ask(self, line: str) -> list[Any]:
        """Run a command; return its output line by line.

        Raises:
            Refused: it failed.
        """
        self.tell(line)
        return self.answer()

    def answer(self) -> list[Any]:
        """The output of the last command; raises as :meth:`ask`."""
        begun = self._seen
        found = self.expect(r"^ok \w+$|^\w+: .*")
        if not found[0].startswith("ok "):
            raise Refused(found[0])
        return [json.loads(each) for each in self.lines[begun : self._seen - 1]]

    def one(self, line: str) -> Any:
        """The only line that a command gives; raises as :meth:`ask`."""
        (value,) = self.ask(line)
        return value


class Cloud:
    """A router, a scheduler, a shell, and the nodes that a test starts."""

    def __init__(self, *options: str) -> None:
        with ExitStack() as stack:
            self.router = stack.enter_context(RouterProcess())
            self._stack = stack
            self.scheduler = self._service("scheduler", "ctl", *options)
            self.shell = stack.enter_context(Shell(self.router.url))
            self._stack = stack.pop_all()

    def node(self, host: str, *options: str) -> Program:
        """A compute node; returns when the scheduler has what it reports."""
        node = self._service("compute", host, "--report_interval=1", "--periodic_interval=1", *options)
        eventually(lambda: self.services().get(host, {}).get("capabilities"), 20)
        return node

    def _service(self, name: str, host: str, *options: str) -> Program:
        script = str(LEGACY / "bin" / f"minicloud-{name}")
        command = run(script, f"--flagfile={FLAGFILE}", f"--host={host}", *options, RPCMQ_ROUTER=self.router.url)
        service = self._stack.enter_context(Program(*command, host))
        service.expect(f"minicloud-{name} on {host} is ready")
        return service

    def another_shell(self) -> Shell:
        """One whose commands do not wait for those of the first."""
        return self._stack.enter_context(Shell(self.router.url))

    def services(self) -> dict[str, Any]:
        """The last report of each node to the scheduler, by host."""
        return {each["host"]: each for each in self.shell.ask("services")}

    def instances(self, host: str) -> list[str]:
        """Names of what runs there."""
        return [each["name"] for each in self.shell.ask(f"list {host}")]

    def close(self) -> None:
        self._stack.close()

    def __enter__(self) -> Cloud:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


# --- two hosts, undisturbed -----------------------------------------------------------------------


@pytest.fixture(scope="module")
def cloud() -> Iterator[Cloud]:
    """Two nodes, the first with more memory."""
    with Cloud() as started:
        notified = "--notification_driver=nova.notifier.rabbit_notifier"
        started.node("node1", "--host_memory_mb=4096", notified)
        started.node("node2", "--host_memory_mb=2048", notified)
        yield started


def test_a_message_for_a_host_goes_to_that_host(cloud: Cloud) -> None:
    for host in ("node1", "node2", "node2", "node1", "node1", "node1"):
        assert cloud.shell.one(f"host {host}")["host"] == host


def test_a_message_for_the_topic_goes_to_one_host_in_turn(cloud: Cloud) -> None:
    hosts = [cloud.shell.one("host")["host"] for _ in range(6)]
    assert sorted(hosts[:2]) == ["node1", "node2"]
    assert hosts == hosts[:2] * 3


def test_a_fan_out_reaches_each_host_once(cloud: Cloud) -> None:
    cloud.shell.ask("refresh web")
    cloud.shell.ask("refresh db")

    def refreshed() -> list[list[str]]:
        return [cloud.shell.one(f"host {host}")["refreshed"] for host in ("node1", "node2")]

    eventually(lambda: refreshed() == [["web", "db"]] * 2)


def test_reports_arrive_at_another_service_again_and_again(cloud: Cloud) -> None:
    before = {host: each["report_count"] for host, each in cloud.services().items()}
    assert set(before) == {"node1", "node2"}

    def has_reported() -> bool:
        # The scheduler reports as well, more rarely.
        now = cloud.services()
        return all(now[host]["report_count"] >= count + 2 for host, count in before.items())

    eventually(has_reported, 30)
    assert all(each["up"] for each in cloud.services().values())


def test_an_instance_from_boot_to_termination(cloud: Cloud) -> None:
    shell = cloud.shell
    instance = shell.one("boot vm1 1024")
    assert (instance["host"], instance["user_id"]) == ("node1", "alice")
    eventually(lambda: cloud.instances("node1") == ["vm1"])
    assert cloud.instances("node2") == []
    shell.ask(f"reboot node1 {instance['id']}")
    asked = f"diagnostics node1 {instance['id']}"
    wanted = {"host": "node1", "asked_by": "alice", "name": "vm1", "reboots": 1}
    eventually(lambda: shell.one(asked) == wanted)
    assert shell.one(f"snapshot node1 {instance['id']}") == "image-of-vm1"
    # The node reports it by itself.
    eventually(lambda: cloud.services()["node1"]["capabilities"] == {"free_memory_mb": 3072}, 20)
    shell.ask(f"terminate node1 {instance['id']}")
    assert cloud.instances("node1") == []


def test_errors_of_another_process_are_known_by_name(cloud: Cloud) -> None:
    for command in ("diagnostics", "snapshot", "terminate"):
        with pytest.raises(Refused, match=r"^InstanceNotFound: Instance i-7 could not be found\.$"):
            cloud.shell.ask(f"{command} node1 i-7")
    with pytest.raises(Refused, match=r"^NoValidHost: No host has 9999 MB free\.$"):
        cloud.shell.ask("boot huge 9999")


LISTENER = """
import eventlet
from nova import flags, rpc
flags.FLAGS(["listener"])
conn = rpc.create_connection(new=True)
def received(message):
    print("%s of %s" % (message["event_type"], message["publisher_id"]), flush=True)
conn.declare_topic_consumer("notifications.info", received)
conn.consume()
"""


def test_notifications_wait_for_the_first_who_listens(cloud: Cloud) -> None:
    instance = cloud.shell.one("boot noticed")
    eventually(lambda: cloud.instances(instance["host"]) == ["noticed"])
    with Program(*run("-c", LISTENER, RPCMQ_ROUTER=cloud.router.url), "listener") as listener:
        listener.expect(rf"^compute\.instance\.create\.end of compute\.{instance['host']}$")
        cloud.shell.ask(f"terminate {instance['host']} {instance['id']}")
        listener.expect(rf"^compute\.instance\.delete\.end of compute\.{instance['host']}$")


# --- ends -----------------------------------------------------------------------------------------


@pytest.mark.long
def test_a_host_that_stops_finishes_what_it_is_doing() -> None:
    with Cloud() as cloud:
        node = cloud.node("node1", "--snapshot_seconds=3")
        instance = cloud.shell.one("boot vm1")
        eventually(lambda: cloud.instances("node1") == ["vm1"])
        other = cloud.another_shell()
        other.tell(f"snapshot node1 {instance['id']}")
        node.expect("Snapshot of .* begins")
        node.signal(signal.SIGTERM)
        node.expect("Asked to stop")
        # It takes nothing more, and what is sent now waits for its next life.
        assert cloud.shell.one("boot vm2")["host"] == "node1"
        assert other.answer() == ["image-of-vm1"]
        assert node.wait() == 0
        assert [line for line in node.lines if "Stopped minicloud-compute on node1" in line]
        assert not [line for line in node.lines if "is started" in line][1:]
        cloud.node("node1")
        eventually(lambda: cloud.instances("node1") == ["vm2"])


@pytest.mark.long
def test_a_host_that_stops_under_load_fails_no_call() -> None:
    message = {"method": "get_host", "args": {}}
    answers: list[Any] = []
    errors: list[Exception] = []

    def ask(client: Client) -> None:
        try:
            while True:
                answers.append(client.call(None, Address("compute.node1", "", "nova"), message, timeout=60))
        except Exception as error:
            errors.append(error)

    with Cloud() as cloud:
        node = cloud.node("node1")
        with Client(cloud.router.url) as client:
            asking = [gevent.spawn(ask, client) for _ in range(40)]
            try:
                eventually(lambda: len(answers) > 500 or errors, 20)
                node.signal(signal.SIGTERM)
                assert node.wait(10) == 0
                # Those that it did not take wait for its next life.
                before = len(answers)
                node.restart()
                eventually(lambda: len(answers) > before + 500 or errors, 20)
            finally:
                gevent.killall(asking)
    assert errors == []


@pytest.mark.parametrize("name", ["scheduler", "compute"])
def test_a_service_with_nothing_to_do_stops_at_once_and_says_nothing_odd(name: str) -> None:
    with Cloud() as cloud:
        service = cloud.scheduler if name == "scheduler" else cloud.node("node1")
        service.signal(signal.SIGTERM)
        assert service.wait(10) == 0
        assert "Stopped minicloud-" in service.said()
        # Its handler of the signal raises KeyboardInterrupt, as Nova's did.
        assert "Traceback" not in service.said()


def test_the_caller_of_a_killed_host_is_told_at_once() -> None:
    with Cloud() as cloud:
        node = cloud.node("node1", "--snapshot_seconds=60", "--host_memory_mb=9000")
        cloud.node("node2")
        instance = cloud.shell.one("boot vm1")
        assert instance["host"] == "node1"
        eventually(lambda: cloud.instances("node1") == ["vm1"])
        cloud.shell.tell(f"snapshot node1 {instance['id']}")
        node.expect("Snapshot of .* begins")
        node.kill()
        # Long before its timeout, which is a minute.
        with pytest.raises(Refused, match=r"^Timeout: .*compute\.node1.*snapshot_instance.*went away"):
            cloud.shell.answer()
        # The others of the topic go on.
        assert [cloud.shell.one("host")["host"] for _ in range(4)] == ["node2"] * 4


def test_what_is_sent_to_a_killed_host_waits_for_it() -> None:
    with Cloud("--service_down_time=600") as cloud:
        cloud.node("node1", "--host_memory_mb=9000").kill()
        cloud.node("node2")
        # The scheduler takes it for alive, and it has the most memory.
        assert cloud.shell.one("boot vm1")["host"] == "node1"
        assert cloud.instances("node2") == []
        cloud.node("node1")
        eventually(lambda: cloud.instances("node1") == ["vm1"])
        assert cloud.instances("node2") == []


@pytest.mark.long
def test_a_killed_host_is_missed() -> None:
    with Cloud("--service_down_time=3") as cloud:
        node = cloud.node("node1", "--host_memory_mb=9000")
        cloud.node("node2")
        assert cloud.shell.one("boot vm1")["host"] == "node1"
        node.kill()
        eventually(lambda: not cloud.services()["node1"]["up"], 20)
        assert cloud.services()["node2"]["up"]
        assert cloud.shell.one("boot vm2")["host"] == "node2"
        eventually(lambda: cloud.instances("node2") == ["vm2"])


@pytest.mark.long
def test_services_come_back_to_a_router_that_was_killed() -> None:
    with Cloud() as cloud:
        node = cloud.node("node1")
        cloud.router.kill()
        cloud.router.restart()
        before = cloud.services()["node1"]["report_count"]
        eventually(lambda: cloud.services()["node1"]["report_count"] >= before + 2, 30)
        assert cloud.shell.one("host node1")["host"] == "node1"
        assert node.exit_code is None


# --- its own tests --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "command",
    [
        ["pytest", "-q", "-p", "no:cacheprovider", "examples/legacy/tests"],
        ["nosetests", "-q", "-p", "no:cacheprovider", "examples/legacy/tests"],
    ],
)
def test_its_own_tests_pass_from_the_checkout(command: list[str]) -> None:
    with Program(*run(*command), "suite") as suite:
        assert suite.wait(100) == 0, suite.said()
    found = re.search(r"(\d+) passed, (\d+) skipped in", suite.said())
    assert found, suite.said()
    assert int(found[1]) >= 30
    assert int(found[2]) == 2


@needs_2to3
@pytest.mark.long
def test_it_runs_the_same_after_the_conversion(tmp_path: Path) -> None:
    converted = shutil.copytree(LEGACY, tmp_path / "legacy", ignore=shutil.ignore_patterns("__pycache__"))
    convert(converted / "minicloud", converted / "tests", *(converted / "bin").iterdir())
    assert "str=1" in (converted / "bin" / "minicloud").read_text()
    with Program(*run("pytest", "-q", "-p", "no:cacheprovider", str(converted / "tests")), "suite") as suite:
        assert suite.wait(100) == 0, suite.said()
    options = f"--flagfile={converted / 'etc/minicloud.conf'}"
    with Program(*run(str(converted / "bin/minicloud"), options, "nonsense"), "shell") as shell:
        shell.expect("^ValueError: no such command: nonsense$")
        assert shell.wait(20) == 1


@pytest.mark.long
def test_its_own_tests_notice_a_service_that_is_broken(tmp_path: Path) -> None:
    broken = shutil.copytree(LEGACY, tmp_path / "legacy", ignore=shutil.ignore_patterns("__pycache__"))
    source = broken / "minicloud" / "service.py"
    right = "self.conn.create_consumer(node_topic, self, fanout=False)"
    assert right in source.read_text()
    source.write_text(source.read_text().replace(right, "pass"))
    # A test of it that waits for ever fails since nothing else goes on in its process. Where xdist is installed,
    # rerunfailures would listen at a socket there.
    plugins = ("-p", "no:cacheprovider", "-p", "no:rerunfailures")
    with Program(*run("pytest", "-q", *plugins, str(broken / "tests")), "suite") as suite:
        assert suite.wait(100) == 1, suite.said()
    assert "test_three_consumers" in suite.said()


def test_nothing_in_it_knows_what_it_runs_on() -> None:
    files = [path for path in LEGACY.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    assert len(files) >= 15
    for path in files:
        assert not re.search(r"rpcmq|compat|gevent|zmq", path.read_text(), re.IGNORECASE), path


# --- the document ---------------------------------------------------------------------------------


def test_the_document_shows_the_program_as_it_is() -> None:
    document = (CHECKOUT / "docs" / "legacy-services.md").read_text()
    source = "".join(path.read_text() for path in (LEGACY / "minicloud").glob("*.py"))
    lines = {line.strip() for line in source.splitlines()}
    blocks = re.findall(r"```python\n(.*?)```", document, flags=re.DOTALL)
    assert len(blocks) == 2
    for block in blocks:
        assert [line for line in block.splitlines() if line.strip() not in lines] == []


def test_files_and_options_that_the_document_names_exist() -> None:
    document = (CHECKOUT / "docs" / "legacy-services.md").read_text()
    for name in set(re.findall(r"\b(?:bin|etc|minicloud)/[\w.-]+", document)):
        assert (LEGACY / name).exists() or (TREE / name).exists(), name
    named = {
        each.rstrip("*") for each in re.findall(r"`((?:rpc|rpcmq|rabbit|kombu|amqp|qpid|matchmaker)_\w*\*?)`", document)
    }
    assert len(named) >= 12
    known = {option.name for option in OPTIONS} | {option.group or "" for option in OPTIONS}
    assert [name for name in named if not any(each.startswith(name) for each in known)] == []
