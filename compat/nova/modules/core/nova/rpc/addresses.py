"""Addresses of Nova's topics on rpcmq."""

from __future__ import annotations

import functools
from typing import Any

from compat.nova import options
from rpcmq import Address

__all__ = ["address_of", "exchange", "fanout_address"]


def exchange(conf: Any, name: str | None = None) -> str:
    """The exchange that topics belong to."""
    return name or str(options.value("control_exchange", conf))


@functools.lru_cache(maxsize=4096)
def address_of(topic: str, where: str) -> Address:
    """The topic in an exchange."""
    return Address(topic, "", where)


def fanout_address(conf: Any, topic: str, where: str | None = None) -> Address:
    """The address of consumers made with ``fanout=True``, separate from the topic's own consumers.

    Args:
        where: the exchange; None is that of topics.
    """
    return Address(f"{topic}_fanout", "", exchange(conf, where))
