"""The api: what users may ask for."""

from collections.abc import Iterator
from typing import Any

import rpcmq
from cloud.errors import InstanceNotFound
from rpcmq import rpc


class Api:
    """Knows which instance is on which node."""

    def __init__(self) -> None:
        self._host_of: dict[str, str] = {}

    def create(self, ctx: Any, name: str, memory_mb: int = 512) -> dict[str, Any]:
        """Boot an instance. What the scheduler or the node raises goes on to the user."""
        request = rpcmq.current_request()
        message = {"method": "run_instance", "args": {"name": name, "memory_mb": memory_mb}}
        instance: dict[str, Any] = rpc.call(
            ctx, "scheduler", message, on_progress=request.progress if request else None
        )
        self._host_of[name] = instance["host"]
        return instance

    def show(self, ctx: Any, name: str) -> dict[str, Any]:
        """Return an instance, as its node has it."""
        instance: dict[str, Any] = rpc.call(
            ctx, self._node(name), {"method": "show", "args": {"name": name}}, timeout=2
        )
        return instance

    def delete(self, ctx: Any, name: str) -> None:
        """Delete an instance. Its node does that when it comes to it."""
        rpc.cast(ctx, self._node(name), {"method": "delete", "args": {"name": name}})

    def console(self, ctx: Any, name: str) -> Iterator[str]:
        """Yield the lines of an instance's console, as its node yields them."""
        yield from rpc.multicall(ctx, self._node(name), {"method": "console", "args": {"name": name}})

    def _node(self, name: str) -> str:
        if name not in self._host_of:
            raise InstanceNotFound(f"there is no instance {name!r}")
        return f"compute.{self._host_of[name]}"
