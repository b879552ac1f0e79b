"""Every setting of a router with its key."""

from __future__ import annotations

from collections.abc import Iterator

from rpcmq.config.client import ClientConfig
from rpcmq.config.keys import FieldInfo, fields_of
from rpcmq.config.router import RouterConfig

__all__ = ["ROUTER_FIELDS", "describe_fields"]


def describe_fields(config: RouterConfig | ClientConfig | None = None) -> Iterator[FieldInfo]:
    """Every setting of the router (or of ``config``), in the order of the file; defaults are its values."""
    config = RouterConfig() if config is None else config
    return fields_of(config, has_flags=isinstance(config, RouterConfig))


ROUTER_FIELDS = {info.key: info for info in describe_fields()}
