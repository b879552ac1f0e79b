"""Settings of a front end: a dataclass of tables, read from a TOML file and options with errors that name the key.

::

    @dataclass(frozen=True)
    class TcpSettings:
        bind: str = setting("127.0.0.1:5140", OPTIONAL_ADDRESS, "where messages are taken; empty: nowhere")

    @dataclass(frozen=True)
    class Settings:
        tcp: TcpSettings = field(default_factory=TcpSettings)

    settings = load_settings_of(Settings(), "front-end.toml", {"tcp.bind": None})
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeVar

from rpcmq.config.keys import FieldInfo, fields_of
from rpcmq.config.loading import Values
from rpcmq.config.values import (
    BYTES,
    COUNT,
    FLAG,
    HOSTS,
    OPTIONAL_ADDRESS,
    OPTIONAL_PATH,
    RATE,
    ValueType,
    choice,
    integer,
    number,
    seconds,
    setting,
    size,
)
from rpcmq.toml import quoted
from rpcmq.transport.key_files import is_name, read_trusted_toml, write_private

__all__ = [
    "BYTES",
    "COUNT",
    "FLAG",
    "HOSTS",
    "OPTIONAL_ADDRESS",
    "OPTIONAL_PATH",
    "RATE",
    "FieldInfo",
    "ValueType",
    "choice",
    "fields_of",
    "integer",
    "is_name",
    "load_settings_of",
    "number",
    "quoted",
    "read_trusted_toml",
    "seconds",
    "setting",
    "size",
    "write_private",
]

S = TypeVar("S")


def load_settings_of(defaults: S, path: str | None = None, options: Mapping[str, Any] | None = None) -> S:
    """Return ``defaults`` with the settings of a TOML file, and with those of ``options`` before them.

    Args:
        defaults: a dataclass whose fields are tables: dataclasses of settings.
        path: of the file; None: there is none.
        options: values by their keys, as ``tcp.bind``; None: not given.

    Raises:
        ConfigError: one line for each value that is unknown or wrong.
    """
    values = Values({info.key: info for info in fields_of(defaults, has_flags=False)})
    if path is not None:
        values.take_file(path)
    for key, value in (options or {}).items():
        if value is not None:
            values.take_key("argument", key, value)
    settings: Any = defaults
    for key, value in values.finish().items():
        table, _, name = key.partition(".")
        settings = replace(settings, **{table: replace(getattr(settings, table), **{name: value})})
    made: S = settings
    return made
