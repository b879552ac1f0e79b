"""A service for the other examples: a host's instances, which are listed, shown and rebooted.

    rpcmq serve examples.compute_service:Compute --topic compute

``RPCMQ_ROUTER`` names the router.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

__all__ = ["Compute"]

Context = Mapping[str, Any] | None


class Compute:
    """Instances and their states."""

    def __init__(self) -> None:
        self._states = {"i-1": "active", "i-2": "stopped", "i-3": "active"}

    def list_instances(self, ctx: Context) -> Iterator[str]:
        """All instances, one by one."""
        yield from self._states

    def show(self, ctx: Context, instance_id: str) -> str:
        """The state of an instance."""
        if instance_id not in self._states:
            raise LookupError(f"there is no instance {instance_id}")
        return self._states[instance_id]

    def reboot(self, ctx: Context, instance_id: str) -> str:
        """Reboot an instance, and return its new state."""
        self.show(ctx, instance_id)
        self._states[instance_id] = "active"
        return "active"
