from __future__ import annotations

import os
import signal
import sys

import pytest

from rpcmq.client import Client
from rpcmq.testing import eventually
from rpcmq.testing.processes import Program, RouterProcess


def python(code: str, **env: str) -> Program:
    return Program([sys.executable, "-c", code], env, name="snippet")


def test_lines_are_waited_for():
    with python("print('one'); print('two 2'); input(); print('three')") as program:
        assert program.expect(r"two (\d)")[1] == "2"
        program.tell("")
        program.expect("three")
        assert program.wait() == 0
        assert program.lines == ["one", "two 2", "three"]


def test_what_it_said_is_part_of_the_error():
    with (
        python("import sys; print('reason', file=sys.stderr); sys.exit(3)") as program,
        pytest.raises(AssertionError, match=r"snippet \(ended with 3\) did not say 'ready'; it said:\nreason"),
    ):
        program.expect("ready")
    with (
        python("print('busy'); input()") as program,
        pytest.raises(AssertionError, match=r"snippet \(runs\) did not say 'ready'; it said:\nbusy"),
    ):
        program.expect("ready", timeout=1)


def test_it_is_gone_when_the_block_ends():
    with python("import time; print('up'); time.sleep(100)") as program:
        program.expect("up")
        pid = program.pid
        program.pause()
    assert not os.path.exists(f"/proc/{pid}")
    assert program.exit_code == -signal.SIGKILL


def test_waiting_is_bounded():
    with python("import time; time.sleep(100)") as program:
        with pytest.raises(AssertionError, match=r"snippet still runs after 0.1 s"):
            program.wait(0.1)
        program.kill()
        program.kill()


def test_the_environment_is_passed_without_ours(monkeypatch):
    monkeypatch.setenv("RPCMQ_ROUTER", "tcp://127.0.0.1:1")
    monkeypatch.setenv("KEPT", "kept")
    code = "import os; print(os.environ.get('RPCMQ_ROUTER'), os.environ['KEPT'], os.environ['GIVEN'])"
    with python(code, GIVEN="given") as program:
        program.expect("None kept given")


def test_a_router_that_comes_back_on_the_same_port():
    with RouterProcess(link_heartbeat_seconds=0.5) as router:
        with Client(router.url) as client:
            assert client.query("summary")["router_id"] == 1
            boot = client.query("summary")["boot"]
            router.kill()
            router.restart()
            eventually(lambda: client.process.connection.connected and client.query("summary")["boot"] != boot)
        assert router.varz()["process"]["lost_wakeups"] == 0
        router.signal(signal.SIGTERM)
        assert router.wait() == 0
