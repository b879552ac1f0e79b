"""TOML as the files of rpcmq have it: read with errors that name the file; texts quoted, and fit to be shown."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rpcmq.errors import ConfigError

if TYPE_CHECKING:
    from os import PathLike

__all__ = ["parse_toml", "quoted", "read_toml"]


def read_toml(path: str | PathLike[str]) -> dict[str, Any]:
    """Return the content of the TOML file ``path``.

    Raises:
        ConfigError: it cannot be read, or is not TOML.
    """
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    return parse_toml(path, content)


def parse_toml(path: str | PathLike[str], content: bytes) -> dict[str, Any]:
    """Return the TOML ``content`` of the file ``path``.

    Raises:
        ConfigError: it is not TOML.
    """
    try:
        return tomllib.loads(content.decode())
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: not valid TOML: {error}") from None


def quoted(value: str | Iterable[str]) -> str:
    """Return a text, or a list of texts, as TOML. Characters that cannot be seen are escaped."""
    if not isinstance(value, str):
        return f"[{', '.join(map(quoted, value))}]"
    return "".join(c if c.isprintable() else _escaped(c) for c in json.dumps(value, ensure_ascii=False))


def _escaped(character: str) -> str:
    number = ord(character)
    return f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"
