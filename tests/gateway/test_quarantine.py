"""A call from JavaScript that kills the services which run it: the error that it gets, in Node and in a browser."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from gevent import subprocess

from rpcmq import Client
from rpcmq.gateway import Gateway, load_settings
from rpcmq.testing.processes import Program, RouterProcess
from tests.gateway.chromium import chromium
from tests.gateway.conftest import Secrets
from tests.gateway.programs import NODE, SCRIPTS, needs_chromium, needs_node, node_environment

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.timeout(240)]

SERVICE = """
import os, signal, sys
from rpcmq import Service

class Compute:
    def divide(self, ctx, b):
        if b == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return 6 // b

with Service("compute", Compute(), router=sys.argv[1]) as service:
    print("serving", flush=True)
    service.wait()
"""


@pytest.fixture
def gateway(tmp_path: Path, secrets: Secrets) -> Iterator[Gateway]:
    """A gateway at a router with the node poison, at which four processes serve ``compute``."""
    config, program = tmp_path / "router.toml", tmp_path / "compute.py"
    config.write_text('[[node]]\ntype = "poison"\n')
    program.write_text(SERVICE)
    with RouterProcess(file=str(config)) as router, ExitStack() as stack:
        services = [Program([sys.executable, str(program), router.url], name=f"s{n}") for n in range(4)]
        for each in services:
            stack.enter_context(each)
        for each in services:
            each.expect("serving")
        client = stack.enter_context(Client(router.url, shell="gevent", format="json", timeout=30))
        given = {"listen.bind": "127.0.0.1:0", "access.tokens": secrets.path, "pages.folder": str(SCRIPTS)}
        started = Gateway(client, load_settings(None, given))
        started.start()
        yield started
        started.stop(0.0)
        assert sum(each.exit_code is not None for each in services) in (2, 3)


def assert_quarantined(lines: list[str]) -> None:
    *lost, stopped, other = lines
    # It takes a third one where the machine is so busy that one seems to have died much later than the other.
    assert len(lost) in (2, 3) and all(each.startswith("LinkLost false false") for each in lost)
    assert stopped.startswith("CallQuarantined true true no quarantined: 'divide' of 'compute' with this payload has")
    assert "`rpcmq poison release" in stopped
    assert other == "answer 3"


@needs_node
def test_in_node(gateway: Gateway, secrets: Secrets) -> None:
    token = secrets.add("web", "call:compute")
    assert NODE is not None
    env = node_environment(gateway.websocket_url, token) | {"SUITE": "./quarantine.mjs"}
    command = [NODE, str(SCRIPTS / "run.mjs")]
    ended = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 0, ended.stderr
    assert_quarantined(ended.stdout.splitlines())


@needs_chromium
def test_in_a_browser(gateway: Gateway, secrets: Secrets) -> None:
    token = secrets.add("web", "call:compute")
    with chromium(f"{gateway.url}/blank.html") as page:
        lines = page.run(
            f"""Promise.all([import("/quarantine.mjs"), import("/rpcmq.js")])
                .then(([{{ run }}, m]) => run(m, {{ token: {token!r} }}))"""
        )
    assert_quarantined(lines)
