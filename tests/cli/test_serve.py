"""``rpcmq serve``: what it serves, from where, and how it ends."""

from __future__ import annotations

import os
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import gevent
import pytest

from rpcmq.testing.processes import Program, RouterProcess
from tests.server.daemons import run, started

pytestmark = pytest.mark.integration

Invoke = Callable[..., SimpleNamespace]


def test_a_module_of_the_current_directory_is_served_until_sigterm(
    invoke: Invoke, system: SimpleNamespace, tmp_path: Path
) -> None:
    (tmp_path / "greeter.py").write_text("def greet(ctx, name):\n    return f'hello {name}'\n")
    serve = ("serve", "greeter", "--topic", "greetings", "--host", "here", "--concurrency", "3")
    with started(*serve, env=system.env, cwd=tmp_path) as service:
        record = service.wait_for("serving", topic="greetings.here", router=system.url)
        assert invoke("call", "greetings", "greet", "name=you", env=system.env).stdout == '"hello you"\n'
        view = invoke("ls", "--view", "topics", env=system.env).stdout
        [row] = [line.split() for line in view.splitlines() if record["identity"] in line]
        assert row[3] == "3"
        service.signal(signal.SIGTERM)
        assert service.exit_code() == 0
    assert service.records[-1]["event"] == "stopped"


def test_requests_run_in_threads_where_the_environment_asks_for_them(
    invoke: Invoke, system: SimpleNamespace, tmp_path: Path
) -> None:
    (tmp_path / "where.py").write_text(
        "import threading\n\n\ndef name(ctx):\n    return threading.current_thread().name\n"
    )
    serve = ("serve", "where", "--topic", "where", "--host", "here")
    with started(*serve, env={**system.env, "RPCMQ_SHELL": "threads"}, cwd=tmp_path) as service:
        identity = service.wait_for("serving", topic="where.here")["identity"]
        assert invoke("call", "where", "name", env=system.env).stdout == '"rpcmq worker"\n'
        view = invoke("ls", "--view", "topics", env=system.env).stdout
        [row] = [line.split() for line in view.splitlines() if identity in line]
        assert row[3] == "16"
        service.signal(signal.SIGTERM)
        assert service.exit_code() == 0


def test_a_module_is_served_at_all_routers_that_are_given(
    invoke: Invoke, system: SimpleNamespace, tmp_path: Path
) -> None:
    (tmp_path / "greeter.py").write_text("def greet(ctx, name):\n    return f'hello {name}'\n")
    with RouterProcess() as other:
        serve = ("serve", "greeter", "--topic", "greetings", "--host", "here", "--router", f"{system.url},{other.url}")
        with started(*serve, env=system.env, cwd=tmp_path) as service:
            record = service.wait_for("serving", router=f"{system.url}, {other.url}")
            for url in (system.url, other.url):
                asked = invoke("call", "greetings", "greet", "name=you", "--router", url, env=system.env)
                assert asked.stdout == '"hello you"\n'
                view = invoke("ls", "--router", url, env=system.env).stdout
                assert any(record["identity"] in line and "(consumer)" in line for line in view.splitlines()), view
            service.signal(signal.SIGTERM)
            assert service.exit_code() == 0


def test_methods_call_others_over_the_connection_of_the_service(
    invoke: Invoke, system: SimpleNamespace, tmp_path: Path
) -> None:
    text = (
        "import rpcmq\n"
        "def inner(ctx): return rpcmq.rpc.client().identity\n"
        "def outer(ctx): return rpcmq.rpc.call(ctx, 'chain', {'method': 'inner'})\n"
        "def seconds(ctx): return rpcmq.rpc.client().config.timeout\n"
    )
    (tmp_path / "chain.py").write_text(text)
    elsewhere = system.env | {"RPCMQ_ROUTER": f"ipc://{tmp_path}/nobody", "RPCMQ_TIMEOUT": "77"}
    with started("serve", "chain", "--topic", "chain", "--router", system.url, env=elsewhere, cwd=tmp_path) as service:
        record = service.wait_for("serving")
        ended = invoke("call", "chain", "outer", "--timeout", "20", env=system.env)
        assert (ended.stdout, ended.stderr) == (f'"{record["identity"]}"\n', "")
        assert invoke("call", "chain", "seconds", env=system.env).stdout == "77.0\n"


