"""A compute node: runs instances. ``python -m cloud.compute NAME`` runs one."""

import logging
import sys
from collections.abc import Iterator
from threading import Event, Thread
from typing import Any

import gevent

import rpcmq
from cloud.errors import InstanceNotFound
from rpcmq import rpc


class Compute:
    """Served on the topics ``compute`` (any node) and ``compute.<host>`` (this one)."""

    def __init__(self, host: str = "node-1", memory_mb: int = 4096) -> None:
        self.host = host
        self.free_mb = memory_mb
        self._instances: dict[str, dict[str, Any]] = {}

    def boot(self, ctx: Any, name: str, memory_mb: int = 512) -> dict[str, Any]:
        """Boot an instance, and tell the caller how far that is."""
        request = rpcmq.current_request()
        self.free_mb -= memory_mb  # first, so that a report meanwhile says so
        for step in ("image", "network", "power"):
            if request:
                request.progress(f"{self.host}: {step}")
            gevent.sleep(0.2)  # in place of a hypervisor
        self._instances[name] = {"name": name, "host": self.host, "memory_mb": memory_mb}
        rpc.publish(ctx, "instance.boot", self._instances[name])
        return self._instances[name]

    def show(self, ctx: Any, name: str) -> dict[str, Any]:
        """Return an instance."""
        try:
            return self._instances[name]
        except KeyError:
            raise InstanceNotFound(f"{self.host} has no instance {name!r}") from None

    def delete(self, ctx: Any, name: str) -> None:
        """Delete an instance; one that is not there is no error."""
        if instance := self._instances.pop(name, None):
            self.free_mb += instance["memory_mb"]
            rpc.publish(ctx, "instance.delete", instance)

    def console(self, ctx: Any, name: str) -> Iterator[str]:
        """Yield the lines that an instance has written to its console."""
        self.show(ctx, name)
        for number in range(1, 4):
            yield f"{name}: line {number}"

    def report(self, ctx: Any) -> None:
        """Tell every scheduler what is free here."""
        message = {"method": "update_node", "args": {"host": self.host, "free_mb": self.free_mb}}
        rpc.fanout_cast(ctx, "scheduler", message)


def main() -> None:
    """Serve a node, and report every second what it has free."""
    logging.basicConfig(level=logging.INFO)
    compute = Compute(sys.argv[1])
    stopped = Event()

    def report() -> None:
        while not stopped.wait(1.0):
            compute.report(None)

    with rpcmq.Service("compute", compute, host=compute.host) as service:
        Thread(target=report).start()
        service.wait()  # until Ctrl-C, or SIGTERM
        stopped.set()


if __name__ == "__main__":
    main()
