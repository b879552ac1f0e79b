"""A virtual network with several routers; for its processes and its clock see :mod:`rpcmq.testing.network`.

::

    net = MeshNetwork()  # routers a, b and c, each linked to each
    api, node = net.process("api", router="a"), net.process("node", router="b")
    node.register("compute")
    net.advance(1.0)
    call = api.request("compute")
    net.hosts["b"].kill()
    node.move("c")

* A router is ``net.hosts["a"]``: its ``kill``, ``start``, ``restart``, ``pause`` and ``resume``, its ``notes`` and
  ``settings``; its engine is ``net.router_of("a")``. ``net.add_router`` adds another one.
* Between routers: ``net.cut`` holds up all batches and notifies nobody, ``net.heal`` lets them arrive; ``net.reset``
  breaks the connections, which both ends notice at once; ``net.delay``.
* A process connects to the router that :meth:`MeshNetwork.process` names, and to another one by ``process.move``.

A router connects to another one when its engine asks for it (``Dial``) with the url of that one, ``inproc://NAME``. The
attempt goes on while the other one is down, paused or cut off, and is given up after 5 s. Nothing but the engines
notices that a path is cut: no time after which a connection between routers ends by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from rpcmq.core.router.dispatch_log import Sink
from rpcmq.core.router.router import Router
from rpcmq.core.router.settings import Settings
from rpcmq.testing.process import Call, Message, Process
from rpcmq.testing.router_host import RouterHost
from rpcmq.testing.virtual_time import VirtualTime

__all__ = ["Call", "MeshNetwork", "Message", "Process"]


class MeshNetwork(VirtualTime):
    """Routers, each linked to each, and the processes that are connected to one of them.

    Args:
        names: of the routers.
        settings: of all routers, but for what is each one's own: name, id, urls.
        now: seconds at the beginning.
        lost_seconds: when a router notices at the latest that a process's connection is dead.
        sinks: where the routers' dispatch logs go, by name.
        engine: makes each router, of what :class:`Router` takes.
    """

    def __init__(
        self,
        names: Sequence[str] = ("a", "b", "c"),
        settings: Settings | None = None,
        now: float = 1000.0,
        lost_seconds: float = 60.0,
        sinks: Mapping[str, Sink] | None = None,
        engine: Callable[..., Router] = Router,
    ) -> None:
        super().__init__(now)
        self._settings = settings or Settings(recovery_seconds=0.0)
        self._lost_seconds = lost_seconds
        self._sinks = sinks or {}
        self._engine = engine
        for name in names:
            self.add_router(name)

    def add_router(self, name: str, peers: Sequence[str] | None = None, **settings: Any) -> RouterHost:
        """Add a router, and let it do what is due.

        Args:
            name: its name.
            peers: names of the routers that it connects to; None: all that there are.
            settings: in place of those of the other routers.
        """
        peers = list(self.hosts) if peers is None else peers
        own: dict[str, Any] = {
            "router_name": name,
            "router_id": len(self.hosts) + 1,
            "mesh_peers": tuple(f"inproc://{peer}" for peer in peers),
        }
        host = RouterHost(
            self,
            replace(self._settings, **own | settings),
            self._engine,
            self._sinks.get(name),
            self._lost_seconds,
            name,
        )
        self.hosts[name] = host
        self.advance(0.0)
        return host

    def process(
        self, identity: str, queue_type: str = "roundrobin", user: str = "", *, router: str = "", **hello: Any
    ) -> Process:
        """Add a process that follows the mesh, unless ``hello`` says otherwise; see :meth:`VirtualTime.process`."""
        return super().process(identity, queue_type, user, router=router, **{"follows_mesh": True} | hello)

    def router_of(self, name: str) -> Router:
        """Return the engine of the router ``name`` in its present life."""
        return self.hosts[name].router

    # --- between routers ---------------------------------------------------------------------

    def cut(self, one: str, other: str, is_one_way: bool = False) -> None:
        """Hold up everything between two routers from now on, without notifying either.

        Args:
            is_one_way: whether only what ``one`` sends is held up.
        """
        self.paths.cut(one, other)
        if not is_one_way:
            self.paths.cut(other, one)

    def partition(self, *sides: Sequence[str]) -> None:
        """Cut each router of a side off from those of all others."""
        for side in sides:
            for others in sides:
                if others is not side:
                    for one in side:
                        for other in others:
                            self.paths.cut(one, other)

    def heal(self, one: str = "", other: str = "") -> None:
        """Let everything held up between two routers arrive; between all, if none are named."""
        pairs = [(one, other), (other, one)] if one else [(x, y) for x in self.hosts for y in self.hosts]
        for pair in pairs:
            self.paths.heal(*pair)
        self.run()

    def reset(self, one: str, other: str) -> None:
        """Break the connections between two routers: batches in transit are lost, and both notice."""
        connections = self.hosts[one].connections
        connections.reset(self.hosts[other].connections)
        self.run()

    def delay(self, one: str, other: str, seconds: float) -> None:
        """Let batches between two routers be under way for ``seconds``, in either direction."""
        self.paths.set_delay(one, other, seconds)
        self.paths.set_delay(other, one, seconds)
