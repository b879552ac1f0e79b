"""``python -m compat.nova run``: each way to name a program, and that it ends as the program does."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from gevent import subprocess

from tests.compat.test_finder import write

ROOT = Path(__file__).parents[2]

#: Prints where nova comes from, its own arguments, and whether the standard library is patched.
PROGRAM = """
import sys
from gevent import monkey
from nova import flags
print(__name__, sys.argv[1:], flags.__name__, monkey.is_module_patched("socket"))
"""
SAID = "__main__ ['--flag', '-x', 'y'] nova.flags True\n"


def run(*arguments: str, cwd: Path, path: str = "") -> subprocess.CompletedProcess[str]:
    """The command, with the checkout on the path as if installed."""
    return subprocess.run(
        [sys.executable, "-m", "compat.nova", "run", *arguments],
        cwd=cwd,
        env={"PYTHONPATH": str(ROOT), "PATH": path, "PYTHONDONTWRITEBYTECODE": "1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def output(*arguments: str, cwd: Path, path: str = "", stderr: str | None = "") -> str:
    """Run it to a good end; return its output. Its standard error must be ``stderr`` (None: anything)."""
    done = run(*arguments, cwd=cwd, path=path)
    assert done.returncode == 0, done.stderr
    assert stderr is None or done.stderr == stderr
    said: str = done.stdout
    return said


def test_a_script_in_python_2_is_told_how_to_become_python_3(tmp_path):
    (tmp_path / "nova-compute").write_text("#!/usr/bin/env python\nprint 'ready'\n")
    done = run("--", "./nova-compute", cwd=tmp_path)
    assert done.returncode == 1
    assert "nova-compute is Python 2, convert it first: python3.11 -m lib2to3 -w -n" in done.stderr


# --- programs ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "command",
    [
        ["--", "-m", "service"],
        ["--", "python", "-m", "service"],
        ["--", "service.py"],
        ["--", "python3.11", "service.py"],
        ["--", "/usr/bin/python2.6", "service.py"],
        ["service.py"],
        ["--", "-c", PROGRAM],
    ],
)
def test_a_program(tmp_path, command):
    write(tmp_path, service=PROGRAM)
    assert output(*command, "--flag", "-x", "y", cwd=tmp_path) == SAID


def test_its_arguments_are_all_its_own(tmp_path):
    write(tmp_path, service="import sys; print(sys.argv[1:])")
    said = output("--era", "folsom", "--", "-m", "service", "--era", "x", "--", "--tree", cwd=tmp_path)
    assert said == "['--era', 'x', '--', '--tree']\n"


def test_a_package_with_a_main_module(tmp_path):
    write(tmp_path, service__="")
    (tmp_path / "service" / "__main__.py").write_text(PROGRAM)
    assert output("--", "python", "-m", "service", "--flag", "-x", "y", cwd=tmp_path) == SAID


def test_options_of_the_interpreter_hold(tmp_path):
    program = "import sys, nova.flags; print(sys.flags.dev_mode, sys.flags.optimize, sys.warnoptions, sys.argv[1:])"
    write(tmp_path, service=program)
    command = ["python", "-X", "dev", "-O", "-W", "ignore", "service.py", "-v"]
    assert output("--no-tree", "--", *command, cwd=tmp_path) == "True 1 ['default', 'ignore'] ['-v']\n"


def test_a_script_finds_what_lies_beside_it(tmp_path):
    program = "import sys, beside; from nova import flags; print(sys.argv, __file__)"
    write(tmp_path, bin__service=program, bin__beside="")
    script = os.path.join("bin", "service.py")
    assert output("--", script, cwd=tmp_path) == f"['{script}'] {script}\n"


def test_a_command_on_the_path(tmp_path):
    # The directory of a client's script nova.py is no tree.
    commands = write(tmp_path / "bin", nova="raise AssertionError")
    script = commands / "nova-compute"
    script.write_text(f"#!/usr/bin/env python\n{PROGRAM}")
    script.chmod(0o755)
    assert output("--", "nova-compute", "--flag", "-x", "y", cwd=tmp_path, path=str(commands)) == SAID


def test_the_checkout_need_not_be_installed(tmp_path):
    checkout = tmp_path / "checkout"
    checkout.mkdir()
    for name in ("compat", "rpcmq"):
        (checkout / name).symlink_to(ROOT / name)
    write(tmp_path, service="import compat.nova, sys; print(compat.nova.__file__, sys.path[0], sys.path[-1])")
    done = subprocess.run(
        [sys.executable, "-m", "compat.nova", "run", "--", "../service.py"],
        cwd=checkout,
        env={"PATH": ""},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    loaded = checkout / "compat" / "nova" / "__init__.py"
    assert (done.stdout, done.stderr) == (f"{loaded} {tmp_path} {checkout}\n", "")


def test_the_program_is_the_first_frame(tmp_path):
    """Services took their name from the file there."""
    program = "import inspect\ndef name(): return inspect.stack()[-1][1], len(inspect.stack())\nprint(*name())"
    write(tmp_path, service=program)
    assert output("--", "service.py", cwd=tmp_path) == "service.py 2\n"
    assert output("--", "-m", "service", cwd=tmp_path) == f"{tmp_path / 'service.py'} 2\n"


# --- ends ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["-m", "script", "-c"])
def test_the_exit_code_is_the_programs(tmp_path, kind):
    code = "import sys; print('end'); sys.exit(7)"
    write(tmp_path, service=code)
    command = {"-m": ["-m", "service"], "script": ["service.py"], "-c": ["-c", code]}[kind]
    done = run("--", *command, cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (7, "end\n", "")


def test_an_exception_is_shown(tmp_path):
    write(tmp_path, service="raise LookupError('lost')")
    done = run("--", "service.py", cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr.endswith("LookupError: lost\n")


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ([], "no command; it follows --"),
        (["--"], "no command; it follows --"),
        (["--", "python"], "no command"),
        (["--", "-m"], "not a Python program: -m"),
        (["--", "nowhere.py", "-x"], "not a Python program: nowhere.py -x"),
        (["--", "sh", "-c", "true"], "not a Python program: sh"),
        (["--era", "icehouse", "--", "-c", ""], "invalid choice: 'icehouse'"),
        (["--tree", "nowhere", "--", "-c", ""], "no directory 'nova' in"),
        (["--tree", ".", "--no-tree", "--", "-c", ""], "not allowed with"),
    ],
)
def test_what_cannot_be_run(tmp_path, arguments, text):
    done = run(*arguments, cwd=tmp_path, path="/bin:/usr/bin")
    assert done.returncode == 2
    assert text in done.stderr
    assert "Traceback" not in done.stderr


# --- trees and eras ------------------------------------------------------------------------------


def test_a_tree_and_its_era(tmp_path):
    write(tmp_path / "tree", nova__="", nova__rpc="def multicall(): pass", nova__service="of = 'tree'")
    write(tmp_path, service="import compat.nova\nfrom nova import service\nprint(compat.nova.era(), service.of)")
    assert output("--tree", "tree", "--", "service.py", cwd=tmp_path) == "diablo tree\n"
    assert output("--tree", "tree", "--era", "cactus", "--", "service.py", cwd=tmp_path) == "cactus tree\n"


def test_the_current_directory_is_a_tree(tmp_path):
    write(tmp_path, nova__="", nova__service="of = 'tree'\nif __name__ == '__main__': print('run', __package__)")
    assert output("--", "-m", "nova.service", cwd=tmp_path) == "run nova\n"


def test_no_tree(tmp_path):
    write(tmp_path, nova__="", nova__flags="raise AssertionError")
    assert output("--no-tree", "--", "-c", "from nova import flags; print('ours')", cwd=tmp_path) == "ours\n"


# --- suites --------------------------------------------------------------------------------------

SUITE = """
import unittest
from nova import flags

