"""A client that lives in plain threads, whatever the program is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from rpcmq.client.client import Client as AnyClient
from rpcmq.config import ClientConfig
from rpcmq.errors import ConfigError

__all__ = ["Client"]


class Client(AnyClient):
    """A :class:`rpcmq.Client` that lives in a plain thread also where the program uses gevent.

    Its arguments are those of :class:`rpcmq.Client`; the setting ``shell`` can only be ``"threads"`` or ``"auto"``, and
    ``RPCMQ_SHELL`` has no meaning.

    In a program that gevent or eventlet has patched, green threads may use it, too; but the program must be patched
    before the client is made.

    Raises:
        ConfigError: a setting is unknown or wrong, ``shell`` is ``"gevent"``, or the ``key_file`` is missing, wrong,
            or readable by others.
    """

    def _load_config(self, given: Mapping[str, Any]) -> ClientConfig:
        config = super()._load_config(given)
        if "shell" in given and config.shell == "gevent":
            raise ConfigError("shell = 'gevent': a client of rpcmq.threads lives in a plain thread; use rpcmq.Client")
        return replace(config, shell="threads")
