"""The options of the driver: group ``oslo_messaging_rpcmq``, and the same in the query of a transport url."""

from __future__ import annotations

from typing import Any

from oslo_config import cfg
from oslo_messaging import InvalidTransportURL
from oslo_messaging._drivers.common import ConfigOptsProxy

__all__ = ["GROUP", "OPTION_NAMES", "executor_pool_size", "list_opts", "options_of"]

GROUP = "oslo_messaging_rpcmq"
_OPTIONS = [
    cfg.StrOpt(
        "key_file",
        default="",
        help="File with the CURVE keys of this process and of the routers, as `rpcmq keys add` makes it. Empty: no "
        "keys, which routers accept on loopback only, or if they are told to.",
    ),
]
OPTION_NAMES = tuple(sorted(option.name for option in _OPTIONS))
#: Threads of an executor that oslo.messaging makes, if nothing is said.
_POOL_SIZE = 64


def list_opts() -> list[tuple[str, list[Any]]]:
    """Return the driver's options by group, for oslo.config's generator of sample files."""
    return [(GROUP, list(_OPTIONS))]


def options_of(conf: cfg.ConfigOpts, url: Any) -> Any:
    """Register the options with ``conf``, and return them; those in the query of ``url`` come first.

    Raises:
        InvalidTransportURL: the query has an unknown option, a wrong value, or one option twice.
    """
    conf.register_group(cfg.OptGroup(GROUP, title="rpcmq driver options"))
    conf.register_opts(_OPTIONS, group=GROUP)
    # oslo.messaging joins the values of one that is given twice by commas.
    if "," in (url.query or {}).get("key_file", ""):
        raise InvalidTransportURL(
            str(url),
            f"key_file = {url.query['key_file']!r} in the transport url is given more than once, or has a comma: give "
            f"it once, and one with a comma as key_file in [{GROUP}]",
        )
    try:
        return ConfigOptsProxy(conf, url, GROUP)[GROUP]
    except (cfg.NoSuchOptError, ValueError) as error:
        known = ", ".join(OPTION_NAMES)
        raise InvalidTransportURL(
            str(url), f"the query {dict(url.query)} of the transport url: {error}; options are: {known}"
        ) from error


def executor_pool_size(conf: cfg.ConfigOpts) -> int:
    """Return how many messages a server runs at once."""
    try:
        return int(conf.executor_thread_pool_size)
    except cfg.NoSuchOptError:
        # A listener that no server of oslo.messaging has made.
        return _POOL_SIZE
