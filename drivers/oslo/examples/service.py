"""A service of a small cloud, on oslo.messaging alone: nothing in here names rpcmq. Only transport_url does.

python service.py --config-file cloud.conf ROLE NAME        # conductor, compute or audit
"""

from __future__ import annotations

import signal
import threading
from typing import Any

import oslo_messaging
from oslo_config import cfg

CONF = cfg.CONF
CONF.register_cli_opts([cfg.StrOpt("role", positional=True), cfg.StrOpt("name", positional=True)])


class Conductor:
    """Knows the servers of the cloud, and has computes build them."""

    def __init__(self, transport: Any) -> None:
        self.servers: dict[str, str] = {}
        self.lock = threading.Lock()
        self.compute = oslo_messaging.get_rpc_client(transport, oslo_messaging.Target(topic="compute"))

    def boot(self, ctxt: Any, name: str, host: str) -> None:
        self.record(ctxt, name, "building")
        self.compute.prepare(server=host).cast(ctxt, "build", name=name)

    def record(self, ctxt: Any, name: str, state: str) -> None:
        with self.lock:
            self.servers[name] = state

    def show(self, ctxt: Any) -> dict[str, str]:
        with self.lock:
            return dict(self.servers)


class Compute:
    """Builds servers, tells the conductor, and notifies whoever listens."""

    def __init__(self, transport: Any, host: str) -> None:
        self.host = host
        self.conductor = oslo_messaging.get_rpc_client(transport, oslo_messaging.Target(topic="conductor"))
        notifications = oslo_messaging.get_notification_transport(CONF)
        self.notifier = oslo_messaging.Notifier(notifications, host, driver="messagingv2", topics=["notifications"])

    def build(self, ctxt: Any, name: str) -> None:
        self.conductor.call(ctxt, "record", name=name, state=f"active on {self.host}")
        self.notifier.info(ctxt, "compute.instance.create.end", {"name": name, "host": self.host})

    def refresh(self, ctxt: Any) -> None:
        self.conductor.call(ctxt, "record", name=f"({self.host})", state="refreshed")


class Audit:
    """Listens to notifications, and answers how many there were."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def info(self, ctxt: Any, publisher_id: str, event_type: str, payload: Any, metadata: Any) -> None:
        self.seen.append(payload["name"])

    def names(self, ctxt: Any) -> list[str]:
        return self.seen


def main() -> None:
    CONF(project="cloud")
    transport = oslo_messaging.get_rpc_transport(CONF)
    servers = []
    endpoint: Any
    match CONF.role:
        case "conductor":
            endpoint = Conductor(transport)
        case "compute":
            endpoint = Compute(transport, CONF.name)
        case _:
            endpoint = Audit()
            over = oslo_messaging.get_notification_transport(CONF)
            targets = [oslo_messaging.Target(topic="notifications")]
            servers.append(oslo_messaging.get_notification_listener(over, targets, [endpoint]))
    target = oslo_messaging.Target(topic=CONF.role, server=CONF.name)
    servers.append(oslo_messaging.get_rpc_server(transport, target, [endpoint]))
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    for server in servers:
        server.start()
    print(f"{CONF.role} {CONF.name} is there", flush=True)
    stop.wait()
    for server in servers:
        server.stop()
        server.wait()
    transport.cleanup()


if __name__ == "__main__":
    main()
