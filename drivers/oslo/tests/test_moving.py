"""Services move from RabbitMQ and back by their url alone; notifications may stay. Needs RabbitMQ of Debian."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import oslo_messaging
import pytest
from oslo_config import cfg
from processes import Process, eventually

RABBITMQ = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
SERVICE = Path(__file__).parents[1] / "examples" / "service.py"


def free_port() -> str:
    with socket.create_server(("127.0.0.1", 0)) as found:
        return str(found.getsockname()[1])


@pytest.fixture
def rabbit() -> Iterator[str]:
    """The transport url of a RabbitMQ of its own."""
    if not RABBITMQ.exists() or shutil.which("epmd") is None:
        pytest.skip("RabbitMQ is not installed (apt install rabbitmq-server)")
    with tempfile.TemporaryDirectory(prefix="rpcmq-moving-", ignore_cleanup_errors=True) as folder:
        port, names = free_port(), free_port()
        env = {
            "HOME": folder,
            "ERL_EPMD_PORT": names,
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODENAME": f"rpcmq-moving-{os.getpid()}@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": port,
            "RABBITMQ_DIST_PORT": free_port(),
            "RABBITMQ_MNESIA_BASE": f"{folder}/mnesia",
            "RABBITMQ_LOG_BASE": f"{folder}/log",
            "RABBITMQ_LOGS": "-",
            "RABBITMQ_ENABLED_PLUGINS_FILE": f"{folder}/plugins",
            "RABBITMQ_CONFIG_FILE": f"{folder}/rabbitmq",
            "RABBITMQ_CONF_ENV_FILE": f"{folder}/environment",
        }
        # Else RabbitMQ starts it as a daemon that outlives it.
        with (
            Process(["epmd", "-address", "127.0.0.1", "-port", names], **env),
            Process([str(RABBITMQ)], **env) as server,
        ):
            server.expect("Server startup complete", 120)
            yield f"rabbit://guest:guest@127.0.0.1:{port}/"
            server.signal(signal.SIGTERM)
            server.wait(60)


class Listener:
    def __init__(self) -> None:
        self.seen: list[Any] = []

    def info(self, ctxt: Any, publisher_id: str, event_type: str, payload: Any, metadata: Any) -> None:
        self.seen.append((payload["name"], publisher_id))


@pytest.mark.timeout(300)
def test_a_url_moves_services_there_and_back(rabbit: str, router: Any, conf: cfg.ConfigOpts, tmp_path: Path) -> None:
    listener = Listener()
    bus = oslo_messaging.get_notification_transport(conf, rabbit)
    topic = [oslo_messaging.Target(topic="notifications")]
    audit = oslo_messaging.get_notification_listener(bus, topic, [listener])
    audit.start()
    settings = tmp_path / "cloud.conf"

    def boot_over(url: str, name: str) -> None:
        settings.write_text(
            f"[DEFAULT]\ntransport_url = {url}\n[oslo_messaging_notifications]\ntransport_url = {rabbit}\n"
        )
        command = [sys.executable, "-W", "ignore", str(SERVICE), "--config-file", str(settings)]
        transport = oslo_messaging.get_rpc_transport(conf, url)
        client = oslo_messaging.get_rpc_client(transport, oslo_messaging.Target(topic="conductor"), timeout=60)
        with Process([*command, "conductor", "c"]) as conductor, Process([*command, "compute", "node-1"]) as compute:
            conductor.expect("is there")
            compute.expect("is there")
            client.call({}, "boot", name=name, host="node-1")
            eventually(lambda: client.call({}, "show") == {name: "active on node-1"})
            for service in (compute, conductor):
                service.signal(signal.SIGTERM)
                assert service.wait() == 0, "\n".join(service.lines[-20:])
        transport.cleanup()
        eventually(lambda: (name, "node-1") in listener.seen)

    boot_over(rabbit, "before")
    boot_over(router.url, "moved")
    boot_over(rabbit, "back")
    audit.stop()
    audit.wait()
    bus.cleanup()
