"""The pytest plugin, on suites of its own in processes of their own."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from gevent import subprocess

from tests.compat.test_finder import write

ROOT = Path(__file__).parents[2]


def suite(cwd: Path, *arguments: str, plugin: bool = True) -> subprocess.CompletedProcess[str]:
    """Run pytest on what is in ``cwd``; warnings are errors."""
    # Where xdist is installed, rerunfailures begins a thread in every run, which lives as long as the process.
    plugins = ["-p", "no:cacheprovider", "-p", "no:rerunfailures"]
    plugins += ["-p", "compat.nova.plugin"] if plugin else []
    return subprocess.run(
        [sys.executable, "-m", "pytest", *plugins, "-W", "error", "-rs", *arguments],
        cwd=cwd,
        env={"PYTHONPATH": str(ROOT), "PATH": "", "PYTHONDONTWRITEBYTECODE": "1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def passes(cwd: Path, *arguments: str, **outcomes: int) -> str:
    """Run pytest; return its output after a check for exactly these outcomes and nothing on standard error."""
    done = suite(cwd, *arguments)
    last = done.stdout.rstrip().rpartition("\n")[2].strip("= ").partition(" in ")[0]
    counts = {word: int(count) for count, word in (part.split()[:2] for part in last.split(","))}
    assert (counts, done.stderr) == (outcomes, ""), done.stdout + done.stderr
    said: str = done.stdout
    return said


# --- the shim is there first ---------------------------------------------------------------------


def test_before_any_conftest(tmp_path):
    write(
        tmp_path,
        conftest="from nova import flags\nimport time\nsleep = time.sleep",
        test_it="""
import socket, time
from gevent import monkey
def test_it():
    import conftest
    assert conftest.flags.__name__ == "nova.flags"
    assert monkey.is_module_patched("socket")
    assert conftest.sleep is time.sleep
    assert time.sleep.__module__.startswith("gevent")
    assert _("text") == "text"
""",
    )
    assert "nova: essex, stand-in" in passes(tmp_path, passed=1)


def test_the_tree_and_the_era_as_arguments(tmp_path):
    write(tmp_path / "old", nova__="", nova__rpc="def multicall(): pass", nova__service="of = 'tree'")
    write(
        tmp_path,
        test_it="""
import compat.nova
from nova import service
def test_it():
    assert service.of == "tree"
    assert compat.nova.era() == "cactus"
""",
    )
    said = passes(tmp_path, "--nova-tree", "old", "--nova-era", "cactus", passed=1)
    assert f"nova: cactus, overlay of {tmp_path / 'old'}" in said


def test_the_tree_and_the_era_in_the_configuration(tmp_path):
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = --strict-config\nnova_tree = old\nnova_era = folsom\n")
    write(tmp_path / "old", nova__="", nova__service="of = 'tree'")
    below = write(
        tmp_path / "tests",
        test_it="""
import compat.nova
from nova import service
def test_it():
    assert service.of == "tree"
    assert compat.nova.era() == "folsom"
""",
    )
    passes(below, passed=1)


def test_the_suite_lies_in_the_tree(tmp_path):
    write(
        tmp_path,
        nova__="",
        nova__manager="def create_rpc_dispatcher(): pass",
        nova__rpc__="raise AssertionError",
        nova__tests__="",
        nova__tests__rpc__="",
        nova__tests__rpc__test_common="""
import compat.nova
from nova import manager
from nova.openstack.common import cfg
def test_it():
    assert "folsom" == compat.nova.era()
    assert cfg.CONF is not None
    assert manager.create_rpc_dispatcher.__name__ == "elsewhere"
""",
    )
    done = suite(tmp_path.parent, str(tmp_path / "nova"))
    # The comparison is spelt out: pytest rewrote the asserts of a module that it got through the shim.
    assert "AssertionError: assert 'create_rpc_dispatcher' == 'elsewhere'" in done.stdout
    assert "1 failed" in done.stdout


def test_the_conftest_names_the_plugin(tmp_path):
    write(
        tmp_path,
        conftest="pytest_plugins = ['compat.nova.plugin']",
        test_it="from nova import flags\ndef test_it(): assert flags.__name__ == 'nova.flags'",
    )
    assert "1 passed" in suite(tmp_path, plugin=False).stdout


@pytest.mark.parametrize(
    ("arguments", "text"),
    [(["--nova-tree", "."], "no directory 'nova' in"), (["--nova-era", "icehouse"], "invalid choice")],
)
def test_wrong_settings(tmp_path, arguments, text):
    done = suite(tmp_path, *arguments)
    assert done.returncode == 4
    assert text in done.stderr
    assert "Traceback" not in done.stderr


def test_pytest_itself_still_works(tmp_path):
    write(
        tmp_path,
        test_it="""
import logging, os, subprocess, sys, threading, time, warnings
import pytest

def test_capture(capfd, caplog):
    print("text")
    os.write(1, b"more")
    subprocess.run([sys.executable, "-c", "print('child')"], check=True)
    logging.getLogger("a").warning("logged")
    out = capfd.readouterr().out
    assert "text" in out and "more" in out and "child" in out
    assert caplog.messages == ["logged"]

def test_threads():
    got = []
    thread = threading.Thread(target=lambda: got.append(threading.current_thread().name), name="t")
    thread.start()
    thread.join(20)
    assert got == ["t"]

def test_warnings():
    with pytest.warns(UserWarning):
        warnings.warn("it")

@pytest.mark.timeout(1)
def test_that_blocks():
    time.sleep(60)

