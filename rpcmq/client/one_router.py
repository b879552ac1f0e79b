"""Consumers of calls and of events are registered at one router: a client that has several is refused."""

from __future__ import annotations

from rpcmq.config import ClientConfig
from rpcmq.errors import UsageError

__all__ = ["only_router"]


def only_router(config: ClientConfig, what: str) -> str:
    """Return the url of the router that ``config`` names.

    Args:
        what: for the error: the subject of "is registered at one router".

    Raises:
        UsageError: it names several.
    """
    if len(config.router) == 1:
        return config.router[0]
    raise UsageError(
        f"{what} is registered at one router, and its client has {len(config.router)} ({', '.join(config.router)}): "
        "what is sent at the others would not reach it; make one for each router, each with a client of its own"
    )
