"""A service in a pool of plain threads."""

from __future__ import annotations

import signal
import threading
from collections.abc import Mapping
from typing import Any, Unpack

from rpcmq.client.base_service import BaseService
from rpcmq.config import ConnectionSettings
from rpcmq.threads.client import Client

__all__ = ["Service"]


class Service(BaseService):
    """Serves the public methods of ``endpoint`` on a topic, each request in one of ``concurrency`` threads.

    Args:
        topic, endpoint, host, router, identity, client, exchange, concurrency, context, drain_seconds, direct, group,
            settings: as for :class:`rpcmq.Service`; ``client`` is a :class:`rpcmq.threads.Client`.

    Methods may block, and compute: heartbeats do not depend on them. They run beside one another, so what they share
    must be safe for threads. A thread is started when a request needs one, and ends when it has had nothing to do for
    half a minute.

    Raises:
        UsageError: a wrong argument.
    """

    client: Client

    def __init__(
        self,
        topic: str,
        endpoint: Any,
        *,
        host: str | None = None,
        router: str | None = None,
        identity: str | None = None,
        client: Client | None = None,
        exchange: str | None = None,
        concurrency: int = 16,
        context: Any = None,
        drain_seconds: float = 30.0,
        direct: bool = False,
        group: str = "",
        **settings: Unpack[ConnectionSettings],
    ) -> None:
        super().__init__(
            topic, endpoint, client, {"router": router, "identity": identity, **settings}, host=host, exchange=exchange,
            concurrency=concurrency, context=context, drain_seconds=drain_seconds, direct=direct, group=group,
        )  # fmt: skip

    def _new_client(self, settings: Mapping[str, Any]) -> Client:
        return Client(**settings)

    def wait(self) -> None:
        """Wait until the service has stopped. SIGTERM and SIGINT stop it (in the main thread of a program)."""
        before = {}
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGINT):
                before[number] = signal.signal(number, lambda number, frame: self.home.post(self.stop))
        try:
            self.home.run(self._stopped.wait)
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
