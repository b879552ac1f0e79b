"""The broker's parameters, as the options have them: programs look at them, and nothing uses them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from compat.nova import options

__all__ = ["parameters", "ssl_parameters"]


def parameters(conf: Any, server_params: Mapping[str, Any] | None) -> dict[str, Any]:
    """The parameters of a connection to a broker, from the options and ``server_params``."""
    given = dict(server_params or {})
    params = {
        "hostname": given.get("hostname") or options.value("rabbit_host", conf),
        "port": given.get("port") or options.value("rabbit_port", conf),
        "userid": given.get("username") or options.value("rabbit_userid", conf),
        "password": given.get("password") or options.value("rabbit_password", conf),
        "virtual_host": given.get("virtual_host") or options.value("rabbit_virtual_host", conf),
    }
    return params | ({"transport": "memory"} if options.value("fake_rabbit", conf) else {})


def ssl_parameters(conf: Any) -> dict[str, Any] | bool:
    """The options about TLS by their names in ``ssl``; False: it is off."""
    if not options.value("rabbit_use_ssl", conf):
        return False
    parts = {"ssl_version": "version", "keyfile": "keyfile", "certfile": "certfile", "ca_certs": "ca_certs"}
    given = {name: options.value(f"kombu_ssl_{part}", conf) for name, part in parts.items()}
    return {name: value for name, value in given.items() if value}
