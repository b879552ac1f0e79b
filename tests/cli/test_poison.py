"""``rpcmq poison`` as an operator types it, at a router whose consumers die of one argument."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rpcmq import Client
from rpcmq.errors import CallQuarantined, LinkLost
from rpcmq.testing import eventually
from rpcmq.testing.processes import Program, RouterProcess
from tests.server.daemons import run

pytestmark = pytest.mark.integration

Invoke = Callable[..., SimpleNamespace]

#: Two; or three where a machine was so busy that one of them seems to have died much later than the other.
KILLED = "has killed [23] consumers"

#: It dies of b = 0, in a way that no handler can catch, until the file in its argument is there.
SERVICE = """
import os, signal, sys
from pathlib import Path
from rpcmq import Service

class Compute:
    def divide(self, ctx, a, b):
        if b == 0 and not Path(sys.argv[2]).exists():
            os.kill(os.getpid(), signal.SIGKILL)
        return a / b if b else 0

with Service("compute", Compute(), router=sys.argv[1], host=sys.argv[3]) as service:
    print("serving", flush=True)
    service.wait()
"""


class Servers:
    """Processes that serve ``compute``, at routers that they are given."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self._program = folder / "compute.py"
        self._program.write_text(SERVICE)
        self.mended = folder / "mended"
        self._stack = stack
        self.all: list[Program] = []

    def start(self, url: str, count: int = 1) -> None:
        started: list[Program] = []
        for _ in range(count):
            name = f"node-{len(self.all) + len(started)}"
            command = [sys.executable, str(self._program), url, str(self.mended), name]
            started.append(self._stack.enter_context(Program(command, name=name)))
        for each in started:
            each.expect("serving")
        self.all += started

    @property
    def dead(self) -> int:
        return sum(each.exit_code is not None for each in self.all)


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[Servers]:
    with ExitStack() as stack:
        yield Servers(tmp_path, stack)


@pytest.fixture
def router(tmp_path: Path) -> Iterator[RouterProcess]:
    file = tmp_path / "router.toml"
    file.write_text('[[node]]\ntype = "poison"\n')
    with RouterProcess(file=str(file)) as started:
        yield started


def divide(client: Client, b: int, **options: Any) -> Any:
    return client.call(None, "compute", {"method": "divide", "args": {"a": 6, "b": b}}, timeout=60, **options)


def divide_until_stopped(client: Client) -> None:
    """Divide by zero until anything else comes of it than the death of the server, three times at most."""
    for _ in range(4):
        with pytest.raises(LinkLost):
            divide(client, 0)


def poison(url: str, *words: str) -> Any:
    ended = run("poison", *words, "--json", env={"RPCMQ_ROUTER": url})
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


def has_said(router: RouterProcess, text: str) -> bool:
    """Return whether ``text`` is in the router's log, before its first line on where it listens or after it."""
    return any(text in line for line in router.lines)


def states(url: str) -> list[str]:
    return [row["state"] for row in poison(url, "ls")["calls"]]


@pytest.mark.long
@pytest.mark.timeout(300)
def test_a_call_that_kills_is_stopped_shown_and_released(
    router: RouterProcess, servers: Servers, invoke: Invoke
) -> None:
    servers.start(router.url, 5)
    env = {"RPCMQ_ROUTER": router.url}
    with Client(router.url) as client:
        assert poison(router.url, "ls")["calls"] == []
        with pytest.raises(CallQuarantined, match=KILLED) as caught:
            divide(client, 0, idempotent=True)
        killed = f"{caught.value}".count("after it was given it")
        assert killed in (2, 3)
        assert [divide(client, 3) for _ in range(8)] == [2.0] * 8
        with pytest.raises(CallQuarantined) as again:
            divide(client, 0)
        assert again.value.details["started"] == "no"
        eventually(lambda: servers.dead == killed)

        listed = invoke("poison", "ls", env=env)
        assert listed.returncode == 0 and "quarantined" in listed.stdout and "divide" in listed.stdout
        (row,) = poison(router.url, "ls")["calls"]
        story = invoke("poison", "show", row["fingerprint"][:12], env=env).stdout
        assert story.count("killed ") == killed and "'divide' of 'compute'" in story and "2 stopped" in story
        refused = invoke("poison", "show", "0" * 12, env=env)
        assert refused.returncode != 0 and "no call with a fingerprint 000000000000" in refused.stderr
        assert [invoke("poison", verb, "", env=env).returncode for verb in ("show", "release")] == [2, 2]
        for words in ((), ("--all", "--revoked"), (row["fingerprint"], "--revoked")):
            assert invoke("poison", "release", *words, env=env).returncode == 2
        none = invoke("poison", "release", "--revoked", env=env)
        assert none.returncode == 0 and "no call is quarantined" in none.stdout

        servers.mended.touch()
        released = invoke("poison", "release", row["fingerprint"], env=env)
        assert released.returncode == 0 and f"released {row['fingerprint'][:12]}" in released.stdout
        assert divide(client, 0) == 0
        assert poison(router.url, "release", "--all")["calls"] == []
        assert servers.dead == killed
    router.expect("quarantined: 'divide' of 'compute'")
    router.expect(f"has released 'divide' of 'compute', which had killed {killed} consumers")


