"""The network service: gives each instance an address."""

from __future__ import annotations

from ipaddress import IPv4Network
from typing import Any

import rpcmq
from examples.demo.context import RequestContext
from examples.demo.exceptions import REGISTRY, NoMoreFixedIps

_NETWORK = IPv4Network("10.0.0.0/16")


class NetworkManager:
    """Each public method is served: it gets the caller's context, then the args by name."""

    def __init__(self) -> None:
        self._free = _NETWORK.hosts()
        self._gateway = next(self._free)
        self._address_of: dict[int, str] = {}

    def allocate_for_instance(self, ctx: RequestContext, instance_id: int, host: str) -> list[dict[str, Any]]:
        """The instance's network info. Asked twice, it answers the same: callers may say ``idempotent``."""
        address = self._address_of.get(instance_id)
        if address is None:
            free = next(self._free, None)
            if free is None:
                raise NoMoreFixedIps(network=str(_NETWORK))
            address = self._address_of[instance_id] = str(free)
        network = {"bridge": "br100", "cidr": str(_NETWORK), "gateway": str(self._gateway)}
        mapping = {"ips": [{"ip": address, "enabled": True}], "host": host, "project_id": ctx.project_id}
        return [{"network": network, "mapping": mapping}]


def main() -> None:
    with rpcmq.Client(identity="network", exceptions=REGISTRY, shell="gevent") as client:
        service = rpcmq.Service("network", NetworkManager(), client=client, context=RequestContext)
        service.start()
        service.wait()


if __name__ == "__main__":
    main()
