"""Key authentication of a router: its own keys, the authorised keys, and the ZAP handler."""

from __future__ import annotations

import os
from collections.abc import Callable
from hashlib import blake2b
from time import monotonic, time
from typing import Any

import gevent

from rpcmq.core.router.actions import LogEvent
from rpcmq.core.router.rights import Key
from rpcmq.core.router.router import Router
from rpcmq.errors import ConfigError
from rpcmq.server.authorized_keys import AUTHORIZED, ROUTER_KEY, AuthorizedKeys
from rpcmq.server.mesh_secret import MESH_SECRET, read_mesh_secret
from rpcmq.server.queue_key import authorized_queue_server, queue_server_keys
from rpcmq.transport.curve import Curve, check_libzmq
from rpcmq.transport.gevent_shell import GeventShell
from rpcmq.transport.key_files import check_folder, read_key_file
from rpcmq.transport.zap import ZapHandler

__all__ = ["KeyAuthenticator"]

_DOMAIN = "router"
#: Interval between scans of the folder of authorised keys (seconds).
LOOK = 1.0


def _mesh_secret(folder: str) -> str:
    """Return the secret of the mesh; empty: there is none."""
    path = os.path.join(folder, MESH_SECRET)
    return read_mesh_secret(path) if os.path.exists(path) else ""


def _secrets(mesh: str, own: str) -> tuple[bytes, ...]:
    """Return the secrets that sign the origins of links: that of the mesh, if there is one, and the router's own."""
    return tuple(blake2b(secret.encode(), person=b"rpcmq handles").digest() for secret in (mesh, own) if secret)


class KeyAuthenticator:
    """Keeps the engine and libzmq up to date with the folder of authorised keys.

    Args:
        folder: has ``router.key``, ``authorized/``, and maybe ``mesh.secret``.
        on_note: gets each event that is worth a line in the log.
        has_queues: whether the router has a queue server, whose key is in no file.

    Attributes:
        queue_keys: of queue servers, the first that of the router's own one; empty: there are none.

    Raises:
        ConfigError: libzmq is too old, or a file is missing, wrong or too open.
    """

    def __init__(self, folder: str, on_note: Callable[[LogEvent], None], has_queues: bool = False) -> None:
        check_libzmq()
        for directory in (folder, os.path.join(folder, AUTHORIZED)):
            check_folder(directory)
        own = read_key_file(os.path.join(folder, ROUTER_KEY), client=False)
        self.curve = Curve(own.public, own.secret, domain=_DOMAIN)
        mesh_secret = _mesh_secret(folder)
        self._secrets = _secrets(mesh_secret, own.secret)
        # Those of other routers of the mesh may come here when these have died.
        self.queue_keys = queue_server_keys(own, mesh_secret) if has_queues or mesh_secret else ()
        self.keys = AuthorizedKeys(os.path.join(folder, AUTHORIZED))
        problems = self.keys.read()
        if problems:
            raise ConfigError("\n".join(problems))
        self._on_note = on_note
        self._router: Router | None = None
        self._wake: Callable[[], None] = lambda: None
        self._zap: ZapHandler | None = None
        self._looking: gevent.Greenlet[..., None] | None = None

    def open(self, context: Any, router: Router) -> None:
        """Authenticate the sockets of ``context``, and pass the keys to ``router``. Call before it binds."""
        self._router = router
        router.mesh.own.key = self.curve.public
        self.keys.changed(time())
        router.set_authorized_keys(monotonic(), self._valid(), self._secrets)
        self._zap = ZapHandler(context, GeventShell())
        self._zap.register(_DOMAIN, self._decide)

    def _valid(self) -> list[Key]:
        """Return all keys that may connect."""
        return [*self.keys.valid.values(), *map(authorized_queue_server, self.queue_keys)]

    def start(self, wake: Callable[[], None]) -> None:
        """Scan the folder periodically; ``wake`` makes the router's shell act on changes."""
        self._wake = wake
        self._looking = gevent.spawn(self._rescan_periodically)

    def _rescan_periodically(self) -> None:
        while True:
            gevent.sleep(LOOK)
            try:
                self.look()
            except Exception as error:
                # Whatever fails: later revocations must still take effect.
                self._on_note(LogEvent("key file", f"{self.keys.directory}: {type(error).__name__}: {error}", ""))

    def look(self) -> None:
        """Apply changes of the folder, and drop expired keys."""
        for problem in self.keys.read():
            self._on_note(LogEvent("key file", f"{problem}; its key stays as it was", ""))
        if self._router is None:
            return
        before = {key.name for key in self.keys.valid.values()}
        if not self.keys.changed(time()):
            return
        after = {key.name for key in self.keys.valid.values()}
        self._router.set_authorized_keys(monotonic(), self._valid())
        self._wake()
        parts = [f"{len(after)} authorised"]
        for word, names in (("new", after - before), ("gone", before - after)):
            if names:
                parts.append(f"{word}: {', '.join(sorted(names)[:20])}")
        self._on_note(LogEvent("keys", f"keys: {'; '.join(parts)}", ""))

    def refresh(self) -> None:
        """Apply changed default settings to keys whose files do not override them."""
        if self._router is not None:
            self._router.set_authorized_keys(monotonic(), self._valid())
            self._wake()

    def _decide(self, public: str, address: str) -> str:
        if any(public == key.public for key in self.queue_keys):
            return ""
        problem = self.keys.refusal_reason(public)
        if problem and self._router is not None:
            self._router.refused[f"handshake: {'expired' if 'expired' in problem else 'unknown'} key"] += 1
            text = f"handshake from {address} refused: {problem} ({public})"
            self._on_note(LogEvent("denied", text, address))
        return problem

    def close(self) -> None:
        """Stop, after the router's socket was closed."""
        if self._looking is not None:
            self._looking.kill(block=False)
        if self._zap is not None:
            self._zap.close()
