"""The api service: what users may ask for, and which instances there are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import count
from typing import Any

import rpcmq
from examples.demo.context import RequestContext
from examples.demo.exceptions import REGISTRY, InstanceNotFound
from examples.demo.ledger import Ledger
from rpcmq import rpc


class ApiManager:
    """Shows each verb once: call, cast, fanout, multicall and put."""

    def __init__(self) -> None:
        self._ids = count(1)
        self._ledger = Ledger("api")
        self._host_of: dict[int, str] = {}
        self._sent: Counter[str] = Counter()
        self._billed: set[int] = set()
        self._rules = 0

    def create_instance(self, ctx: RequestContext, name: str, image_id: str, flavor: dict[str, Any]) -> dict[str, Any]:
        """Boot an instance: two calls, one after the other, and a bill. What they raise goes on to the user."""
        self._ledger.begun(ctx, "create_instance")
        # Any node will do, and it may be done twice: should the node die, another is asked unseen.
        verify = {"method": "verify_image", "args": {"image_id": image_id}}
        image = rpc.call(ctx, "compute", verify, idempotent=True)
        instance = {"id": next(self._ids), "name": name, "image": image, "flavor": flavor}
        run = {"method": "run_instance", "args": {"instance": instance}}
        booted: dict[str, Any] = rpc.call(ctx, "scheduler", run)
        self._host_of[booted["id"]] = booted["host"]
        self._bill(ctx, booted)
        return booted

    def _bill(self, ctx: RequestContext, instance: dict[str, Any]) -> None:
        """Work that must be done, whoever dies: an item of a queue, which is on disk when this returns."""
        cents = 1 + instance["flavor"]["memory_mb"] // 512
        message = {"method": "charge", "args": {"instance_id": instance["id"], "cents": cents}}
        rpc.put(ctx, "billing", message, id=f"instance-{instance['id']}")
        self._billed.add(instance["id"])

    def reboot_instance(self, ctx: RequestContext, instance_id: int) -> None:
        """A cast: the node does it when it comes to it. If the node is away, the router keeps it."""
        self._ledger.begun(ctx, "reboot_instance")
        topic = self._topic_of(instance_id)
        rpc.cast(ctx, topic, {"method": "reboot_instance", "args": {"instance_id": instance_id}})
        self._sent[topic] += 1

    def get_diagnostics(self, ctx: RequestContext, instance_id: int) -> dict[str, Any]:
        """``mandatory``: if the node isn't there, say so now rather than wait for it."""
        topic = self._topic_of(instance_id)
        message = {"method": "get_diagnostics", "args": {"instance_id": instance_id}}
        diagnostics: dict[str, Any] = rpc.call(ctx, topic, message, timeout=5.0, mandatory=True)
        return diagnostics

    def list_instances(self, ctx: RequestContext, host: str) -> Iterator[dict[str, Any]]:
        """Streams what the node streams; neither ever holds the whole list in one message."""
        yield from rpc.multicall(ctx, f"compute.{host}", {"method": "list_instances"}, timeout=1.0)

    def change_security_rule(self, ctx: RequestContext, group: str) -> int:
        """Tell all nodes; returns how many the router sent it to."""
        message = {"method": "refresh_security_rules", "args": {"group": group}}
        self._rules += 1
        return rpc.fanout_cast(ctx, "compute", message, confirm=True) or 0

    def count_sent(self, ctx: RequestContext) -> dict[str, int]:
        """Reboots that were cast, by topic."""
        return dict(self._sent)

    def list_billed(self, ctx: RequestContext) -> list[int]:
        """Instances whose bill was put into the queue."""
        return sorted(self._billed)

    def count_rules(self, ctx: RequestContext) -> int:
        """Changes of rules that were sent to all nodes."""
        return self._rules

    def _topic_of(self, instance_id: int) -> str:
        try:
            return f"compute.{self._host_of[instance_id]}"
        except KeyError:
            raise InstanceNotFound(instance_id=instance_id) from None


def main() -> None:
    with rpcmq.Client(identity="api", exceptions=REGISTRY, shell="gevent") as client:
        rpc.configure(client)
        service = rpcmq.Service("api", ApiManager(), client=client, context=RequestContext)
        service.start()
        service.wait()


if __name__ == "__main__":
    main()
