"""Every setting of a client with its key."""

from __future__ import annotations

from rpcmq.config.client import ClientConfig
from rpcmq.config.keys import fields_of

__all__ = ["CLIENT_FIELDS"]

CLIENT_FIELDS = {info.key: info for info in fields_of(ClientConfig(), has_flags=False)}
