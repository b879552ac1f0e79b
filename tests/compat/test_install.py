"""install() in processes of their own: it patches the standard library for good."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from gevent import subprocess

from tests.compat.test_finder import write

ROOT = Path(__file__).parents[2]


def python(code: str, cwd: Path) -> str:
    """Run ``code``, which must end well; return its output."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        cwd=cwd,
        env={"PYTHONPATH": str(ROOT), "PATH": ""},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    output: str = done.stdout
    return output


def test_importing_the_shim_loads_nothing_else(tmp_path):
    loaded = python("import sys, compat.nova; print('gevent' in sys.modules, 'rpcmq' in sys.modules)", tmp_path)
    assert loaded == "False False\n"


def test_it_patches_first(tmp_path):
    program = """
import compat.nova
compat.nova.install()
from gevent import monkey
print([monkey.is_module_patched(name) for name in ("socket", "threading", "time", "subprocess", "select")])
import gevent, time
order = []
gevent.spawn(lambda: order.append("other"))
time.sleep(0)
print(order)
"""
    assert python(program, tmp_path) == f"{[True] * 5}\n['other']\n"


def test_after_ssl_was_imported_it_warns_and_goes_on(tmp_path):
    program = """
import ssl
class Context(ssl.SSLContext): pass
import warnings
warnings.simplefilter("error")
import compat.nova
import contextlib, io
with contextlib.redirect_stderr(io.StringIO()) as said:
    compat.nova.install()
print("Monkey-patching ssl" in said.getvalue())
"""
    assert python(program, tmp_path) == "True\n"


def test_it_loads_what_lies_below_modules_under_the_legacy_names(tmp_path):
    program = """
import compat.nova
compat.nova.install()
from nova import flags
from nova.openstack.common import cfg
from nova.rpc import common
from nova.openstack.common.rpc import common as newer
from compat.nova.rpc import common as redirected
print(common is newer is redirected, common.RemoteError.__module__, flags.__name__, cfg.__name__)
print(_("text"))
"""
    assert python(program, tmp_path) == "True nova.rpc.common nova.flags nova.openstack.common.cfg\ntext\n"


def test_a_translation_that_is_there_stays(tmp_path):
    program = """
import builtins
builtins._ = str.upper
import compat.nova
compat.nova.install()
print(_("text"))
compat.nova.uninstall()
print(_("text"))
"""
    assert python(program, tmp_path) == "TEXT\nTEXT\n"


# --- trees and eras ------------------------------------------------------------------------------


def test_a_stand_in_counts_as_essex_until_something_newer_is_imported(tmp_path):
    program = """
import compat.nova
compat.nova.install()
print(compat.nova.tree(), compat.nova.era())
import nova.flags
print(compat.nova.era())
import nova.rpc.dispatcher
print(compat.nova.era())
from oslo.config import cfg
print(compat.nova.era())
"""
    assert python(program, tmp_path).split() == ["None", "essex", "essex", "folsom", "grizzly"]


def test_the_era_is_read_off_the_tree_that_is_given(tmp_path):
    write(tmp_path / "tree", nova__="", nova__rpc="def multicall(): pass", nova__service="name = 'of the tree'")
    program = """
import compat.nova
compat.nova.install(tree="tree")
from nova import service
print(compat.nova.era(), compat.nova.tree(), service.name)
"""
    assert python(program, tmp_path) == f"diablo {tmp_path / 'tree'} of the tree\n"


def test_the_tree_may_come_onto_the_path_later(tmp_path):
    write(tmp_path / "tree", nova__="", nova__context="overwrite = True", nova__openstack__common__timeutils="")
    program = """
import sys
import compat.nova
compat.nova.install()
print(compat.nova.era(), compat.nova.tree())
sys.path.insert(0, "tree")
print(compat.nova.era(), compat.nova.tree())
from nova import context
print(context.overwrite)
"""
    assert python(program, tmp_path) == f"essex None\nfolsom {tmp_path / 'tree'}\nTrue\n"


def test_the_era_that_is_given_holds(tmp_path):
    write(tmp_path, nova__="", nova__rpc="def multicall(): pass")
    program = """
import compat.nova
compat.nova.install(era="folsom")
print(compat.nova.era())
"""
    assert python(program, tmp_path) == "folsom\n"


@pytest.mark.parametrize(
    ("era", "base"), [("folsom", "nova.rpc.proxy"), ("havana", "nova.openstack.common.rpc.proxy"), (None, None)]
)
def test_the_proxy_of_the_era(tmp_path, era, base):
    program = f"""
import compat.nova
compat.nova.install(era={era!r})
import importlib
print(importlib.import_module("nova.openstack.common.rpc.proxy").__name__)
"""
    assert python(program, tmp_path).strip() == (base or "nova.openstack.common.rpc.proxy")