class RpcTest(unittest.TestCase):
    def test_error(self):
        self.assertEquals(flags.__name__, 'nova.flags')
    def test_other(self):
        self.assertItemsEqual([1, 2], [2, 1])

class OtherTest(unittest.TestCase):
    def test_error(self):
        pass
"""


@pytest.mark.parametrize("command", [["pytest"], ["py.test"], ["python", "-m", "pytest"], ["/opt/old/bin/pytest"]])
def test_pytest_with_the_plugin(tmp_path, command):
    write(tmp_path, test_suite=SUITE)
    said = output("--", *command, "-p", "no:cacheprovider", "test_suite.py::RpcTest", cwd=tmp_path)
    assert "2 passed" in said
    assert "nova: essex, stand-in" in said


@pytest.mark.parametrize("command", [["unittest"], ["python", "-m", "unittest"]])
def test_unittest(tmp_path, command):
    write(tmp_path, test_suite=SUITE)
    done = run("--", *command, "-v", "test_suite.RpcTest", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "Ran 2 tests" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "passed"),
    [
        ([], 3),
        (["-v", "--nocapture", "test_suite"], 3),
        (["test_suite:RpcTest"], 2),
        (["test_suite:RpcTest.test_error", "--nologcapture"], 1),
        (["./test_suite.py:OtherTest"], 1),
    ],
)
def test_nosetests(tmp_path, arguments, passed):
    write(tmp_path, test_suite=SUITE)
    assert f"{passed} passed" in output("--", "nosetests", *arguments, "-p", "no:cacheprovider", cwd=tmp_path)


def test_a_suite_that_fails(tmp_path):
    write(tmp_path, test_suite="def test_it():\n    from nova import rpc_that_is_not\n")
    done = run("--", "pytest", "-q", "-p", "no:cacheprovider", cwd=tmp_path)
    assert done.returncode == 1
    assert "1 failed" in done.stdout