def test_what_a_module_imports_is_not_served(invoke: Invoke, system: SimpleNamespace, tmp_path: Path) -> None:
    text = "from os import listdir\nfrom sys import exit\ndef items(ctx):\n    return iter([1, 2])\n"
    (tmp_path / "importer.py").write_text(text)
    with started("serve", "importer", "--topic", "imported", env=system.env, cwd=tmp_path) as service:
        service.wait_for("serving")
        described = invoke("describe", "imported", env=system.env).stdout
        assert "items(ctx)" in described and "listdir" not in described and "exit" not in described
        for method in ("listdir", "exit"):
            ended = invoke("call", "imported", method, env=system.env)
            assert ended.returncode == 9 and f"has no public method {method!r}" in ended.stderr
        assert invoke("call", "imported", "items", "--multi", env=system.env).stdout == "1\n2\n"
        ended = invoke("call", "imported", "items", env=system.env)
        assert ended.returncode == 6 and "ask for it with multicall (rpcmq call --multi)" in ended.stderr


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("async def greet(ctx): pass\n", "refused: method 'greet' cannot be served: it is async"),
        ("from os import listdir\ndef _hidden(ctx): pass\n", "there is nothing to serve"),
    ],
)
def test_what_could_not_be_run_is_refused_at_start(
    system: SimpleNamespace, tmp_path: Path, text: str, complaint: str
) -> None:
    (tmp_path / "refused.py").write_text(text)
    ended = run("serve", "refused", "--topic", "refused", env=system.env, cwd=tmp_path)
    assert ended.returncode == 2 and complaint in ended.stderr and "Traceback" not in ended.stderr


@pytest.mark.parametrize("path", ["tests.cli.endpoints:instance", "tests.cli.endpoints:Compute"])
def test_an_instance_or_a_class_is_served(invoke: Invoke, system: SimpleNamespace, path: str) -> None:
    with started("serve", path, "--topic", "objects", env=system.env) as service:
        service.wait_for("serving")
        assert invoke("call", "objects", "add", "a=1", env=system.env).stdout == "3\n"
        service.signal(signal.SIGINT)
        assert service.exit_code() == 0


def test_a_failing_cast_is_logged(invoke: Invoke, system: SimpleNamespace) -> None:
    with started("serve", "tests.cli.endpoints:instance", "--topic", "failing", env=system.env) as service:
        service.wait_for("serving")
        assert invoke("cast", "failing", "fail", "text=broken", env=system.env).returncode == 0
        record = service.wait_for("cast failed", level="error")
        assert record["topic"] == f"failing.{socket.gethostname()}" and record["method"] == "fail"
        assert "ValueError: broken" in record["exception"]


@pytest.mark.parametrize(
    ("path", "complaint"),
    [
        ("no_such_module:X", "cannot import 'no_such_module'"),
        ("tests.cli.endpoints:Nope", "'tests.cli.endpoints:Nope': module 'tests.cli.endpoints' has no 'Nope'"),
        ("tests.cli.endpoints:Demanding", "cannot be made without arguments"),
    ],
)
def test_what_cannot_be_served_is_code_2(system: SimpleNamespace, path: str, complaint: str) -> None:
    ended = run("serve", path, "--topic", "x", env=system.env)
    assert ended.returncode == 2 and complaint in ended.stderr and "Traceback" not in ended.stderr


def test_a_handler_that_exits_does_not_end_the_service_and_a_signal_does(
    invoke: Invoke, system: SimpleNamespace
) -> None:
    with started("serve", "tests.cli.endpoints:instance", "--topic", "exits", env=system.env) as service:
        service.wait_for("serving")
        beside = gevent.spawn(run, "call", "exits", "sleep", "seconds=1", env=system.env)
        for name in ("SystemExit", "KeyboardInterrupt"):
            ended = invoke("call", "exits", "end", f"name={name}", env=system.env)
            assert ended.returncode != 0 and f"{name}: asked to" in ended.stderr
        assert beside.get(timeout=30).stdout == "1\n"
        service.signal(signal.SIGINT)
        assert service.exit_code() == 0


#: Serves without waiting for signals itself, so that Python turns SIGINT into a KeyboardInterrupt.
SERVING = """
import gevent, signal, sys
import rpcmq

class Endpoint:
    def compute(self, ctx):
        print("computing", flush=True)
        while True:
            pass

signal.signal(signal.SIGINT, signal.default_int_handler)
with rpcmq.Service("interrupted", Endpoint()):
    print("serving", flush=True)
    gevent.sleep(60)
"""


def test_ctrl_c_ends_the_program_though_a_handler_is_what_it_interrupts(
    invoke: Invoke, system: SimpleNamespace
) -> None:
    with Program([sys.executable, "-c", SERVING], system.env, name="serving") as program:
        program.expect("serving")
        assert invoke("cast", "interrupted", "compute", env=system.env).returncode == 0
        program.expect("computing")
        os.kill(program.pid, signal.SIGINT)
        assert program.wait(30) != 0
