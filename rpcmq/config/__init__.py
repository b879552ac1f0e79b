"""Settings of the router and of a client: one dataclass each, from which all else is derived.

The router's settings come, in rising order of precedence, from the defaults below, one TOML file,
the environment and the command line; a client's from the defaults, the environment and arguments.
Each setting states once its default, what it accepts and what it is for. TOML keys
(``link.lost_seconds``), variables (``RPCMQ_LINK_LOST_SECONDS``), flags (``--link-lost-seconds``), help
and documentation follow from that. Whatever is unknown or wrong is refused, all of it in one error.

Times are seconds: a number, or text such as ``"250ms"``, ``"30s"``, ``"5m"``, ``"2h"``, ``"1d"``. Sizes are
bytes: an integer, or text such as ``"64KiB"``, ``"16MiB"``, ``"1GiB"``.

Names are loaded on first use, so that a client does not make the tables of a router's settings.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rpcmq.config.client import ClientConfig, ClientSettings, ConnectionSettings
    from rpcmq.config.client_loading import load_client_config
    from rpcmq.config.keys import FieldInfo
    from rpcmq.config.router import RouterConfig
    from rpcmq.config.router_keys import describe_fields
    from rpcmq.config.router_loading import apply_live, diff_live, live_fields, load_router_config

__all__ = [
    "ClientConfig",
    "ClientSettings",
    "ConnectionSettings",
    "FieldInfo",
    "RouterConfig",
    "apply_live",
    "describe_fields",
    "diff_live",
    "live_fields",
    "load_client_config",
    "load_router_config",
]

_HOME = {
    "ClientConfig": "client",
    "ClientSettings": "client",
    "ConnectionSettings": "client",
    "FieldInfo": "keys",
    "RouterConfig": "router",
    "apply_live": "router_loading",
    "describe_fields": "router_keys",
    "diff_live": "router_loading",
    "live_fields": "router_loading",
    "load_client_config": "client_loading",
    "load_router_config": "router_loading",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
    globals()[name] = value
    return value
