"""The settings of the gateway."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import ip_network
from typing import Any

from rpcmq.adapters.settings import (
    BYTES,
    COUNT,
    FLAG,
    HOSTS,
    OPTIONAL_ADDRESS,
    OPTIONAL_PATH,
    RATE,
    ValueType,
    load_settings_of,
    seconds,
    setting,
)
from rpcmq.errors import ConfigError

__all__ = [
    "AccessSettings",
    "GatewaySettings",
    "LimitSettings",
    "ListenSettings",
    "MessageSettings",
    "PageSettings",
    "TimeSettings",
    "load_settings",
]

_KIB, _MIB = 1024, 1024 * 1024
_LOOPBACK = ("127.0.0.0/8", "::1/128")


def _list_of(name: str, expected: str, is_one: Any) -> ValueType:
    def check(value: object) -> tuple[str, ...]:
        if not isinstance(value, list | tuple) or not all(isinstance(item, str) and is_one(item) for item in value):
            raise ValueError
        return tuple(value)

    return ValueType(name, expected, check)


def _is_network(text: str) -> bool:
    try:
        ip_network(text)
    except ValueError:
        return False
    return True


_ORIGINS = _list_of(
    "origins",
    "a list of origins like 'https://app.example.org', or '*' for any",
    re.compile(r"\*|https?://[^\s/?#@]+").fullmatch,
)
_NETWORKS = _list_of("networks", "a list of addresses or networks like '10.0.0.7', '10.1.0.0/16'", _is_network)
_PATH = ValueType("path", "a path like '/rpcmq'", lambda text: _checked(text, r"/[A-Za-z0-9/._~-]*"))


def _checked(text: object, pattern: str) -> str:
    if not isinstance(text, str) or not re.fullmatch(pattern, text):
        raise ValueError
    return text


@dataclass(frozen=True)
class ListenSettings:
    """``[listen]``"""

    bind: str = setting("127.0.0.1:7790", OPTIONAL_ADDRESS, "where browsers connect")
    path: str = setting("/rpcmq", _PATH, "path of the WebSocket")
    certificate: str = setting("", OPTIONAL_PATH, "file with the TLS certificate and its chain (PEM); empty: no TLS")
    key: str = setting("", OPTIONAL_PATH, "file with the certificate's secret key; empty: it is in the same file")
    insecure: bool = setting(False, FLAG, "listen without TLS on an address that is not this machine's own")
    hosts: tuple[str, ...] = setting(
        (), HOSTS, "names by which browsers know the gateway, beside addresses, localhost and this machine's name"
    )
    proxies: tuple[str, ...] = setting(
        (), _NETWORKS, "proxies in front whose X-Forwarded-For names the browser's address"
    )
    metrics: str = setting("", OPTIONAL_ADDRESS, "where /metrics, /varz and /healthz are served; empty: nowhere")


@dataclass(frozen=True)
class AccessSettings:
    """``[access]``"""

    tokens: str = setting("gateway-tokens.toml", OPTIONAL_PATH, "file of tokens, as `rpcmq gateway token add` makes it")
    origins: tuple[str, ...] = setting((), _ORIGINS, "origins whose pages may connect, beside the gateway's own")
    tracebacks: bool = setting(False, FLAG, "tell browsers the tracebacks of remote exceptions")


@dataclass(frozen=True)
class MessageSettings:
    """``[message]``"""

    max_bytes: int = setting(_MIB, BYTES, "bytes of the longest message from a browser")
    max_result_bytes: int = setting(4 * _MIB, BYTES, "bytes of the longest result, item or event to a browser")


@dataclass(frozen=True)
class LimitSettings:
    """``[limits]``"""

    connections: int = setting(1000, COUNT, "connections at a time")
    connections_per_address: int = setting(100, COUNT, "connections at a time from one address")
    connections_per_token: int = setting(1000, COUNT, "connections at a time with one token")
    requests: int = setting(64, COUNT, "calls, casts and streams of a connection at a time")
    request_bytes: int = setting(
        32 * _MIB, BYTES, "bytes of memory, about, that the requests of a connection take while they run"
    )
    total_request_bytes: int = setting(256 * _MIB, BYTES, "bytes of memory, about, that the requests of all take")
    subscriptions: int = setting(100, COUNT, "subscriptions of a connection")
    patterns: int = setting(1000, COUNT, "different patterns to which all connections subscribe")
    messages_per_second: float = setting(100.0, RATE, "messages a second of a connection; 0: no limit")
    bytes_per_second: int = setting(8 * _MIB, BYTES, "bytes a second that are read from a connection")
    outgoing_bytes: int = setting(
        _MIB, BYTES, "bytes that wait for a slow browser; then its events are lost, and streams wait"
    )
    total_outgoing_bytes: int = setting(256 * _MIB, BYTES, "bytes that wait for all browsers together")


@dataclass(frozen=True)
class TimeSettings:
    """``[times]``"""

    handshake_seconds: float = setting(10.0, seconds(0.1, 600), "seconds from the connection to its accepted token")
    ping_seconds: float = setting(20.0, seconds(0.1, 3600), "seconds of silence until a ping; as many until its answer")
    stalled_seconds: float = setting(30.0, seconds(0.1, 3600), "seconds in which a browser must take what is sent")
    call_seconds: float = setting(30.0, seconds(0.001, 86400), "seconds for a call that names no timeout")
    max_call_seconds: float = setting(300.0, seconds(0.001, 86400), "longest timeout that a call can have")
    drain_seconds: float = setting(10.0, seconds(0, 3600), "seconds that a stop waits for running calls")


@dataclass(frozen=True)
class PageSettings:
    """``[pages]``"""

    folder: str = setting("", OPTIONAL_PATH, "folder whose files are served; empty: only rpcmq.js is")


@dataclass(frozen=True)
class GatewaySettings:
    """All settings."""

    listen: ListenSettings = field(default_factory=ListenSettings)
    access: AccessSettings = field(default_factory=AccessSettings)
    message: MessageSettings = field(default_factory=MessageSettings)
    limits: LimitSettings = field(default_factory=LimitSettings)
    times: TimeSettings = field(default_factory=TimeSettings)
    pages: PageSettings = field(default_factory=PageSettings)


def load_settings(path: str | None = None, options: Mapping[str, Any] | None = None) -> GatewaySettings:
    """Return the settings of a TOML file, with those of ``options`` before them.

    Args:
        options: values by their keys, as ``listen.bind``; None: not given.

    Raises:
        ConfigError: one line for each value that is unknown or wrong, or the gateway would be open to a network.
    """
    settings = load_settings_of(GatewaySettings(), path, options)
    listen = settings.listen
    if not listen.bind:
        raise ConfigError("listen.bind = '': expected host:port like '127.0.0.1:7790'")
    if listen.key and not listen.certificate:
        raise ConfigError(f"listen.key = {listen.key!r}: there is no listen.certificate")
    if not settings.access.tokens:
        raise ConfigError("access.tokens = '': expected a file of tokens; `rpcmq gateway token add` makes one")
    if not (listen.certificate or listen.insecure or _is_loopback(listen.bind)):
        raise ConfigError(
            f"listen.bind = {listen.bind!r}: tokens would cross a network in the clear: give listen.certificate, or "
            "bind 127.0.0.1 behind a TLS proxy; listen.insecure = true does it nevertheless"
        )
    return settings


def _is_loopback(address: str) -> bool:
    host = address.rpartition(":")[0].strip("[]")
    if host == "localhost":
        return True
    try:
        network = ip_network(host)
    except ValueError:
        return False
    own = [ip_network(each) for each in _LOOPBACK]
    return any(network.version == each.version and network.subnet_of(each) for each in own)  # type: ignore[arg-type]
