"""A client for programs of plain threads."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from typing import Unpack

from rpcmq.client.middleware import Middleware
from rpcmq.client.options import CallOptions
from rpcmq.client.process import codec_for
from rpcmq.client.verbs import ClientVerbs, Target
from rpcmq.config import ClientSettings, load_client_config
from rpcmq.errors import ConfigError
from rpcmq.payload import Codec, ExceptionRegistry
from rpcmq.threads.outside_codec import outside_codec
from rpcmq.threads.process import ThreadProcess
from rpcmq.transport.thread_home import ThreadHome, thread_home

__all__ = ["Client"]


class Client(ClientVerbs):
    """A connection to a router under one identity, for programs of plain threads. It needs no gevent.

    Args:
        router, identity, exceptions, codec, options, topic_options, middleware, settings: as for
            :class:`rpcmq.Client`; the setting ``shell`` can only be ``"threads"`` or ``"auto"`` here, and
            ``RPCMQ_SHELL`` has no meaning.

    All threads share a client freely. One thread, which only serves the sockets of all clients of the process, sends
    what they send, and answers heartbeats whatever the program does. Handlers of events run in a thread of their own
    for each subscription, and ``on_progress`` in the thread that calls. After a fork the child's first use connects
    anew, under an identity of its own. A client that is dropped is closed. In a program that gevent or eventlet has
    patched, green threads may use it, too; but the program must be patched before the client is made.

    Raises:
        ConfigError: a setting is unknown or wrong, ``shell`` is ``"gevent"``, or the ``key_file`` is missing, wrong,
            or readable by others.
    """

    _process_class = ThreadProcess

    def __init__(
        self,
        router: str | Sequence[str] | None = None,
        identity: str | None = None,
        *,
        exceptions: ExceptionRegistry | None = None,
        codec: Codec | None = None,
        options: CallOptions | None = None,
        topic_options: Mapping[Target, CallOptions] | None = None,
        middleware: Sequence[Middleware] = (),
        **settings: Unpack[ClientSettings],
    ) -> None:
        arguments = {k: v for k, v in {"router": router, "identity": identity, **settings}.items() if v is not None}
        config = load_client_config(os.environ, arguments)
        if "shell" in arguments and config.shell == "gevent":
            raise ConfigError("shell = 'gevent': a client of rpcmq.threads lives in a plain thread; use rpcmq.Client")
        codec = outside_codec(codec or codec_for(config, exceptions))
        super().__init__(config, codec, options, topic_options, middleware, _pause)

    def _new_home(self) -> ThreadHome:
        return thread_home()


def _pause(seconds: float) -> None:
    # Looked up each time: a program that is patched later waits as it wants to.
    time.sleep(seconds)
