"""A router daemon and a service for real programs: these run in processes of their own, and talk to them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from examples.compute_service import Compute, Context
from rpcmq import Service, current_request
from rpcmq.testing import eventually
from rpcmq.testing.processes import RouterProcess


class RecordingCompute(Compute):
    """Knows any instance, and remembers which were rebooted."""

    def __init__(self) -> None:
        super().__init__()
        self.rebooted: list[str] = []
        self.holding = 0
        self.cancelled = 0

    def show(self, ctx: Context, instance_id: str) -> str:
        if instance_id == "missing":
            raise LookupError("there is no instance missing")
        return f"state of {instance_id}"

    def reboot(self, ctx: Context, instance_id: str) -> str:
        self.rebooted.append(instance_id)
        return "active"

    def hold(self, ctx: Context) -> None:
        """Run until the caller gives up."""
        request = current_request()
        assert request is not None
        self.holding += 1
        eventually(lambda: request.cancelled, 60)
        self.cancelled += 1


class Cloud:
    """The router, and the service beside it."""

    def __init__(self, router: RouterProcess, compute: RecordingCompute) -> None:
        self.router, self.compute = router, compute
        self.environment = {"RPCMQ_ROUTER": router.url}

    def processes(self) -> list[dict[str, Any]]:
        """The links that ``rpcmq ls`` shows, without the service's."""
        rows = self.router.view("processes")["processes"]
        return [row for row in rows if not row["consumers"]]

    def expect_links(self, number: int) -> list[dict[str, Any]]:
        """Wait until so many processes are linked, each with one link."""
        eventually(lambda: len(self.processes()) == number, what=f"{number} links, not {self.processes()}")
        links = self.processes()
        assert len({link["pid"] for link in links}) == number
        return links

    def expect_casts(self, instances: list[str]) -> None:
        """Wait until these were rebooted, each once, and forget them."""
        eventually(lambda: len(self.compute.rebooted) >= len(instances), what=str(self.compute.rebooted))
        assert sorted(self.compute.rebooted) == sorted(instances)
        self.compute.rebooted.clear()

    def expect_nobody(self) -> None:
        """Wait until all processes have said goodbye: the links of those that have not are kept for 30 s."""
        eventually(lambda: not self.processes(), 20, what=f"no links, not {self.processes()}")


@pytest.fixture(scope="module")
def cloud_of_the_module() -> Iterator[Cloud]:
    compute = RecordingCompute()
    with RouterProcess() as router, Service("compute", compute, host="node-7", router=router.url):
        yield Cloud(router, compute)


@pytest.fixture
def cloud(cloud_of_the_module: Cloud) -> Cloud:
    """A router and a service, at first with no link but that."""
    # A program that was killed, as its test has failed, is known for 30 s.
    eventually(lambda: not cloud_of_the_module.processes(), 60)
    cloud_of_the_module.compute.rebooted.clear()
    return cloud_of_the_module
