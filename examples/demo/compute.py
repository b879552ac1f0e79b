"""A compute node: runs instances, tells the scheduler what it has free and the world what happened."""

from __future__ import annotations

import argparse
import random
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import gevent

import rpcmq
from examples.demo.context import RequestContext, admin_context
from examples.demo.exceptions import REGISTRY, InstanceNotFound
from examples.demo.ledger import Ledger
from rpcmq import rpc

_MEMORY_MB = 8 * 1024 * 1024
_REPORT_SECONDS = 0.5


class ComputeManager:
    """Served on topic ``compute`` (any node) and ``compute.<host>`` (this one)."""

    def __init__(self, host: str, seed: int) -> None:
        self.host = host
        self._random = random.Random(f"{host} {seed}")
        self._ledger = Ledger(host)
        self._instances: dict[int, dict[str, Any]] = {}
        self._done = {"boots": 0, "reboots": 0, "rules": 0}

    # --- calls: somebody waits for the answer ------------------------------------------------

    def run_instance(self, ctx: RequestContext, instance: dict[str, Any]) -> dict[str, Any]:
        """Boot an instance."""
        self._ledger.begun(ctx, "run_instance")
        self._notify(ctx, "create.start", instance)
        # No timeout here: the call has what is left of the time that this node's caller waits.
        instance["network_info"] = rpc.call(
            ctx,
            "network",
            {"method": "allocate_for_instance", "args": {"instance_id": instance["id"], "host": self.host}},
            idempotent=True,
        )
        self._hypervisor(20, 60)
        instance |= {"host": self.host, "power_state": "running", "launched_at": datetime.now(UTC)}
        self._instances[instance["id"]] = instance
        self._done["boots"] += 1
        self._notify(ctx, "create.end", instance)
        return instance

    def verify_image(self, ctx: RequestContext, image_id: str) -> dict[str, Any]:
        """Check an image. Any node can, and twice does no harm."""
        self._hypervisor(40, 120)
        request = rpcmq.current_request()
        assert request is not None
        return {"image_id": image_id, "verified_by": self.host, "attempt": request.attempt}

    def get_diagnostics(self, ctx: RequestContext, instance_id: int) -> dict[str, Any]:
        """Return an instance's state. An exception raised here is raised in the caller."""
        instance = self._get(instance_id)
        self._hypervisor(2, 8)
        return {"id": instance_id, "uptime": datetime.now(UTC) - instance["launched_at"], "errors": []}

    def list_instances(self, ctx: RequestContext) -> Iterator[dict[str, Any]]:
        """A generator: ``multicall`` iterates over what it yields, while it yields."""
        for instance in list(self._instances.values()):
            yield {"id": instance["id"], "host": self.host, "launched_at": instance["launched_at"]}

    def count_done(self, ctx: RequestContext) -> dict[str, int]:
        """Return the number of requests that this node has carried out, by method."""
        return self._done

    # --- casts: nobody waits -----------------------------------------------------------------

    def reboot_instance(self, ctx: RequestContext, instance_id: int) -> None:
        """Reboot an instance; the event says when it's done."""
        self._ledger.begun(ctx, "reboot_instance")
        instance = self._get(instance_id)
        self._hypervisor(10, 30)
        self._done["reboots"] += 1
        self._notify(ctx, "reboot.end", instance)

    def refresh_security_rules(self, ctx: RequestContext, group: str) -> None:
        """A rule has changed: what this node remembers of the group is void. Sent to all nodes at once."""
        self._done["rules"] += 1

    # --- what the node does by itself --------------------------------------------------------

    def _report_capabilities(self) -> None:
        """Tell all schedulers, again and again, what is free here."""
        while True:
            used = sum(instance["flavor"]["memory_mb"] for instance in self._instances.values())
            capabilities = {"free_memory_mb": _MEMORY_MB - used, "reported_at": datetime.now(UTC)}
            args = {"host": self.host, "capabilities": capabilities}
            rpc.fanout_cast(admin_context(), "scheduler", {"method": "update_capabilities", "args": args})
            gevent.sleep(_REPORT_SECONDS)

    def _notify(self, ctx: RequestContext, what: str, instance: dict[str, Any]) -> None:
        payload = {"instance_id": instance["id"], "host": self.host, "at": datetime.now(UTC)}
        rpc.notify(ctx, f"compute.instance.{what}", payload)

    def _get(self, instance_id: int) -> dict[str, Any]:
        try:
            return self._instances[instance_id]
        except KeyError:
            raise InstanceNotFound(instance_id=instance_id) from None

    def _hypervisor(self, least: int, most: int) -> None:
        """Wait for ``least`` to ``most`` milliseconds, in place of a real node's work."""
        gevent.sleep(self._random.uniform(least, most) / 1000)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--host", required=True)
    parser.add_argument("--seed", type=int, default=7)
    options = parser.parse_args()
    with rpcmq.Client(identity=options.host, exceptions=REGISTRY, shell="gevent") as client:
        rpc.configure(client)  # rpc.call and its kin use this client from now on
        manager = ComputeManager(options.host, options.seed)
        service = rpcmq.Service("compute", manager, host=options.host, client=client, context=RequestContext)
        service.start()
        reporting = gevent.spawn(manager._report_capabilities)
        service.wait()
        reporting.kill()


if __name__ == "__main__":
    main()
