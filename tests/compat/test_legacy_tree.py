"""``examples/legacy-tree``, a whole tree in Python 2: converted by 2to3, then run as docs/legacy-services.md says.

The tree has what those of 2012 have: a package that installs gettext, a ``WeakLocal``, contexts, options, managers
behind a dispatcher, proxies with versions, notifications, and tests on mox, stubout and unittest2.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from rpcmq.testing import eventually
from rpcmq.testing.processes import Program, RouterProcess
from tests.compat.conversion import convert, needs_2to3
from tests.compat.test_run import ROOT, run

TREE = ROOT / "examples" / "legacy-tree"
DOCS = (ROOT / "docs" / "legacy-services.md").read_text()

pytestmark = [needs_2to3, pytest.mark.integration]


def edit(path: Path, before: str, after: str) -> None:
    """One of the changes by hand that the page names."""
    assert before in DOCS and after in DOCS
    text = path.read_text()
    assert text.count(before) == 1
    path.write_text(text.replace(before, after))


@pytest.fixture(scope="module")
def unedited(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tree as 2to3 leaves it."""
    tree = tmp_path_factory.mktemp("legacy") / "tree"
    shutil.copytree(TREE, tree)
    convert(tree / "nova", *(tree / "bin").iterdir())
    return tree


@pytest.fixture(scope="module")
def tree(unedited: Path) -> Path:
    """The tree after the changes by hand."""
    tree = unedited.with_name("edited")
    shutil.copytree(unedited, tree)
    edit(
        tree / "nova/openstack/common/jsonutils.py",
        "if hasattr(value, '__iter__'):",
        "if hasattr(value, '__iter__') and not isinstance(value, str):",
    )
    edit(
        tree / "nova/exception.py",
        "raise self.type_(self.value).with_traceback(self.tb)",
        "raise self.value.with_traceback(self.tb)",
    )
    return tree


def test_the_tree_is_in_python_2() -> None:
    with pytest.raises(SyntaxError):
        compile((TREE / "nova/backup/driver.py").read_text(), "driver.py", "exec")
    assert "unicode=1" in (TREE / "nova/__init__.py").read_text()


# --- its tests ------------------------------------------------------------------------------------


def test_what_2to3_breaks_is_what_the_page_names(unedited: Path) -> None:
    done = run("--", "pytest", "-q", "-p", "no:cacheprovider", "nova/tests", cwd=unedited)
    failed = re.findall(r"^FAILED \S+::(\w+)", done.stdout, re.MULTILINE)
    assert sorted(failed) == ["test_create_failure_is_raised_again", "test_describe_and_walk", "test_primitives"]


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (["pytest", "-q", "-p", "no:cacheprovider", "nova/tests"], r"20 passed, 1 skipped"),
        (["nosetests", "nova.tests"], r"20 passed, 1 skipped"),
        (["nosetests", "nova.tests.test_backup:BackupTestCase.test_who_asks"], r"1 passed"),
        (["python", "-m", "unittest", "discover", "-s", "nova/tests", "-t", "."], r"Ran 21 tests[^F]*OK \(skipped=1\)"),
    ],
)
def test_its_tests_pass_under_each_runner(tree: Path, command: list[str], said: str) -> None:
    done = run("--", *command, cwd=tree)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(said, done.stdout + done.stderr)


def test_its_tests_have_their_options_without_its_test_base(tree: Path, tmp_path: Path) -> None:
    """The shim's nova.test takes its place."""
    without = shutil.copytree(tree, tmp_path / "without")
    (without / "nova" / "test.py").unlink()
    done = run("--", "pytest", "-q", "-p", "no:cacheprovider", "nova/tests", cwd=without)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "20 passed, 1 skipped" in done.stdout


# --- its service beside a router ------------------------------------------------------------------


class Shell(Program):
    """The tree's own program, which reads its commands from here."""

    def ask(self, line: str) -> Any:
        """Run a command; return its result, or the text of its failure."""
        self.tell(line)
        found = self.expect(r"^(ok|refused|error) .*")[0]
        return json.loads(found.removeprefix("ok ")) if found.startswith("ok ") else found


