"""oslo.metrics: what oslo.messaging counts of calls and casts over the driver reaches its collector."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import oslo_messaging
import pytest
from oslo_config import cfg
from oslo_messaging._metrics import client as metrics_client
from oslo_metrics.message_router import MessageRouter
from oslo_metrics.metrics.oslo_messaging import (
    rpc_client_exception_total,
    rpc_client_invocation_end_total,
    rpc_client_invocation_start_total,
    rpc_client_processing_seconds,
)


class Endpoint:
    def double(self, ctxt: Any, n: int) -> int:
        return 2 * n

    def fail(self, ctxt: Any) -> None:
        raise KeyError("no such node")


class Collector:
    """The socket that ``oslo-metrics`` listens to, and what it does with what comes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(str(path))
        self.socket.settimeout(30)
        self.router = MessageRouter()

    def take(self, count: int) -> None:
        for _ in range(count):
            self.router.process(self.socket.recv(65565))


@pytest.fixture
def collector(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    # One for the process, with a thread that ends when there was nothing to send for its time.
    monkeypatch.setattr(metrics_client, "METRICS_COLLECTOR", None)
    collector = Collector(tmp_path / "metrics.sock")
    with contextlib.closing(collector.socket):
        yield collector
    if metrics_client.METRICS_COLLECTOR is not None:
        metrics_client.METRICS_COLLECTOR.send_thread.join(30)


def figures(metric: Any, **labels: str) -> list[float]:
    """The values of the series of ``metric`` with these labels."""
    return [
        sample.value
        for family in metric.collect()
        for sample in family.samples
        if sample.name.endswith(("_total", "_count")) and labels.items() <= sample.labels.items()
    ]


def test_a_configuration_of_its_own_needs_nothing_registered(router: Any) -> None:
    conf = cfg.ConfigOpts()
    conf([])
    transport = oslo_messaging.get_rpc_transport(conf, router.url)
    target = oslo_messaging.Target(topic="own", server="node-1")
    server = oslo_messaging.get_rpc_server(transport, target, [Endpoint()], executor="threading")
    server.start()
    try:
        client = oslo_messaging.get_rpc_client(transport, target, timeout=30)
        assert client.call({}, "double", n=4) == 8
        assert conf.oslo_messaging_metrics.metrics_enabled is False
    finally:
        server.stop()
        server.wait()
        transport.cleanup()


def test_calls_casts_and_failures_are_counted(
    collector: Collector, conf: cfg.ConfigOpts, serve: Callable[..., Any], client: Callable[..., Any]
) -> None:
    conf.set_override("metrics_enabled", True, "oslo_messaging_metrics")
    conf.set_override("metrics_socket_file", str(collector.path), "oslo_messaging_metrics")
    conf.set_override("metrics_process_name", "nova-api", "oslo_messaging_metrics")
    conf.set_override("metrics_thread_stop_timeout", 1, "oslo_messaging_metrics")
    serve(Endpoint(), topic="measured")
    caller = client("measured")
    assert [caller.call({}, "double", n=n) for n in range(3)] == [0, 2, 4]
    caller.cast({}, "double", n=1)
    with pytest.raises(KeyError):
        caller.call({}, "fail")
    with pytest.raises(oslo_messaging.MessagingTimeout):
        client("measured-nobody", timeout=0.2).call({}, "double", n=1)
    # Three of each that succeeds, two of one that does not.
    collector.take(3 * 3 + 3 + 2 + 2)
    own = {"topic": "measured", "process": "nova-api"}
    assert figures(rpc_client_invocation_start_total, **own, call_type="call", method="double") == [3]
    assert figures(rpc_client_invocation_end_total, **own, call_type="call", method="double") == [3]
    assert figures(rpc_client_processing_seconds, **own, call_type="call", method="double") == [3]
    assert figures(rpc_client_invocation_end_total, **own, call_type="cast", method="double") == [1]
    assert figures(rpc_client_exception_total, **own, method="fail", exception="KeyError") == [1]
    assert figures(rpc_client_exception_total, topic="measured-nobody", exception="MessagingTimeout") == [1]