def test_after_it():
    pass
""",
    )
    said = passes(tmp_path, "--timeout-method=signal", failed=1, passed=4)
    assert "Failed: Timeout" in said


# --- between tests -------------------------------------------------------------------------------


def test_flags_are_as_before(tmp_path):
    write(
        tmp_path,
        test_it="""
import unittest
from nova import flags
FLAGS = flags.FLAGS
flags.DEFINE_string("color", "red", "")
flags.DEFINE_string("shape", "round", "")
FLAGS.shape = "square"

class Test(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        FLAGS.color = "green"
    def test_1(self):
        self.assertEqual(FLAGS.color, "green")
        FLAGS.color = "blue"
        flags.DEFINE_string("late", "early", "")
        FLAGS.late = "later"
        FLAGS.shape = "flat"
    def test_2(self):
        self.assertEqual((FLAGS.color, FLAGS.shape, FLAGS.late), ("green", "square", "early"))
""",
    )
    passes(tmp_path, passed=2)


def test_the_fake_backend_and_the_choice_of_backend_are_as_before(tmp_path):
    write(
        tmp_path,
        test_it="""
import sys, types
import pytest
import nova.rpc.impl_fake as fake
import compat.nova.plugin as plugin
rpc = sys.modules["nova.rpc"]

@pytest.fixture(scope="module")
def service():
    fake.CONSUMERS["kept"] = ["first"]
    rpc._RPCIMPL = fake

def test_1(service):
    fake.CONSUMERS["kept"].append("second")
    fake.CONSUMERS["lost"] = ["third"]
    rpc._RPCIMPL = types.ModuleType("other")
    rpc.cleanup = lambda: None

def test_2(service):
    assert dict(fake.CONSUMERS) == {"kept": ["first"]}
    assert rpc._RPCIMPL is fake
""",
    )
    passes(tmp_path, passed=2)


# --- as nose did ---------------------------------------------------------------------------------


def test_any_skip_test_skips(tmp_path):
    write(
        tmp_path,
        test_it="""
import unittest
class SkipTest(Exception): pass
class Derived(SkipTest): pass
class Error(Exception): pass
def test_function():
    raise SkipTest("mine")
class Test(unittest.TestCase):
    def test_method(self):
        raise Derived("derived")
    def test_standard(self):
        raise unittest.SkipTest("standard")
    def test_nose(self):
        from nose.plugins import skip
        raise skip.SkipTest("of nose")
    def test_error(self):
        raise Error("SkipTest")
class InSetup(unittest.TestCase):
    def setUp(self):
        raise SkipTest("set up")
    def test_method(self):
        raise AssertionError
""",
    )
    said = passes(tmp_path, failed=1, skipped=5)
    assert all(f": {reason}\n" in said for reason in ("mine", "derived", "standard", "of nose", "set up"))


def test_setup_and_teardown_of_packages_and_modules(tmp_path):
    package = "from log import log\ndef setup(): log.append('{0} up')\ndef teardown(): log.append('{0} down')\n"
    write(
        tmp_path,
        log="log = []",
        conftest="""
import log
def pytest_unconfigure():
    print(log.log)
""",
        a__=package.format("a"),
        a__b__=package.format("b").replace("setup", "setup_package").replace("teardown", "teardown_package"),
        a__b__test_1="""
from log import log
def setup(module): log.append(module.__name__)
def test_it(): log.append("1")
""",
        a__test_2="from log import log\ndef teardown(): log.append('2 down')\ndef test_it(): log.append('2')",
        test_3="from log import log\nsetup = None\ndef test_it(): log.append('3')",
    )
    done = suite(tmp_path, "-s")
    order = ["a up", "b up", "a.b.test_1", "1", "2", "2 down", "3", "b down", "a down"]
    assert done.stdout.endswith(f"{order}\n"), done.stdout


# --- the end -------------------------------------------------------------------------------------


def test_nothing_runs_on_after_the_session(tmp_path):
    write(
        tmp_path,
        conftest="""
import gc, threading
import gevent
def pytest_unconfigure():
    alive = [g for g in gc.get_objects() if isinstance(g, gevent.Greenlet) and g and g is not gevent.getcurrent()]
    print("alive:", alive, threading.active_count())
""",
        test_it="""
import threading, time
import gevent
import eventlet
def test_leaves_much_behind():
    gevent.spawn(gevent.sleep, 1000)
    eventlet.spawn(eventlet.sleep, 1000)
    eventlet.spawn_n(eventlet.sleep, 1000)
    threading.Thread(target=time.sleep, args=(1000,)).start()
    eventlet.sleep(0)
def test_they_live_as_long_as_the_session():
    import gc
    assert [g for g in gc.get_objects() if isinstance(g, gevent.Greenlet) and g]
""",
    )
    done = suite(tmp_path, "-s")
    assert "2 passed" in done.stdout, done.stdout
    assert done.stdout.endswith("alive: [] 1\n"), done.stdout


def test_a_base_that_deletes_what_its_tests_left_on_themselves(tmp_path):
    write(
        tmp_path,
        test_it="""
import unittest
class Base(unittest.TestCase):
    def tearDown(self):
        for name in [each for each in vars(self) if not each.startswith("_")]:
            delattr(self, name)
class Test(Base):
    def test_passes(self):
        self.left = 1
    def test_fails(self):
        self.assertEqual(1, 2)
    def test_misses(self):
        self.not_there
""",
    )
    said = passes(tmp_path, failed=2, passed=1)
    assert "1 != 2" in said and "not_there" in said and "delattr" not in said
