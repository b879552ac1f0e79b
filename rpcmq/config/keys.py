"""Every setting with its key, and what follows from that: flag, variable, type, help."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any, NamedTuple

from rpcmq.config.values import Setting, ValueType

__all__ = ["FieldInfo", "fields_of"]


class FieldInfo(NamedTuple):
    """One setting as documentation, ``--help`` and the loaders see it.

    ``flag`` and ``env`` are None where the setting has none.
    """

    key: str
    kind: ValueType
    default: Any
    help: str
    live: bool
    flag: str | None
    env: str | None


def fields_of(config: Any, has_flags: bool) -> Iterator[FieldInfo]:
    """Every setting of ``config``, in the order of the file; defaults are its values."""
    for key, default, setting in _walk(config):
        name = re.sub("[._]", "-", key.removeprefix("router."))
        env = "RPCMQ_" + key.replace(".", "_").upper() if setting.env else None
        flag = (setting.flag or f"--{name}") if has_flags and setting.flag is not None else None
        yield FieldInfo(key, setting.kind, default, setting.help, setting.live, flag, env)


def _walk(config: Any, prefix: str = "") -> Iterator[tuple[str, Any, Setting]]:
    for each in fields(config):
        value = getattr(config, each.name)
        if is_dataclass(value):
            yield from _walk(value, f"{each.name}.")
        else:
            yield prefix + each.name, value, each.metadata["setting"]
