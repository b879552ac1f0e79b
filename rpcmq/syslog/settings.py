"""The settings of the front end for syslog."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rpcmq.adapters.settings import BYTES, COUNT, OPTIONAL_ADDRESS, ValueType, load_settings_of, seconds, setting
from rpcmq.errors import ConfigError
from rpcmq.syslog.topics import TOPIC_FIELDS, is_topic_template

__all__ = ["EventSettings", "MessageSettings", "SyslogSettings", "TcpSettings", "UdpSettings", "load_settings"]

_KIB, _MIB = 1024, 1024 * 1024
_FIELDS = ", ".join(f"{{{name}}}" for name in TOPIC_FIELDS)


def _topic(expected: str, accepts: Any) -> ValueType:
    def check(value: object) -> str:
        if not isinstance(value, str) or not accepts(value):
            raise ValueError
        return value

    return ValueType("topic", expected, check, str)


_TEMPLATE = _topic(f"words between dots, each of letters, digits, '_' and '-', or one of {_FIELDS}", is_topic_template)
_OPTIONAL_TOPIC = _topic(
    "a topic of words between dots, or '' for none",
    lambda text: not text or ("{" not in text and is_topic_template(text)),
)


@dataclass(frozen=True)
class TcpSettings:
    """``[tcp]``"""

    bind: str = setting("127.0.0.1:5140", OPTIONAL_ADDRESS, "where messages over TCP are taken; empty: nowhere")
    max_connections: int = setting(1000, COUNT, "connections at a time; further ones wait until one of these ends")
    max_connections_per_address: int = setting(
        100, COUNT, "connections at a time from one address; further ones are closed at once"
    )
    idle_seconds: float = setting(
        3600.0, seconds(1, 86400 * 365), "seconds of silence after which a connection is closed"
    )


@dataclass(frozen=True)
class UdpSettings:
    """``[udp]``"""

    bind: str = setting("127.0.0.1:5140", OPTIONAL_ADDRESS, "where messages over UDP are taken; empty: nowhere")
    max_waiting_bytes: int = setting(
        16 * _MIB, BYTES, "bytes of datagrams that wait to become events; beyond, the sender with the most loses some"
    )
    kernel_bytes: int = setting(
        32 * _MIB, BYTES, "bytes of datagrams that the kernel is asked to keep, in all sockets together"
    )


@dataclass(frozen=True)
class MessageSettings:
    """``[message]``"""

    max_bytes: int = setting(64 * _KIB, BYTES, "bytes of the longest message; a longer one counts as malformed")


@dataclass(frozen=True)
class EventSettings:
    """``[event]``"""

    topic: str = setting("syslog.{facility}.{severity}.{app}.{host}", _TEMPLATE, "topic of a message's event")
    malformed_topic: str = setting(
        "syslog.malformed", _OPTIONAL_TOPIC, "topic of what is no message of RFC 5424; empty: it is only counted"
    )


@dataclass(frozen=True)
class SyslogSettings:
    """All settings."""

    tcp: TcpSettings = field(default_factory=TcpSettings)
    udp: UdpSettings = field(default_factory=UdpSettings)
    message: MessageSettings = field(default_factory=MessageSettings)
    event: EventSettings = field(default_factory=EventSettings)


def load_settings(path: str | None = None, options: Mapping[str, Any] | None = None) -> SyslogSettings:
    """Return the settings of a TOML file, with those of ``options`` before them.

    Args:
        options: values by their keys, as ``tcp.bind``; None: not given.

    Raises:
        ConfigError: one line for each value that is unknown or wrong, or nothing would be listened to.
    """
    settings = load_settings_of(SyslogSettings(), path, options)
    if not settings.tcp.bind and not settings.udp.bind:
        raise ConfigError("tcp.bind and udp.bind are both '': no message could come; give one of them host:port")
    return settings
