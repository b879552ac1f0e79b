"""The scheduler: chooses a node for each new instance."""

from typing import Any

import rpcmq
from cloud.errors import NoValidHost
from rpcmq import rpc
from rpcmq.errors import CallTimeout, NoConsumer


class Scheduler:
    """Knows the nodes by their own reports."""

    def __init__(self) -> None:
        self._free_mb: dict[str, int] = {}

    def update_node(self, ctx: Any, host: str, free_mb: int) -> None:
        """A node says how much memory it has free."""
        self._free_mb[host] = free_mb

    def nodes(self, ctx: Any) -> dict[str, int]:
        """Free memory by node."""
        return self._free_mb

    def run_instance(self, ctx: Any, name: str, memory_mb: int) -> dict[str, Any]:
        """Have a node boot an instance: that with the most memory, or the next one if it is not there."""
        request = rpcmq.current_request()
        message = {"method": "boot", "args": {"name": name, "memory_mb": memory_mb}}
        while True:
            host = self._choose(memory_mb)
            try:
                instance: dict[str, Any] = rpc.call(
                    ctx, f"compute.{host}", message, mandatory=True, on_progress=request.progress if request else None
                )
                return instance
            except NoConsumer:
                del self._free_mb[host]  # it is not there: the next one may be
            except CallTimeout as error:
                if error.details.get("state") != "queued":
                    raise  # it may have begun: a second node could make it two instances
                del self._free_mb[host]

    def _choose(self, memory_mb: int) -> str:
        host = max(self._free_mb, key=lambda name: self._free_mb[name], default="")
        if not host or self._free_mb[host] < memory_mb:
            raise NoValidHost(f"no node has {memory_mb} MiB free; known nodes: {self._free_mb}")
        self._free_mb[host] -= memory_mb
        return host
