from __future__ import annotations

import os
import sys

from gevent import subprocess

TEST = """
import rpcmq
from rpcmq import rpc

class Calculator:
    def add(self, ctx, a, b):
        return a + b

def test_router(rpcmq_router):
    with rpcmq.Service("calculator", Calculator()):
        assert rpc.call(None, "calculator", {"method": "add", "args": {"a": 1, "b": 2}}) == 3

def test_client(rpcmq_router, rpcmq_client):
    with rpcmq.Service("calculator", Calculator(), client=rpcmq_client):
        assert rpcmq_client.call(None, "calculator", {"method": "add", "args": {"a": 1, "b": 2}}) == 3
    assert rpcmq_client.config.router == (rpcmq_router.url,)

def test_none():
    assert "RPCMQ_ROUTER" not in __import__("os").environ
"""


def run(path: object, *arguments: str) -> subprocess.CompletedProcess[str]:
    env = {k: v for k, v in os.environ.items() if k != "RPCMQ_ROUTER"} | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "rpcmq.testing.plugin", "-p", "no:cacheprovider"]
    return subprocess.run(
        [*command, *arguments, str(path)], capture_output=True, text=True, timeout=60, env=env, check=False
    )


def test_the_fixtures_in_a_project_of_someone_else(tmp_path):
    (tmp_path / "test_it.py").write_text(TEST)
    shown = run(tmp_path)
    assert "3 passed" in shown.stdout, shown.stdout + shown.stderr


def test_collecting_loads_neither_gevent_nor_zeromq(tmp_path):
    (tmp_path / "conftest.py").write_text(
        "import sys\n"
        "def pytest_sessionfinish():\n"
        "    print('loaded', sorted({'gevent', 'zmq', 'greenlet', 'dill'} & set(sys.modules)))\n"
    )
    (tmp_path / "test_it.py").write_text("def test_nothing(): pass\n")
    shown = run(tmp_path, "-s")
    assert "loaded []" in shown.stdout, shown.stdout + shown.stderr


def test_the_fixtures_are_described(tmp_path):
    shown = run(tmp_path, "--fixtures")
    assert "A router inside the test process, for one test" in shown.stdout
    assert "A client of ``rpcmq_router``" in shown.stdout
