"""The routers that a transport url names."""

from __future__ import annotations

from typing import Any

from oslo_messaging import InvalidTransportURL
from oslo_utils import netutils

__all__ = ["DEFAULT_PORT", "SCHEME", "router_urls", "virtual_host"]

SCHEME = "rpcmq"
DEFAULT_PORT = 7700
_LAST_PORT = 65_535


def router_urls(url: Any) -> tuple[str, ...]:
    """Return the urls of the routers, in the order in which they are to be tried.

    Args:
        url: the parsed transport url, ``rpcmq://host:port,host:port/``.

    A router that is named twice is one.

    Raises:
        InvalidTransportURL: it names no host, a port that is none, or a user or password, or is of another scheme.
    """
    # oslo.messaging loads this driver for all that it begins with, up to a plus sign.
    if url.transport != SCHEME:
        raise InvalidTransportURL(
            # Not the url, which may have a password.
            f"{url.transport}://",
            f"the scheme {url.transport!r} of the transport url: write {SCHEME}://host:{DEFAULT_PORT}/; connections "
            "are encrypted where key_file is set in [oslo_messaging_rpcmq], or ?key_file=... in the url",
        )
    for host in url.hosts:
        if host.username or host.password:
            raise InvalidTransportURL(
                # Not the url, which has the password.
                f"{SCHEME}://{host.hostname or ''}/",
                f"the transport url has a user or password for {host.hostname!r}: rpcmq knows processes by their keys; "
                "leave them out, and set key_file in [oslo_messaging_rpcmq], or ?key_file=... in the url",
            )
    if not url.hosts:
        raise InvalidTransportURL(
            str(url), "the transport url names no router: write rpcmq://host:7700/, several hosts with commas"
        )
    for host in url.hosts:
        if not host.hostname:
            raise InvalidTransportURL(str(url), "a host of the transport url has no name: write rpcmq://host:7700/")
        if host.port is not None and not 0 < host.port <= _LAST_PORT:
            raise InvalidTransportURL(
                str(url),
                f"port {host.port} of host {host.hostname!r} in the transport url: a port is 1 to {_LAST_PORT}; "
                f"routers listen on {DEFAULT_PORT} unless told otherwise",
            )
    named = [f"tcp://{netutils.escape_ipv6(host.hostname)}:{host.port or DEFAULT_PORT}" for host in url.hosts]
    return tuple(dict.fromkeys(named))


def virtual_host(url: Any) -> str:
    """Return the virtual host: a space of names of its own; empty: none. ``/`` means none, as with a broker."""
    return (url.virtual_host or "").strip("/")