class Cloud:
    """A router, two nodes, a shell."""

    def __init__(self, tree: Path, state: Path, stack: ExitStack) -> None:
        self.state = state
        self.router = stack.enter_context(RouterProcess())
        self._tree, self._stack = tree, stack
        self.nodes = {host: self._start("nova-backup", host) for host in ("node1", "node2")}
        for host, node in self.nodes.items():
            node.expect(f"nova-backup on {host} is ready")
        self.shell = self._start("nova-backup-shell", "shell", Shell)
        self.shell.expect("^ready")

    def _start(self, name: str, host: str, kind: type[Any] = Program) -> Any:
        command = [sys.executable, "-m", "compat.nova", "run", "--", str(self._tree / "bin" / name)]
        options = [f"--config-file={self._tree / 'etc/nova.conf'}", f"--host={host}", f"--state_path={self.state}"]
        env = {"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1", "PYTHONUNBUFFERED": "1"}
        env["RPCMQ_ROUTER"] = self.router.url
        return self._stack.enter_context(kind([*command, *options], env, host))


@pytest.fixture(scope="module")
def cloud(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    with ExitStack() as stack:
        yield Cloud(tree, tmp_path_factory.mktemp("state"), stack)


def test_calls_go_round_and_to_the_host_that_is_named(cloud: Cloud) -> None:
    assert sorted(cloud.shell.ask("create vol-1")["host"] for _ in range(2)) == ["node1", "node2"]
    assert cloud.shell.ask("create vol-2 node2") == {"host": "node2", "name": "vol-2-2"}
    assert cloud.shell.ask("list vol-2 node2") == ["vol-2-2"]
    assert os.stat(cloud.state / "vol-2-2").st_mode & 0o777 == 0o640


def test_every_handler_has_the_context_of_its_own_message(cloud: Cloud) -> None:
    found = cloud.shell.ask("who 2")
    assert found == [[[f"req-{n}", f"req-{n}", "alice", False]] * 3 for n in range(20)]


def test_a_generator_and_what_json_does_not_know(cloud: Cloud) -> None:
    for _ in range(3):
        cloud.shell.ask("create vol-3 node1")
    names = cloud.shell.ask("walk vol-3 node1")
    assert len(names) == 3
    described = cloud.shell.ask(f"describe {names[0]} node1")
    assert described["of"]["volume"] == "vol-3" and isinstance(described["at"], str)


def test_failures_arrive_as_themselves(cloud: Cloud) -> None:
    assert cloud.shell.ask("list vol-9 node1").startswith("refused VolumeNotFound_Remote Volume vol-9 could not be")
    # Its constructor takes more than what travels, so that it cannot be made again.
    assert cloud.shell.ask("refused vol-1 node1").startswith("error BackupFailed No backup of vol-1: no host in")
    assert cloud.shell.ask("quiesced node1") == []


def test_a_fan_out_reaches_both_nodes(cloud: Cloud) -> None:
    for host in ("node1", "node2"):
        cloud.shell.ask(f"create vol-4 {host}")
    assert cloud.shell.ask("forget vol-4") is None

    def left() -> list[Any]:
        found = [cloud.shell.ask(f"list vol-4 {host}") for host in ("node1", "node2")]
        return [each for each in found if not str(each).startswith("refused VolumeNotFound")]

    eventually(lambda: not left())


def test_a_node_ends_as_it_is_told(tree: Path, tmp_path: Path) -> None:
    with ExitStack() as stack:
        cloud = Cloud(tree, tmp_path, stack)
        cloud.nodes["node1"].signal(signal.SIGTERM)
        cloud.nodes["node1"].expect("ends$")
        assert cloud.nodes["node1"].wait(10) == 0
        assert [cloud.shell.ask("create vol-5")["host"] for _ in range(3)] == ["node2"] * 3
