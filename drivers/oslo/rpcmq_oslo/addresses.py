"""Addresses of rpcmq for targets of oslo.messaging.

In rpcmq the topic ``a.b`` and the server ``b`` of the topic ``a`` are one address. Here they are two, and Cinder uses
both at once, so topics are written without dots: each is a colon.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from oslo_messaging import InvalidTarget

from rpcmq import Address
from rpcmq.errors import UsageError

__all__ = ["Addresses"]

#: No two topics become the same, and none has a dot.
_WITHOUT_DOTS = str.maketrans({".": ":", ":": "%3A", "%": "%25"})


class Addresses:
    """Makes the addresses of a transport; exchange, topic and server are fields of their own, whatever is in them.

    Args:
        virtual_host: what is under one knows nothing of another; empty: none.
        default_exchange: of targets that name none.
    """

    def __init__(self, virtual_host: str, default_exchange: str | None) -> None:
        self._virtual_host = virtual_host
        self._default_exchange = default_exchange or ""

    def of(self, target: Any) -> Address:
        """Return the address of ``target``: of its server, if it names one, else of all that listen to its topic.

        Raises:
            InvalidTarget: a name is no text, is too long, or has characters that cannot be printed.
        """
        return self._checked(target, target.topic, target.server or "")

    def of_topic(self, target: Any) -> Address:
        """Return the address of the topic of ``target``, whether it names a server or not.

        Raises:
            InvalidTarget: as :meth:`of`.
        """
        return self._checked(target, target.topic, "")

    def of_priority(self, target: Any, priority: str) -> Address:
        """Return the address of the notifications to ``target`` with a priority.

        Raises:
            InvalidTarget: as :meth:`of`.
        """
        return self._checked(target, f"{target.topic}.{priority}", "")

    def _checked(self, target: Any, topic: str, server: str) -> Address:
        exchange = target.exchange or self._default_exchange
        for field, name in (("topic", topic), ("exchange", exchange)):
            if not isinstance(name, str):
                raise InvalidTarget(f"{field} must be a str, not {type(name).__name__}: {name!r}", target)
        address = Address(topic.translate(_WITHOUT_DOTS), server, self._exchange(exchange))
        try:
            address.encode()
        except UsageError as error:
            raise InvalidTarget(str(error), target) from error
        return address

    def _exchange(self, exchange: str) -> str:
        """Put the virtual host before ``exchange``; no two pairs of them give the same."""
        if not self._virtual_host and "/" not in exchange:
            return exchange
        return f"{quote(self._virtual_host, safe='')}/{exchange}"
