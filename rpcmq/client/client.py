"""A client that lives where its program does: in gevent, or in plain threads."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, Unpack

from rpcmq.client.configured_codec import codec_for
from rpcmq.client.middleware import Middleware
from rpcmq.client.options import CallOptions
from rpcmq.client.verbs import ClientVerbs, Target
from rpcmq.config import ClientConfig, ClientSettings, load_client_config
from rpcmq.payload import Codec, ExceptionRegistry
from rpcmq.transport.home import Home
from rpcmq.transport.home_choice import home_for

__all__ = ["Client", "Target"]


class Client(ClientVerbs):
    """A connection to a router under one identity.

    Args:
        router: url of the router; default: ``RPCMQ_ROUTER`` or ``tcp://127.0.0.1:7700``. Of several (a list, or text
            with commas) a caller uses one, and goes on at the next when that is gone; see
            docs/operations/several-routers.md.
        identity: name of this process in the system; default: host, program, pid and a random part, after
            the name of its key if there is a ``key_file``.
        exceptions: exception classes of the application that are rebuilt when a method raises them.
        codec: encodes and decodes payloads; default: from the configuration.
        options: what verbs do whose caller does not say it, for example ``CallOptions(retry=3)``.
        topic_options: the same for some topics and their servers; they come before ``options``.
        middleware: stands around calls and casts, the first outermost; see :class:`rpcmq.Middleware`.
        settings: any field of :class:`rpcmq.config.ClientConfig`, for example ``timeout=10``, or ``key_file``: the
            keys of this process and of a router with CURVE (default: ``RPCMQ_KEY_FILE``), or ``shell``.

    Greenlets and OS threads share a client freely. Where it lives is the setting ``shell`` (``RPCMQ_SHELL``): in a
    program that gevent has patched, or where a gevent hub is in use already, in the hub of the thread that makes it;
    in any other program in a plain thread of its own, which needs no gevent: what it sends leaves and heartbeats go on
    whatever the program does. There each subscription's handler runs in a thread of its own, and ``on_progress`` in the
    thread that calls. After a fork the child's first use connects anew, under an identity of its own. A client that is
    dropped is closed.

    Raises:
        ConfigError: a setting is unknown or wrong, or the ``key_file`` is: missing, wrong, readable by others; or
            ``shell`` is ``"gevent"``, which cannot be imported.
    """

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
        given = {k: v for k, v in {"router": router, "identity": identity, **settings}.items() if v is not None}
        config = self._load_config(given)
        super().__init__(config, codec or codec_for(config, exceptions), options, topic_options, middleware)

    def _load_config(self, given: Mapping[str, Any]) -> ClientConfig:
        """The settings of a client to which some were ``given``."""
        return load_client_config(os.environ, given)

    def _new_home(self) -> Home:
        return home_for(self.config.shell)
