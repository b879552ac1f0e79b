"""Carriers of the messages of oslo.messaging: rpcmq's router or RabbitMQ, which can be killed and comes back."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from time import perf_counter, sleep
from typing import Any, Self

from benchmarks.children import Child, ChildFailed, child_of, router
from benchmarks.queue_cost import Pids, alone, tree
from benchmarks.rabbitmq import RabbitMq, free_port, has_rabbitmq

__all__ = ["MESH", "OURS", "RABBIT", "Broker", "TwoRouters", "brokers", "oslo_child"]

OURS, RABBIT, MESH = "rpcmq", "RabbitMQ", "rpcmq, two routers"
_PYTHON = Path(__file__).resolve().parent.parent / ".venv-oslo-18/bin/python"
#: State of a socket in /proc/net/tcp that listens.
_LISTENS = "0A"
#: Longest wait for a port (seconds), and the pause between two looks.
_PATIENCE, _LOOK_AGAIN = 60.0, 0.002
#: Seconds after which a router has started: more than ``router.recovery_seconds``.
_STARTED = 4.0


class Broker(ABC):
    """It runs for as long as the block does.

    Attributes:
        port: on loopback.
    """

    port: int

    @property
    @abstractmethod
    def url(self) -> str:
        """The transport url."""

    @property
    @abstractmethod
    def pids(self) -> Pids:
        """Its processes."""

    @abstractmethod
    def start(self) -> None:
        """Start it again, on its port."""

    @abstractmethod
    def kill(self) -> None:
        """Kill it (SIGKILL)."""

    @abstractmethod
    def __enter__(self) -> Self: ...

    @abstractmethod
    def __exit__(self, *error: object) -> None: ...

    def await_port(self, is_open: bool = True) -> float:
        """Wait until somebody listens at the port, or nobody; return when that was (time of ``perf_counter``).

        Raises:
            ChildFailed: it has not come to that.
        """
        for _ in range(int(_PATIENCE / _LOOK_AGAIN)):
            if self._is_open() == is_open:
                return perf_counter()
            sleep(_LOOK_AGAIN)
        raise ChildFailed(f"{'nobody' if is_open else 'somebody'} listens at port {self.port}")

    def _is_open(self) -> bool:
        local = f"0100007F:{self.port:04X}"
        rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()]
        return any(row[1] == local and row[3] == _LISTENS for row in rows)


class _Router(Broker):
    def __init__(self) -> None:
        self.port = free_port()
        self._running = ExitStack()

    @property
    def url(self) -> str:
        return f"rpcmq://127.0.0.1:{self.port}/"

    @property
    def pids(self) -> Pids:
        return alone(self._daemon.pid)

    def start(self) -> None:
        self._daemon, _ = self._running.enter_context(router(router_listen=f"tcp://127.0.0.1:{self.port}"))

    def kill(self) -> None:
        self._running.close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.kill()


class TwoRouters(_Router):
    """A router, beside which another one is started before it is killed: whoever uses it goes on there."""

    def __init__(self) -> None:
        super().__init__()
        self._other_port = free_port()
        self._other = ExitStack()
        self._has_other = False

    @property
    def url(self) -> str:
        return f"rpcmq://127.0.0.1:{self.port},127.0.0.1:{self._other_port}/"

    def kill(self) -> None:
        """Kill the first one, by which all have come, once both are a mesh."""
        if not self._has_other:
            self._start_other()
        super().kill()

    def _start_other(self) -> None:
        self._has_other = True
        listen, peer = (f"tcp://127.0.0.1:{port}" for port in (self._other_port, self.port))
        other, _ = self._other.enter_context(router(router_listen=listen, router_name="other", mesh_peers=peer))
        other.line("linked to router")
        # Its first seconds, in which it waits for processes of an earlier life, are over then.
        sleep(_STARTED)

    def __exit__(self, *error: object) -> None:
        self._other.close()
        super().kill()


class _Rabbit(Broker):
    def __init__(self) -> None:
        self._server = RabbitMq()
        self.port = self._server.port

    @property
    def url(self) -> str:
        return f"rabbit://guest:guest@127.0.0.1:{self.port}/"

    @property
    def pids(self) -> Pids:
        return tree(self._server.pid)

    def start(self) -> None:
        self._server.start()

    def kill(self) -> None:
        self._server.kill()

    def __enter__(self) -> Self:
        self._server.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._server.__exit__(*error)


def brokers(notice: Callable[[str], None]) -> dict[str, Callable[[], Broker]]:
    """Return what can be started here, RabbitMQ first; ``notice`` is told what is left out.

    Raises:
        ChildFailed: oslo.messaging is not installed.
    """
    if not _PYTHON.exists():
        raise ChildFailed("oslo.messaging is not installed: run make .venv-oslo-18/.ready")
    if has_rabbitmq():
        return {RABBIT: _Rabbit, OURS: _Router}
    notice(f"{RABBIT}: rabbitmq-server (Debian's package) is not installed")
    return {OURS: _Router}


def oslo_child(function: Callable[..., None], **arguments: Any) -> AbstractContextManager[Child]:
    """``function(**arguments)`` in a process that has oslo.messaging; see :func:`benchmarks.children.child`."""
    return child_of(str(_PYTHON), function, **arguments)
