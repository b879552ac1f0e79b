"""The scheduler: chooses a node for each new instance, from what the nodes tell it."""

from __future__ import annotations

from typing import Any

import rpcmq
from examples.demo.context import RequestContext
from examples.demo.exceptions import REGISTRY, NoValidHost
from examples.demo.ledger import Ledger
from rpcmq import rpc
from rpcmq.errors import CallTimeout, NoConsumer

#: A node that has not begun with an instance after so long (seconds) is not waited for.
_BOOT_SECONDS = 5.0


class SchedulerManager:
    """Knows the nodes by their own reports."""

    def __init__(self) -> None:
        self._free_memory_mb: dict[str, int] = {}
        self._ledger = Ledger("scheduler")

    def update_capabilities(self, ctx: RequestContext, host: str, capabilities: dict[str, Any]) -> None:
        """A node says what it has free; comes as a fanout, so that every scheduler hears it."""
        self._free_memory_mb[host] = capabilities["free_memory_mb"]

    def list_hosts(self, ctx: RequestContext) -> list[str]:
        """The nodes that instances are given to."""
        return sorted(self._free_memory_mb)

    def run_instance(self, ctx: RequestContext, instance: dict[str, Any]) -> dict[str, Any]:
        """Have a node boot ``instance``.

        Which errors to handle is the point here. NoConsumer, and a timeout of a call that was still
        queued, say that the node never began: another node can be asked. LinkLost says that it may
        have: to ask another could make two instances of one, so the caller is told.
        """
        self._ledger.begun(ctx, "run_instance")
        message = {"method": "run_instance", "args": {"instance": instance}}
        while True:
            host = self._choose(instance["flavor"]["memory_mb"])
            try:
                booted: dict[str, Any] = rpc.call(
                    ctx, f"compute.{host}", message, timeout=_BOOT_SECONDS, mandatory=True
                )
                return booted
            except NoConsumer as error:
                self._give_up(ctx, host, instance, error)
            except CallTimeout as error:
                if error.details.get("state") != "queued":
                    raise
                self._give_up(ctx, host, instance, error)

    def _choose(self, memory_mb: int) -> str:
        free = self._free_memory_mb
        host = max(free, key=lambda name: free[name], default=None)
        if host is None or free[host] < memory_mb:
            raise NoValidHost(hosts=sorted(free), memory_mb=memory_mb)
        free[host] -= memory_mb
        return host

    def _give_up(self, ctx: RequestContext, host: str, instance: dict[str, Any], error: Exception) -> None:
        """``host`` is not there: forget it until it reports again, and tell the operators."""
        self._free_memory_mb.pop(host, None)
        payload = {"instance_id": instance["id"], "error": type(error).__name__, "text": str(error)}
        rpc.notify(ctx, "scheduler.instance.reschedule", payload, priority="WARN")


def main() -> None:
    with rpcmq.Client(identity="scheduler", exceptions=REGISTRY, shell="gevent") as client:
        rpc.configure(client)
        service = rpcmq.Service("scheduler", SchedulerManager(), client=client, context=RequestContext)
        service.start()
        service.wait()


if __name__ == "__main__":
    main()
