"""Conversion of the router's configuration into the engine's settings."""

from __future__ import annotations

import socket
from hashlib import blake2b
from secrets import token_bytes

from rpcmq.config import RouterConfig
from rpcmq.core.router.settings import Settings
from rpcmq.server.limits import half_of_memory

__all__ = ["apply", "settings_for"]


def settings_for(config: RouterConfig) -> Settings:
    """Settings that ``config`` describes."""
    settings = Settings()
    made = _made_id(config.router.name or socket.gethostname(), config.router.listen)
    if config.mesh.peers or config.mesh.peer or config.queue.dir:
        settings.router_id = made
    apply(config, settings)
    # One without peers may be linked to others while it runs, and keeps the id in the keys of its processes.
    settings.mesh_id = config.router.id or made
    return settings


def apply(config: RouterConfig, settings: Settings) -> None:
    """Update ``settings``, which an engine may be using, from ``config``. An id that was made stays."""
    machine = {
        "router.name": socket.gethostname(),
        "router.max_bytes": half_of_memory(),
        "router.id": settings.router_id,
    }
    settings.apply(config, machine)


def _made_id(name: str, listen: str) -> int:
    """Return an id that a router has in all its lives, and hardly any other router has.

    One that listens on a free port, or within its process, is another router at each start.
    """
    passing = listen.endswith((":0", ":*")) or listen.startswith("inproc:")
    seed = token_bytes() if passing else f"{name}\n{listen}".encode()
    return int.from_bytes(blake2b(seed, digest_size=4, person=b"rpcmq router id").digest()) or 1
