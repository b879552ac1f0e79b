"""A virtual network: a router engine and processes that talk to it, in one thread, in virtual time.

No socket, no greenlet and no sleep is involved, so minutes of silence and lost connections cost
microseconds and happen the same way each time. A test reads as a conversation::

    net = Network()
    api, node = net.process("api"), net.process("node")
    node.register("compute", server="node-7", credit=2)
    call = api.request("compute", "reboot", ttl=30)
    node.reply(node.take(Kind.REQUEST), b"done")
    assert call.end.payload == b"done"

Each verb of a process sends at once and lets everything that follows from it happen; inside ``with
net.together():`` what is sent leaves as one batch for each process instead. Time stands still but for
:meth:`Network.advance`. Several routers: :mod:`rpcmq.testing.mesh_network`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rpcmq.core.router.actions import Answer, LogEvent
from rpcmq.core.router.dispatch_log import Sink
from rpcmq.core.router.router import Router
from rpcmq.core.router.settings import Settings
from rpcmq.testing.process import Call, Message, Process
from rpcmq.testing.router_host import RouterHost
from rpcmq.testing.virtual_time import VirtualTime

__all__ = ["Call", "Message", "Network", "Process"]


class Network(VirtualTime):
    """A router and the processes that are connected to it.

    Args:
        settings: of the router; defaults as in :class:`Settings`.
        now: seconds at the beginning.
        lost_seconds: when the router notices at the latest that a connection is dead, as the transport's
            heartbeats see to it.
        sink: where the router's dispatch log goes.
        engine: makes the router, of what :class:`Router` takes.
    """

    def __init__(
        self,
        settings: Settings | None = None,
        now: float = 1000.0,
        lost_seconds: float = 60.0,
        sink: Sink | None = None,
        engine: Callable[..., Router] = Router,
    ) -> None:
        super().__init__(now)
        settings = settings or Settings(recovery_seconds=0.0)
        self.host = self.hosts[""] = RouterHost(self, settings, engine, sink, lost_seconds)

    @property
    def settings(self) -> Settings:
        """The settings of the router."""
        return self.host.settings

    @property
    def router(self) -> Router:
        """The engine of the router in its present life."""
        return self.host.router

    @property
    def answers(self) -> list[Answer]:
        """Answers to connections without a link."""
        return self.host.answers

    @property
    def notes(self) -> list[LogEvent]:
        """Log events of the router."""
        return self.host.notes

    @property
    def is_router_up(self) -> bool:
        """Whether there is one that does its work."""
        return self.host.is_up

    def restart_router(self, clock_step: float = 60.0) -> None:
        """Restart the router without its state; see :meth:`RouterHost.start`. The processes have to reconnect."""
        self.host.restart(clock_step)

    def kill_router(self) -> None:
        """Kill the router. Until :meth:`start_router` nobody can connect."""
        self.host.kill()

    def start_router(self, clock_step: float = 60.0) -> None:
        """Start a new life of the router, after :meth:`kill_router`; see :meth:`RouterHost.start`."""
        self.host.start(clock_step)

    def pause_router(self) -> None:
        """Pause the router, as by SIGSTOP: connections stay, and input waits."""
        self.host.pause()

    def resume_router(self) -> None:
        """Resume the router."""
        self.host.resume()

    def inject(self, route: bytes, batch: bytes, payloads: Sequence[bytes] = ()) -> list[Message]:
        """Inject any bytes on the connection ``route``; return the answers sent to it without a link."""
        return self.host.inject(route, batch, payloads)
