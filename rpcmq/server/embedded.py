"""A router inside the current process and gevent hub."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from time import monotonic, time

from rpcmq.config import RouterConfig
from rpcmq.core.actions import Note
from rpcmq.core.router import Router
from rpcmq.server.settings import apply, settings_for
from rpcmq.server.spool import Spool
from rpcmq.transport.batches import new_context
from rpcmq.transport.router_shell import RouterShell

__all__ = ["EmbeddedRouter"]

#: How long the dispatch log may take to be written when the router ends (seconds).
_FLUSH = 5.0


class EmbeddedRouter:
    """Engine and shell, bound and running as soon as it is made.

    Raises:
        ConfigError: the endpoint cannot be bound, or the directory of the dispatch log not be written.
    """

    def __init__(self, config: RouterConfig, on_note: Callable[[Note], None] = lambda note: None) -> None:
        self.config = config
        self.settings = settings_for(config)
        boot, directory = int(time() * 1000), config.dispatch_log.directory
        #: Where the dispatch log goes; None: there is none.
        self.spool: Spool | None = None
        if directory:
            self.spool = Spool(directory, self.settings.router_id, self.settings.router_name, boot)
        self.engine = Router(self.settings, boot, monotonic(), lambda: secrets.token_hex(16), self.spool)
        self._context = new_context(config.router.io_threads)
        try:
            self.shell = RouterShell(
                self.engine,
                self._context,
                config.router.listen,
                on_note,
                max_bytes=config.message.max_bytes,
                lost_seconds=config.link.lost_seconds,
                handshake_seconds=config.link.handshake_seconds,
            )
        except BaseException:
            self._close_log()
            self._context.term()
            raise

    @property
    def url(self) -> str:
        """Where it listens."""
        return str(self.shell.url)

    def reconfigure(self, config: RouterConfig) -> None:
        """Go on with ``config``, which differs from the one before only in what can change live."""
        self.config = config
        apply(config, self.settings)

    def close(self, linger_seconds: float = 1.0) -> None:
        """Stop at once; what was sent is given ``linger_seconds`` to leave."""
        self.shell.close(linger_seconds)
        self._close_log()
        self._context.term()

    def _close_log(self) -> None:
        self.engine.close(monotonic())
        if self.spool is not None:
            self.spool.close(_FLUSH)
            self.spool = None
