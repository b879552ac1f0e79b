"""The client in JavaScript, in Node."""

from __future__ import annotations

from collections import deque
from typing import Any

import gevent
import pytest
from gevent import subprocess
from gevent.fileobject import FileObjectPosix

from rpcmq.testing import eventually
from tests.gateway.conftest import Demo, Start, address_of
from tests.gateway.programs import NODE, SCRIPTS, needs_node, node_environment

pytestmark = [pytest.mark.integration, needs_node]


def test_the_suite_passes_in_node(start: Start, token: str, demo: Demo) -> None:
    gateway = start(limits__messages_per_second=0)
    assert NODE is not None
    ended = subprocess.run(
        [NODE, str(SCRIPTS / "run.mjs")],
        env=node_environment(gateway.websocket_url, token),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    lines = ended.stdout.splitlines()
    assert ended.returncode == 0, ended.stderr
    assert [line for line in lines if not line.startswith("ok ")] == [] and len(lines) >= 15
    eventually(lambda: gateway.statistics()["requests"] == 0 and gateway.statistics()["connections"] == 0)
    assert gateway.statistics()["messages"].get("unusable", 0) == 0


def test_a_program_that_closes_its_client_within_a_loop_over_events_ends_in_order(start: Start, token: str) -> None:
    assert NODE is not None
    ended = subprocess.run(
        [NODE, str(SCRIPTS / "closing.mjs")],
        env=node_environment(start().websocket_url, token),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.splitlines() == ["event 1", "the loop has ended"]


class Script:
    """A script of Node that is told lines, and tells some."""

    def __init__(self, name: str, env: dict[str, str]) -> None:
        assert NODE is not None
        self.process = subprocess.Popen(
            [NODE, str(SCRIPTS / name)], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=False
        )
        self.lines: deque[str] = deque()
        assert self.process.stdout is not None
        self._output = FileObjectPosix(self.process.stdout.fileno(), "rb", close=False)
        self._reader = gevent.spawn(self._read)

    def _read(self) -> None:
        for line in self._output:
            self.lines.append(line.decode().rstrip())

    def tell(self, line: str) -> None:
        stdin: Any = self.process.stdin
        stdin.write(f"{line}\n".encode())
        stdin.flush()

    def wait_for(self, line: str) -> None:
        eventually(lambda: line in self.lines)
        self.lines.remove(line)

    def close(self) -> None:
        self.process.kill()
        self.process.wait(10)
        self._reader.kill()
        self._output.close()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()


def test_it_connects_and_subscribes_again_and_repeats_what_may_run_twice(
    start: Start, token: str, demo: Demo, client: Any
) -> None:
    gateway = start()
    host, port = address_of(gateway)
    script = Script("reconnect.mjs", node_environment(gateway.websocket_url, token))
    try:
        script.wait_for("open")
        script.tell("subscribe")
        script.wait_for("subscribed")
        client.publish(None, "disk.a", 1, confirm=True)
        script.wait_for("event 1 gaps 0")
        script.tell("plain p")
        script.tell("again a")
        eventually(lambda: sorted(demo.begun) == ["a", "p"])
        gateway.stop(0.0)
        script.wait_for("close 1001")
        script.wait_for("plain LinkLost")
        script.tell("ping")  # waits for the next connection
        start(listen__bind=f"{host}:{port}")
        script.wait_for("open")
        script.wait_for("ping {}")
        eventually(lambda: client.publish(None, "disk.a", 2, confirm=True) == 1)
        script.wait_for("event 2 gaps 1")
        script.wait_for('again "done"')
        assert demo.begun.count("a") == 2 and demo.begun.count("p") == 1
    finally:
        script.close()
