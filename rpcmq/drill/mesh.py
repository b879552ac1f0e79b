"""A drill whose processes are spread over several routers of one mesh, which are killed, stopped and restarted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rpcmq.drill.checks import Verdict
from rpcmq.drill.mesh_checks import LINK, check_mesh
from rpcmq.drill.router_links import CuttableMesh
from rpcmq.drill.run import Drill
from rpcmq.errors import UsageError
from rpcmq.testing.processes import RouterProcess

__all__ = ["MeshDrill", "drill_of"]


class MeshDrill(Drill):
    """The drill of a topology with several routers.

    Each process is given one of them in turn. A fault of the router is one of any
    router, one at a time, and the next one waits until all are linked again.
    """

    def _start_routers(self, settings: dict[str, Any]) -> None:
        if self._keys is not None:
            raise UsageError("a drill with several routers has no keys: leave security.keys out")
        if self.topology.router_config:
            settings["file"] = self.topology.router_config
        self._mesh = CuttableMesh(self.topology.routers, **settings)
        self.router = self._mesh.routers[0]

    @property
    def routers(self) -> Sequence[RouterProcess]:
        """All of them."""
        return self._mesh.routers if hasattr(self, "_mesh") else []

    def _url(self) -> str:
        # One alone, so that they are spread: a process that is given several takes any. It learns the others.
        return self._mesh.urls[len(self.places) % len(self._mesh.urls)]

    @contextmanager
    def router_fault(self) -> Iterator[None]:
        """Let any router be the one that a fault is for."""
        self.router = self.rng.choice(self._mesh.routers)
        yield
        self._mesh.wait_until_linked(timeout=60.0)

    @contextmanager
    def link_fault(self, kind: str) -> Iterator[None]:
        """Around a fault of the link between any two routers: ``cut``, or ``reset``, which is over at once."""
        one, other = self.rng.sample(self._mesh.routers, 2)
        target = f"{LINK} {one.name[-1]}-{other.name[-1]}"
        self.fault(f"link-{kind}", target)
        (self._mesh.cut if kind == "cut" else self._mesh.reset)(one, other)
        yield
        self._mesh.heal()
        self.healed(f"link-{kind}", target)
        self._mesh.wait_until_linked(timeout=60.0)

    def _check(self) -> Verdict:
        return check_mesh(self.events(), self.bounds)


def drill_of(*arguments: Any, **options: Any) -> Drill:
    """Return the drill of a topology, with one router or several; arguments as of :class:`Drill`."""
    topology = arguments[0]
    return (MeshDrill if topology.routers > 1 else Drill)(*arguments, **options)
