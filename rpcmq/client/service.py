"""A service in gevent, each request in a greenlet of its own, or in a pool of threads."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping, Sequence
from typing import Any, Unpack

from rpcmq.client.base_service import BaseService
from rpcmq.client.client import Client
from rpcmq.client.stop_signals import STOP_SIGNALS, on_stop_signal, tell_what_runs
from rpcmq.config import ConnectionSettings
from rpcmq.transport.home_choice import gevent_can_live_here

__all__ = ["Service"]


class Service(BaseService):
    """Serves the public methods of ``endpoint`` on a topic.

    A method is called as ``method(ctx, **args)`` in a greenlet of its own: in a thread where the service uses a
    ``client`` that lives in plain threads, or ``RPCMQ_SHELL=threads`` or ``shell="threads"`` asks for that. There
    methods may block, and must be safe to run beside one another. What a method returns, yields or raises, also
    ``SystemExit``, goes back to the caller. Names that begin with an underscore are not served.

    A method that yields, or returns an iterator, is a stream: callers ask for it with ``multicall``. A ``call`` of it
    raises, and makes none of its items; a cast runs it to its end. ``async`` methods are refused.

    Args:
        topic: what is served, for example ``"compute"``.
        endpoint: any object with methods. Of a module: its own functions, not those it imports, or what its
            ``__all__`` names.
        host: name of this server: ``"<topic>.<host>"`` is its own topic. Default: the host's name.
        router: url of the router, or of several: it is registered at each of them. Default: as for :class:`Client`.
        identity: name of this process; default as for :class:`Client`.
        client: serve over this client's connection rather than one of its own; then neither router, identity nor
            settings are given.
        exchange: namespace of the topic; default: the client's.
        concurrency: how many requests run at once; more wait in the router. Default: 64 greenlets, or 16 threads.
        context: class with ``from_dict()`` that request contexts are made into; default: plain dict.
        drain_seconds: how long :meth:`stop` waits for what runs.
        direct: also listen for direct calls, which do not pass the router.
        group: serve a group of the topic, which gets its own copy of each message, for one of the
            group's services to run; it has no own topic of this server. A call has one answer: that of
            the topic's own services where there are any, else of the group that was first.
        settings: further settings of the client.

    Raises:
        ConfigError: a wrong setting; or gevent cannot be imported, and nothing asks for threads.
        UsageError: a wrong argument.
    """

    client: Client

    def __init__(
        self,
        topic: str,
        endpoint: Any,
        *,
        host: str | None = None,
        router: str | Sequence[str] | None = None,
        identity: str | None = None,
        client: Client | None = None,
        exchange: str | None = None,
        concurrency: int | None = None,
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
        # A service is at home in gevent also in a program that has not used it yet: wait() runs the hub. Methods that
        # were written for greenlets must not suddenly run beside one another in threads.
        shell = os.environ.get("RPCMQ_SHELL", "gevent" if gevent_can_live_here() else "threads")
        return Client(**{"shell": shell, **settings})

    def wait(self) -> None:
        """Wait until the service has stopped. SIGTERM and SIGINT stop it (in the main thread of a program).

        What runs may finish; the log says what that is. A second signal ends the process at once.
        """
        before: dict[int, Any] = {}
        come = on_stop_signal(lambda: self.home.post(self._stop_and_tell))
        try:
            for number in STOP_SIGNALS:
                before[number] = signal.signal(number, lambda number, frame: come(number))
        except ValueError:
            pass  # this is not the main thread, to which all signals come
        try:
            self.home.run(self._stopped.wait)
        finally:
            for changed, handler in before.items():
                signal.signal(changed, handler)

    def _stop_and_tell(self) -> None:
        tell_what_runs(self._consumer, self._drain_seconds)
        self.stop()