@pytest.mark.long
@pytest.mark.timeout(300)
def test_a_caller_that_retries_by_itself_is_stopped_too(router: RouterProcess, servers: Servers) -> None:
    servers.start(router.url, 5)
    with Client(router.url) as client:
        with pytest.raises(CallQuarantined, match=KILLED):
            divide_until_stopped(client)
        assert divide(client, 2) == 3
    assert servers.dead in (2, 3)


@pytest.mark.long
@pytest.mark.timeout(300)
def test_two_routers_of_a_mesh_count_kills_together_and_release_together(
    router: RouterProcess, servers: Servers, tmp_path: Path
) -> None:
    file = tmp_path / "other.toml"
    file.write_text(f'[mesh]\npeers = ["{router.url}"]\n\n[[node]]\ntype = "poison"\n')
    with RouterProcess(file=str(file), router_name="other") as other, Client(other.url) as client:
        router.expect("linked to router other")
        servers.start(router.url, 2)
        servers.start(other.url, 2)
        with pytest.raises(CallQuarantined, match=KILLED):
            divide(client, 0, idempotent=True)
        eventually(lambda: states(router.url) == states(other.url) == ["quarantined"], 60)
        with Client(router.url) as here, pytest.raises(CallQuarantined):
            divide(here, 0)
        assert divide(client, 3) == 2
        servers.mended.touch()
        assert len(poison(router.url, "release", "--all")["calls"]) == 1
        eventually(lambda: poison(other.url, "ls")["calls"] == [], 60)
        assert divide(client, 0) == 0
    assert servers.dead in (2, 3)


@pytest.mark.long
@pytest.mark.timeout(300)
def test_quarantines_and_releases_outlive_a_router_that_is_killed(
    servers: Servers, tmp_path: Path, invoke: Invoke
) -> None:
    state = tmp_path / "poison.state"
    file = tmp_path / "router.toml"
    file.write_text(f'[[node]]\ntype = "poison"\nfile = "{state}"\n')
    with RouterProcess(file=str(file)) as router:
        servers.start(router.url, 4)
        with Client(router.url) as client:
            with pytest.raises(CallQuarantined):
                divide(client, 0, idempotent=True)
            (before,) = poison(router.url, "ls")["calls"]
            eventually(state.exists, 60)
            router.kill()
            router.restart()
            eventually(partial(has_said, router, "quarantines that were in force when the router ended: 1"), 60)
            (after,) = poison(router.url, "ls")["calls"]
            assert after["kills"] == before["kills"] and after["state"] == "quarantined"
            with pytest.raises(CallQuarantined, match=KILLED):
                divide(client, 0)
            assert divide(client, 3) == 2.0

            released = invoke("poison", "release", "--all", env={"RPCMQ_ROUTER": router.url})
            assert released.returncode == 0 and not released.stderr, "it is on the disk when that is answered"
            router.kill()
            router.restart()
            assert poison(router.url, "ls")["calls"] == []
            servers.mended.touch()
            assert divide(client, 0) == 0


@pytest.mark.long
@pytest.mark.timeout(300)
def test_a_file_that_is_damaged_or_cannot_be_written_costs_the_router_nothing_else(
    servers: Servers, tmp_path: Path, invoke: Invoke
) -> None:
    folder = tmp_path / "state"
    folder.mkdir()
    (folder / "poison.state").write_bytes(b"nonsense")
    file = tmp_path / "router.toml"
    file.write_text(f'[[node]]\ntype = "poison"\nfile = "{folder}/poison.state"\n')
    with RouterProcess(file=str(file)) as router, Client(router.url) as client:
        eventually(partial(has_said, router, "poison.state: is damaged"), 60)
        servers.start(router.url, 4)
        (folder / "poison.state.new").mkdir()
        with pytest.raises(CallQuarantined):
            divide(client, 0, idempotent=True)
        eventually(partial(has_said, router, "poison.state: cannot be written: Is a directory; it is tried again"), 60)
        released = invoke("poison", "release", "--all", env={"RPCMQ_ROUTER": router.url})
        assert released.returncode == 0 and "the release is not on the disk" in released.stderr
        assert divide(client, 3) == 2.0
        (folder / "poison.state.new").rmdir()
        eventually(partial(has_said, router, "is written again"), 60)
    assert (folder / "poison.state.damaged").read_bytes() == b"nonsense"


def test_a_router_without_the_node_says_what_to_do(invoke: Invoke, system: SimpleNamespace) -> None:
    refused = invoke("poison", "ls", env=system.env)
    assert refused.returncode == 1
    assert refused.stderr == (
        'rpcmq: this router has no node of type "poison": add [[node]] with type = "poison" to its configuration\n'
    )
