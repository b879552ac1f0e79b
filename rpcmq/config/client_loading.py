"""Reading the settings of a client."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from rpcmq.config.client import ClientConfig
from rpcmq.config.client_keys import CLIENT_FIELDS
from rpcmq.config.loading import Values

__all__ = ["load_client_config"]


def load_client_config(
    environ: Mapping[str, str] | None = None, arguments: Mapping[str, Any] | None = None
) -> ClientConfig:
    """A client's settings: arguments before environment before defaults. An argument of None is not given.

    Raises:
        ConfigError: one line for each value that is unknown or wrong, in whichever source.
    """
    values = Values(CLIENT_FIELDS)
    values.take_environment(environ or {})
    for key, value in (arguments or {}).items():
        if value is not None:
            values.take_key("argument", key, value)
    return replace(ClientConfig(), **values.finish())
