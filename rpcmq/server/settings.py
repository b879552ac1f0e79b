"""Conversion of the router's configuration into the engine's settings."""

from __future__ import annotations

import socket

from rpcmq.config import RouterConfig
from rpcmq.core.router.settings import Settings
from rpcmq.server.limits import half_of_memory

__all__ = ["apply", "settings_for"]


def settings_for(config: RouterConfig) -> Settings:
    """Settings that ``config`` describes."""
    settings = Settings()
    apply(config, settings)
    return settings


def apply(config: RouterConfig, settings: Settings) -> None:
    """Update ``settings``, which an engine may be using, from ``config``."""
    settings.apply(config, {"router.name": socket.gethostname(), "router.max_bytes": half_of_memory()})
