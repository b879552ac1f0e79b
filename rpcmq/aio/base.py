"""A client for asyncio without its verbs: its connection, its end, and the questions that the router answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from rpcmq.aio.caller import Caller
from rpcmq.aio.middleware import AnyMiddleware, Pipeline
from rpcmq.client.client import Client as PlainClient
from rpcmq.client.options import Defaults
from rpcmq.client.sender import Target
from rpcmq.client.shown_names import shown_as
from rpcmq.client.verbs import ClientVerbs
from rpcmq.config import ClientConfig

__all__ = ["BaseClient"]


@shown_as("Client")
class BaseClient:
    """The connection of a client for asyncio, and the verbs that go on it.

    Args:
        client: the client of plain threads that tasks use.
        middleware, defaults: of the tasks' calls and casts.
        shared: whether ``client`` is somebody else's, and stays open.
    """

    def __init__(
        self, client: PlainClient, middleware: tuple[AnyMiddleware, ...], defaults: Defaults, shared: bool
    ) -> None:
        self._client = client
        self._shared = shared
        self._middleware = middleware
        self._defaults = defaults
        self._new_caller()

    def _new_caller(self) -> Caller:
        caller = Caller(self._client)
        self._pipeline = Pipeline(self._middleware, self._defaults, self._client.pipeline.budget, caller.bridge)
        self._layered = self._pipeline.used
        self._caller = caller
        return caller

    @property
    def caller(self) -> Caller:
        """The sender of the tasks' calls; in the child of a fork another one."""
        caller = self._caller
        return caller if not caller.bridge.process.connection.abandoned else self._new_caller()

    @property
    def threads(self) -> ClientVerbs:
        """The same connection for the threads of this program, whose verbs block."""
        return self._client

    @property
    def config(self) -> ClientConfig:
        """The settings of the client."""
        return self._client.config

    @property
    def identity(self) -> str:
        """The name under which the router knows this process."""
        return self._client.identity

    @property
    def closed(self) -> bool:
        """Whether :meth:`close` was called."""
        return self._client.closed

    def __repr__(self) -> str:
        return f"<rpcmq.aio.Client over {self._client!r}>"

    async def connect(self, timeout: float | None = None) -> None:
        """Wait until the router has welcomed this process. See :meth:`rpcmq.Client.connect`.

        Args:
            timeout: seconds; default: ``connect_timeout``.
        """
        await self.caller.bridge.wait_ready(self.config.connect_timeout if timeout is None else timeout)

    async def close(self, linger_seconds: float | None = None) -> None:
        """Say goodbye. See :meth:`rpcmq.Client.close`. A client that others share is left open.

        Args:
            linger_seconds: how long to wait at most until the router has all casts; default: the setting.
        """
        if not self._shared and not self.closed:
            await self.caller.bridge.in_thread(self._client.close, linger_seconds)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    # --- answered by the router ------------------------------------------------------------------

    async def declare(self, topic: Target, *, group: str = "", timeout: float | None = None) -> None:
        """Have the router queue messages to ``topic``. See :meth:`rpcmq.Client.declare`."""
        await self.caller.bridge.in_thread(self._client.declare, topic, group=group, timeout=timeout)

    async def query(self, view: str = "overview", timeout: float | None = None) -> dict[str, Any]:
        """The router's own state. See :meth:`rpcmq.Client.query`."""
        return await self.caller.bridge.in_thread(self._client.query, view, timeout)

    async def statistics(self) -> dict[str, Any]:
        """Counters of this process's casts. See :meth:`rpcmq.Client.statistics`."""
        return await self.caller.bridge.run(self._client.statistics)

    async def purge(
        self, topic: Target, *, group: str = "", forget: bool = False, timeout: float | None = None
    ) -> dict[str, Any]:
        """Have the router drop what waits for ``topic``. See :meth:`rpcmq.Client.purge`."""
        purge = self._client.purge
        return await self.caller.bridge.in_thread(purge, topic, group=group, forget=forget, timeout=timeout)

    async def ask_node(self, kind: int, payload: bytes = b"", timeout: float | None = None) -> bytes:
        """Ask the node of the router that takes messages of ``kind``. See :meth:`rpcmq.Client.ask_node`."""
        return await self.caller.bridge.in_thread(self._client.ask_node, kind, payload, timeout)

    async def control_node(
        self, node: str, control: str, arguments: Mapping[str, Any] | None = None, timeout: float | None = None
    ) -> dict[str, Any]:
        """Ask for a control of a node of the router. See :meth:`rpcmq.Client.control_node`."""
        return await self.caller.bridge.in_thread(self._client.control_node, node, control, arguments, timeout)

    async def restart_node(self, node: str, timeout: float | None = None) -> str:
        """Have a node of the router start over. See :meth:`rpcmq.Client.restart_node`."""
        return await self.caller.bridge.in_thread(self._client.restart_node, node, timeout)

    async def kick(self, identity: str, timeout: float | None = None) -> int:
        """Have the router end the links of the process ``identity``. See :meth:`rpcmq.Client.kick`."""
        return await self.caller.bridge.in_thread(self._client.kick, identity, timeout)
