"""The links between the routers of a drill, which can be cut: a TCP proxy stands before each router.

Routers, and processes that go on at another one, are told the proxies' endpoints only (``mesh.advertise``). A proxy
finds out from the system which process has the other end of a connection, and so tells routers from all others.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from gevent.event import Event

from rpcmq.drill.proxy import FaultProxy
from rpcmq.testing.processes import RouterProcess
from rpcmq.testing.router_mesh import RouterMesh

__all__ = ["CuttableMesh"]

#: IPv4 connections of this host, as Linux lists them.
_CONNECTIONS = Path("/proc/net/tcp")


class CuttableMesh(RouterMesh):
    """Routers whose links can be cut. Arguments as of :class:`~rpcmq.testing.router_mesh.RouterMesh`."""

    def __init__(self, count: int, **config: Any) -> None:
        self._fronts: dict[str, _Front] = {}
        super().__init__(count, **config)

    def _start(self, number: int, **settings: Any) -> RouterProcess:
        front = _Front()
        try:
            started = super()._start(number, mesh_advertise=front.url, **settings)
        except BaseException:
            front.close()
            raise
        front.lead_to(started.url)
        self._fronts[started.name] = front
        return started

    def _endpoint(self, router: RouterProcess) -> str:
        return self._fronts[router.name].url

    def cut(self, one: RouterProcess, other: RouterProcess, is_one_way: bool = False) -> None:
        """Let nothing pass between two routers from now on, silently: connections stay, and what is sent waits.

        Args:
            is_one_way: what ``one`` sends to ``other`` passes, and nothing comes back.
        """
        self._fronts[one.name].hold_up(other.pid, there=True, back=not is_one_way)
        self._fronts[other.name].hold_up(one.pid, there=not is_one_way, back=True)

    def cut_off(self, pid: int) -> None:
        """Let nothing pass between a process that is no router, and knows ``urls`` only, and any router."""
        for front in self._fronts.values():
            front.hold_up(pid)

    def heal(self) -> None:
        """Let what was held up pass."""
        for front in self._fronts.values():
            front.heal()

    def reset(self, one: RouterProcess, other: RouterProcess) -> None:
        """Reset the connections between two routers; new ones are taken."""
        self._fronts[one.name].reset_those_of(other.pid)
        self._fronts[other.name].reset_those_of(one.pid)

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        for front in self._fronts.values():
            front.close()


class _Front(FaultProxy):
    """The proxy before one router."""

    def __init__(self) -> None:
        #: Processes whose connections are held up: to the router, and back.
        self._held_up: dict[int, tuple[bool, bool]] = {}
        super().__init__()

    def gates(self, near: Any) -> tuple[Event, Event]:
        """See :class:`FaultProxy`: each connection has gates of its own."""
        gates = Event(), Event()
        held_up = next((ways for pid, ways in self._held_up.items() if _is_of(pid, near)), (False, False))
        for gate, is_held_up in zip(gates, held_up, strict=True):
            if not is_held_up:
                gate.set()
        return gates

    def hold_up(self, pid: int, there: bool = True, back: bool = True) -> None:
        """Let nothing pass on the connections of the process ``pid``, new ones included, until :meth:`heal`.

        Args:
            there, back: what it sends, and what is sent to it.
        """
        self._held_up[pid] = there, back
        for pair in self.pairs:
            if _is_of(pid, pair.near):
                for gate, is_held_up in zip(pair.gates, (there, back), strict=True):
                    if is_held_up:
                        gate.clear()

    def heal(self) -> None:
        """Let everything pass."""
        super().heal()
        self._held_up.clear()
        for pair in self.pairs:
            for gate in pair.gates:
                gate.set()

    def reset_those_of(self, pid: int) -> None:
        """Reset the connections of the process ``pid``."""
        for pair in self.pairs:
            if _is_of(pid, pair.near):
                self.cut(pair)


def _is_of(pid: int, near: Any) -> bool:
    """Return whether the process ``pid`` has the other end of the connection ``near``."""
    try:
        wanted = [near.getpeername()[1], near.getsockname()[1]]
    except OSError:
        return False  # it has just been closed
    for line in _CONNECTIONS.read_text().splitlines()[1:]:
        fields = line.split()
        if [int(field.rpartition(":")[2], 16) for field in fields[1:3]] == wanted:
            return _has_open(pid, f"socket:[{fields[9]}]")
    return False


def _has_open(pid: int, link: str) -> bool:
    try:
        return any(_target(each) == link for each in Path(f"/proc/{pid}/fd").iterdir())
    except OSError:
        return False  # it has ended


def _target(path: Path) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""  # it was closed meanwhile
