"""The whole controller in one process: three services, and a router that the fixture runs."""

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

import rpcmq
from cloud.api import Api
from cloud.compute import Compute
from cloud.errors import InstanceNotFound, NoValidHost
from cloud.scheduler import Scheduler
from rpcmq import rpc
from rpcmq.testing import InProcessRouter, eventually

Nodes = dict[str, rpcmq.Service]


def ask(topic: str, method: str, **args: Any) -> Any:
    return rpc.call(None, topic, {"method": method, "args": args}, timeout=10)


@pytest.fixture
def nodes(rpcmq_router: InProcessRouter) -> Iterator[Nodes]:
    """The cloud, with two nodes that the scheduler knows."""
    with ExitStack() as stack:
        nodes = {name: rpcmq.Service("compute", Compute(name), host=name) for name in ("node-1", "node-2")}
        services = [rpcmq.Service("api", Api()), rpcmq.Service("scheduler", Scheduler()), *nodes.values()]
        for service in services:
            stack.enter_context(service)
        rpc.fanout_cast(None, "compute", {"method": "report"})
        eventually(lambda: len(ask("scheduler", "nodes")) == 2)
        yield nodes


def test_an_instance_is_booted_shown_and_deleted(nodes: Nodes) -> None:
    instance = ask("api", "create", name="web-1")
    assert ask("api", "show", name="web-1") == instance

    ask("api", "delete", name="web-1")  # api casts that to the node: it happens soon

    def gone() -> bool:
        with pytest.raises(InstanceNotFound):
            ask("api", "show", name="web-1")
        return True

    eventually(gone)


def test_a_node_that_is_gone_is_passed_over(nodes: Nodes) -> None:
    nodes["node-1"].stop()
    assert ask("api", "create", name="web-1")["host"] == "node-2"


def test_the_user_is_told_that_there_is_no_room(nodes: Nodes) -> None:
    with pytest.raises(NoValidHost, match="no node has 9000 MiB free"):
        ask("api", "create", name="web-1", memory_mb=9000)


def test_progress_comes_from_the_node_to_the_user(nodes: Nodes) -> None:
    told: list[str] = []
    message = {"method": "create", "args": {"name": "web-1"}}
    instance = rpc.call(None, "api", message, timeout=10, on_progress=told.append)
    assert told == [f"{instance['host']}: {step}" for step in ("image", "network", "power")]


def test_a_console_is_a_stream(nodes: Nodes) -> None:
    ask("api", "create", name="web-1")
    lines = rpc.multicall(None, "api", {"method": "console", "args": {"name": "web-1"}})
    assert list(lines) == ["web-1: line 1", "web-1: line 2", "web-1: line 3"]


def test_all_who_listen_hear_what_happened(nodes: Nodes) -> None:
    heard: list[str] = []
    rpc.subscribe("instance.#", lambda ctx, topic, payload: heard.append(payload["name"]))
    ask("api", "create", name="web-1")
    eventually(lambda: heard == ["web-1"])
