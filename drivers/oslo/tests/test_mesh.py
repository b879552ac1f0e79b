"""Several hosts in the url are routers of a mesh: what goes on, and how soon, when one after the other is killed."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from processes import Process, Router, await_mesh, eventually, program, routers_of_mesh

METHODS = ("ask", "tell", "spread", "owe")


@pytest.fixture
def routers() -> Iterator[list[Router]]:
    """Three routers of a mesh."""
    with routers_of_mesh("abc") as made:
        yield made


def report(process: Process, line: str = "") -> Any:
    process.tell(line)
    return json.loads(process.expect(r"^done (.*)")[1])


def has_gone_on(client: Process, before: Any) -> bool:
    now = report(client)
    return all(len(now["seen"][method]) > len(before["seen"][method]) + 20 for method in METHODS)


@pytest.mark.parametrize("kind", ["native", "eventlet"])
def test_everything_goes_on_when_each_router_in_turn_is_killed(kind: str, routers: list[Router]) -> None:
    url = f"rpcmq://{','.join(router.host for router in routers)}/"
    with ExitStack() as stack:
        servers = [stack.enter_context(program("meshed", kind, url, f"node-{n}")) for n in range(2)]
        for server in servers:
            server.expect("^began")
        client = stack.enter_context(program("meshed", kind, url, "client"))
        client.expect("^began")
        for router in routers:
            before = report(client)
            router.kill()
            # Over the others, while this one is away.
            eventually(lambda before=before: has_gone_on(client, before), 60)
            router.restart()
            await_mesh(routers)
        sent = report(client, "end")
        # On a busy machine its server may come back too late for what is owed.
        in_doubt = [text for text in sent["failed"] if text.startswith("owe") and "it may have run" in text]
        assert sent["failed"] == in_doubt

        def heard(method: str) -> list[int]:
            return sorted(n for server in servers for n in report(server)["seen"][method])

        eventually(lambda: set(heard("owe")) >= set(sent["seen"]["owe"]))
        assert not set(sent["undeliverable"]) & set(heard("owe"))
        for method in ("ask", "tell"):
            eventually(lambda method=method: set(heard(method)) >= set(sent["seen"][method]))
            assert sorted(set(heard(method))) == sent["seen"][method], f"{method} that was not sent"
        assert max(Counter(heard("ask")).values()) == 1
        # Its sender was not told of what a server had begun in the last moments of a router: another one runs it, too.
        for server in servers:
            for method in ("tell", "spread", "owe"):
                assert max(Counter(report(server)["seen"][method]).values(), default=1) == 1, f"{method} in one server"