# --- again, too late, wrong ----------------------------------------------------------------------


def test_a_second_time_changes_nothing(tmp_path):
    write(tmp_path / "tree", nova__="")
    program = """
import sys, compat.nova
compat.nova.install("tree", "essex")
before = [*sys.meta_path]
compat.nova.install()
compat.nova.install("tree")
compat.nova.install(era="essex")
print(sys.meta_path == before)
for arguments in ({"tree": "."}, {"tree": False}, {"era": "folsom"}):
    try:
        compat.nova.install(**arguments)
    except (RuntimeError, ValueError) as error:
        print(type(error).__name__)
"""
    write(tmp_path, nova__="")
    assert python(program, tmp_path).split() == ["True"] + ["RuntimeError"] * 3


@pytest.mark.parametrize("name", ["nova", "eventlet"])
def test_it_must_come_before_what_it_provides(tmp_path, name):
    write(tmp_path, **{name: ""})
    program = f"""
import {name}, compat.nova
try:
    compat.nova.install()
except RuntimeError as error:
    print(error)
print(compat.nova.installed())
"""
    said = python(program, tmp_path)
    assert f"before {name} is imported" in said
    assert f"{name}.py" in said
    assert said.endswith("False\n")


@pytest.mark.parametrize(("arguments", "text"), [("tree='.'", "no directory 'nova' in"), ("era='icehouse'", "havana")])
def test_wrong_arguments_say_what_is_right(tmp_path, arguments, text):
    program = f"""
import compat.nova
try:
    compat.nova.install({arguments})
except ValueError as error:
    print(error)
print(compat.nova.installed())
"""
    said = python(program, tmp_path)
    assert text in said
    assert said.endswith("False\n")


def test_uninstall_forgets_all_of_it(tmp_path):
    program = """
import sys, compat.nova
before = [*sys.meta_path]
compat.nova.install()
from nova import flags
import eventlet, exceptions, oslo.config.cfg
from eventlet.green import socket
from compat.nova.rpc import common
print(sys.meta_path == before)
compat.nova.uninstall()
print(sys.meta_path == before, compat.nova.installed(), hasattr(compat.nova, "rpc"))
print([name for name in sys.modules if name.split(".")[0] in ("nova", "eventlet", "exceptions", "oslo")])
print("compat.nova.rpc.common" in sys.modules)
compat.nova.install(era="folsom")
from nova import flags as again
print(again is flags)
"""
    assert python(program, tmp_path) == "False\nTrue False False\n[]\nFalse\nFalse\n"


@pytest.mark.parametrize("raised", ["KeyboardInterrupt", "SystemExit", "Ended", "GreenletExit"])
def test_what_the_handler_of_a_signal_raises_reaches_the_main_green_thread(tmp_path, raised):
    program = f"""
import compat.nova
compat.nova.install()
import os, signal, eventlet
from greenlet import GreenletExit
class Ended(Exception): pass
def handler(signo, frame):
    eventlet.sleep(0)
    raise {raised}()
signal.signal(signal.SIGTERM, handler)
eventlet.spawn_after(0.05, os.kill, os.getpid(), signal.SIGTERM)
try:
    eventlet.sleep(20)
except {raised} as error:
    print("main got it", eventlet.spawn(lambda: "and goes on").wait())
"""
    assert python(program, tmp_path) == "main got it and goes on\n"


# --- what Python 3 lacks -------------------------------------------------------------------------


def test_names_of_python_2_are_back(tmp_path):
    program = """
import compat.nova
compat.nova.install()
import collections, gettext, inspect, io, string, time, unittest
def function(a, b=1, *c, **d): pass
print(collections.Mapping.__name__, inspect.getargspec(function).args, inspect.getargspec(function).keywords)
print(string.letters[:2], string.lowercase[:2], time.clock() >= 0)
gettext.install("nova", unicode=1)
print(_("text"), gettext.translation("nova", fallback=True).ugettext("text"))
class Test(unittest.TestCase):
    def runTest(self):
        self.assertItemsEqual([1, 2], [2, 1])
        self.assertRaises(AssertionError, self.assertItemsEqual, [1], [2])
print(unittest.TextTestRunner(stream=io.StringIO()).run(Test()).wasSuccessful())
"""
    assert python(program, tmp_path) == "Mapping ['a', 'b'] d\nab ab True\ntext text\nTrue\n"
