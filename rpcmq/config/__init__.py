"""Settings of the router and of a client: one dataclass each, from which all else is derived.

The router's settings come, in rising order of precedence, from the defaults below, one TOML file,
the environment and the command line; a client's from the defaults, the environment and arguments.
Each setting states once its default, what it accepts and what it is for. TOML keys
(``link.lost_seconds``), variables (``RPCMQ_LINK_LOST_SECONDS``), flags (``--link-lost-seconds``), help
and documentation follow from that. Whatever is unknown or wrong is refused, all of it in one error.

Times are seconds: a number, or text such as ``"250ms"``, ``"30s"``, ``"5m"``, ``"2h"``, ``"1d"``. Sizes are
bytes: an integer, or text such as ``"64KiB"``, ``"16MiB"``, ``"1GiB"``.
"""

from rpcmq.config.client import ClientConfig, ClientSettings, ConnectionSettings
from rpcmq.config.keys import FieldInfo, describe_fields
from rpcmq.config.loading import apply_live, diff_live, live_fields, load_client_config, load_router_config
from rpcmq.config.router import RouterConfig

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
