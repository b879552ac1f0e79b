"""Find endpoints of a router that anybody on other hosts can use."""

from __future__ import annotations

from ipaddress import ip_address

from rpcmq.config import RouterConfig
from rpcmq.errors import ConfigError

__all__ = ["check_binds", "is_local", "open_binds"]


def is_local(url: str) -> bool:
    """Return whether only this host can reach ``url``, or ``host:port``."""
    scheme, separator, rest = url.partition("://")
    if not separator:
        rest = url
    elif scheme != "tcp":
        return True
    host = rest.rpartition(":")[0].strip("[]").partition("%")[0]
    if host in ("localhost", "lo"):
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def open_binds(config: RouterConfig) -> list[str]:
    """Return a warning for each endpoint that anybody who reaches it can use."""
    found = []
    listen, http = config.router.listen, config.router.http
    if not config.security.keys and not is_local(listen):
        found.append(
            f"router.listen = {listen!r} can be reached from other hosts, and without CURVE whoever reaches it can "
            "call, serve and read anything; make keys with `rpcmq init`, set security.keys, or listen on 127.0.0.1"
        )
    if http and not is_local(http):
        found.append(
            f"router.http = {http!r} can be reached from other hosts, and shows topics, keys and names of processes to "
            "whoever reaches it; listen on 127.0.0.1"
        )
    return found


def check_binds(config: RouterConfig) -> list[str]:
    """Check for open endpoints; return the warnings about those that the operator allows.

    Raises:
        ConfigError: something is, and the operator has not said so.
    """
    found = open_binds(config)
    if found and not config.router.insecure:
        wish = "; or allow it with --insecure (router.insecure = true)"
        raise ConfigError("\n".join(f"{text}{wish}" for text in found))
    return found
