"""The routers that a transport url names."""

from __future__ import annotations

from typing import Any

from oslo_messaging import InvalidTransportURL
from oslo_utils import netutils

__all__ = ["DEFAULT_PORT", "router_urls", "virtual_host"]

DEFAULT_PORT = 7700


def router_urls(url: Any) -> tuple[str, ...]:
    """Return the urls of the routers, in the order in which they are to be tried.

    Args:
        url: the parsed transport url, ``rpcmq://host:port,host:port/``.

    Raises:
        InvalidTransportURL: it names no host, or has a user or password.
    """
    if not url.hosts:
        raise InvalidTransportURL(
            str(url), "the transport url names no router: write rpcmq://host:7700/, several hosts with commas"
        )
    for host in url.hosts:
        if not host.hostname:
            raise InvalidTransportURL(str(url), "a host of the transport url has no name: write rpcmq://host:7700/")
        if host.username or host.password:
            raise InvalidTransportURL(
                # Not the url, which has the password.
                f"rpcmq://{host.hostname}/",
                f"the transport url has a user or password for {host.hostname!r}: rpcmq knows processes by their keys; "
                "leave them out, and set key_file in [oslo_messaging_rpcmq], or ?key_file=... in the url",
            )
    return tuple(f"tcp://{netutils.escape_ipv6(host.hostname)}:{host.port or DEFAULT_PORT}" for host in url.hosts)


def virtual_host(url: Any) -> str:
    """Return the virtual host: a space of names of its own; empty: none. ``/`` means none, as with a broker."""
    return (url.virtual_host or "").strip("/")
