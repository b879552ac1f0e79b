"""nova.rpc.service."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

BASES = ["plain", "tree"]


class Recorder:
    """A connection that keeps what is done to it."""

    def __init__(self, calls: list[Any]) -> None:
        self.calls = calls

    def create_consumer(self, topic: str, proxy: Any, fanout: bool = False) -> None:
        self.calls.append(("consumer", topic, fanout, proxy))

    def consume_in_thread(self) -> None:
        self.calls.append("consume")

    def close(self) -> None:
        self.calls.append("close")
        raise ConnectionError("gone already")


class Manager:
    def __init__(self, calls: list[Any]) -> None:
        self.calls = calls

    def initialize_service_hook(self, service: Any) -> None:
        self.calls.append(("hook", service))

    def echo(self, ctxt: Any, value: Any) -> Any:
        return value


@pytest.fixture(params=BASES)
def base(request, monkeypatch):
    """The kinds of nova.openstack.common.service: none, or the tree's."""
    calls: list[str] = []

    class TreeService:
        def __init__(self, threads: int = 1000) -> None:
            self.tg = object()

        def start(self) -> None:
            calls.append("start")

        def stop(self) -> None:
            calls.append("stop")

    module = SimpleNamespace(Service=TreeService) if request.param == "tree" else None
    monkeypatch.setitem(sys.modules, "nova.openstack.common.service", module)
    return calls


@pytest.fixture
def service(at, base, monkeypatch):
    """Makes services on recording connections: service and what is done, in order."""
    load = at("havana")
    module = load("nova.openstack.common.rpc.service")

    def make(with_manager: bool = True) -> tuple[Any, list[Any]]:
        calls: list[Any] = []

        def create_connection(new: bool = True) -> Recorder:
            calls.append(("connection", new))
            return Recorder(calls)

        monkeypatch.setattr(load("nova.rpc"), "create_connection", create_connection, raising=False)
        return module.Service("a", "compute", Manager(calls) if with_manager else None), calls

    return make


def test_three_consumers_then_the_hook_then_consuming(service, base):
    made, calls = service()
    made.start()
    kinds = [each[:3] if each[0] == "consumer" else each for each in calls]
    assert kinds == [
        ("connection", True),
        ("consumer", "compute", False),
        ("consumer", "compute.a", False),
        ("consumer", "compute", True),
        ("hook", made),
        "consume",
    ]
    assert calls[1][3].dispatch(None, "1.0", "echo", None, value=7) == 7


def test_what_the_tree_has_is_started_and_stopped_too(service, base):
    made, calls = service()
    made.start()
    made.stop()
    assert base in ([], ["start", "stop"])
    assert hasattr(made, "tg") == bool(base)
    # Though closing failed.
    assert calls[-1] == "close"
    made.stop()
    assert calls.count("close") == 1


def test_a_service_may_be_its_own_manager(service):
    made, calls = service(with_manager=False)
    assert made.manager is made
    made.start()
    assert [each for each in calls if each[0] == "hook"] == []
