"""A router inside the current process and gevent hub."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from time import monotonic, time

from rpcmq.config import RouterConfig
from rpcmq.core.router.actions import LogEvent
from rpcmq.core.router.router import Router
from rpcmq.nodes.loading import plug_ins_for
from rpcmq.server.key_authenticator import KeyAuthenticator
from rpcmq.server.latency_policy import LatencyPolicy
from rpcmq.server.mesh_urls import advertised_urls, check_peers
from rpcmq.server.node_file import NodeFiles
from rpcmq.server.open_binds import check_binds
from rpcmq.server.settings import apply, settings_for
from rpcmq.server.spool import Spool
from rpcmq.transport.batches import new_context
from rpcmq.transport.router_shell import RouterShell

__all__ = ["EmbeddedRouter"]

#: Time to write the dispatch log, and the files of nodes, when the router ends (seconds).
_FLUSH = 5.0


class EmbeddedRouter:
    """Engine and shell, bound and running as soon as it is made.

    Args:
        engine: makes the engine, of what :class:`Router` takes.

    Raises:
        ConfigError: the endpoint cannot be bound or is open to other hosts, the directory of the dispatch log cannot
            be written, or that of the keys not be used; or a ``[[node]]`` is wrong.
    """

    def __init__(
        self,
        config: RouterConfig,
        on_note: Callable[[LogEvent], None] = lambda note: None,
        engine: Callable[..., Router] = Router,
    ) -> None:
        self.config = config
        self.settings = settings_for(config)
        warnings = check_binds(config)
        check_peers(config)
        #: The key authenticator; None: everybody may connect.
        self.key_authenticator = self._new_key_authenticator(on_note)
        self.plug_ins = plug_ins_for(config.node)
        boot, directory = int(time() * 1000), config.dispatch_log.directory
        #: The spool of the dispatch log; None if it is off.
        self.spool: Spool | None = None
        if directory:
            self.spool = Spool(directory, self.settings.router_id, self.settings.router_name, boot)
        self._node_files = NodeFiles(self.plug_ins.plans, on_note)
        self.plug_ins.keepers = self._node_files.keepers
        more = {"plug_ins": self.plug_ins.makers} if config.node else {}
        self.engine = engine(self.settings, boot, monotonic(), lambda: secrets.token_hex(16), self.spool, **more)
        self.engine.warnings = warnings
        self._context = new_context(config.router.io_threads)
        try:
            if self.key_authenticator is not None:
                self.key_authenticator.open(self._context, self.engine)
            self.shell = self._new_shell(on_note)
        except BaseException:
            self._close_key_authenticator()
            self._close_files()
            self._context.term()
            raise
        self.engine.mesh.own.urls = advertised_urls(config, self.url)
        self._latency_policy = LatencyPolicy(config.hedge.policy_file, self.engine.dispatch.hedging, on_note)
        if self.key_authenticator is not None:
            self.key_authenticator.start(self.shell.wake)
        self._node_files.start(self.shell.wake)
        self.plug_ins.watch()

    def _new_key_authenticator(self, on_note: Callable[[LogEvent], None]) -> KeyAuthenticator | None:
        config = self.config
        if not config.security.keys:
            return None
        return KeyAuthenticator(config.security.keys, on_note, has_queues=config.queue.has_server)

    def _new_shell(self, on_note: Callable[[LogEvent], None]) -> RouterShell:
        config = self.config
        return RouterShell(
            self.engine,
            self._context,
            config.router.listen,
            on_note,
            max_bytes=config.message.max_bytes,
            lost_seconds=config.link.lost_seconds,
            handshake_seconds=config.link.handshake_seconds,
            max_handshakes=config.link.max_handshakes,
            curve=self.key_authenticator.curve if self.key_authenticator is not None else None,
        )

    @property
    def url(self) -> str:
        """The URL it listens on."""
        return str(self.shell.url)

    def reconfigure(self, config: RouterConfig) -> None:
        """Apply ``config``, which may differ from the previous one in live settings only."""
        self.config = config
        apply(config, self.settings)
        self.shell.unidentified.most = config.link.max_handshakes
        self._latency_policy.use(config.hedge.policy_file)
        if self.key_authenticator is not None:
            self.key_authenticator.look()
            self.key_authenticator.refresh()

    def close(self, linger_seconds: float = 1.0) -> None:
        """Stop at once; queued messages have ``linger_seconds`` to leave."""
        self._latency_policy.close()
        self.shell.close(linger_seconds)
        self._close_key_authenticator()
        self._close_files()
        self.plug_ins.close()
        self._context.term()

    def _close_key_authenticator(self) -> None:
        if self.key_authenticator is not None:
            self.key_authenticator.close()

    def _close_files(self) -> None:
        self.engine.close(monotonic())
        if self.spool is not None:
            self.spool.close(_FLUSH)
            self.spool = None
        self._node_files.close(_FLUSH)
