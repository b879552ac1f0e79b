"""Reading the settings of a router, and again while it runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from operator import attrgetter
from typing import Any

from rpcmq.config.loading import Values
from rpcmq.config.router import ASCENDING, RouterConfig
from rpcmq.config.router_keys import ROUTER_FIELDS

__all__ = ["apply_live", "diff_live", "live_fields", "load_router_config"]


def load_router_config(
    path: str | None = None, environ: Mapping[str, str] | None = None, flags: Mapping[str, Any] | None = None
) -> RouterConfig:
    """The router's settings: flags before environment before file before defaults.

    Args:
        path: the TOML file, if there is one.
        environ: variables; only those that start with ``RPCMQ_`` are looked at.
        flags: values by key (``"link.lost_seconds"``), as text or as they would be in TOML; None: not given.

    Raises:
        ConfigError: one line for each value that is unknown or wrong, in whichever source.
    """
    values = Values(ROUTER_FIELDS)
    if path is not None:
        values.take_file(path)
    values.take_environment(environ or {})
    for key, value in (flags or {}).items():
        if value is None:
            continue
        info = ROUTER_FIELDS.get(key)
        if info is None:
            values.unknown("command line", key, ROUTER_FIELDS)
        else:
            values.take("command line", info.flag or key, key, value, text=isinstance(value, str))
    values.check_order(ASCENDING)
    return _with_values(RouterConfig(), values.finish())


def _with_values(config: RouterConfig, values: Mapping[str, Any]) -> RouterConfig:
    sections: dict[str, dict[str, Any]] = {}
    changed: dict[str, Any] = {}
    for key, value in values.items():
        section, _, name = key.partition(".")
        if name:
            sections.setdefault(section, {})[name] = value
        else:
            changed[key] = value
    changed |= {section: replace(getattr(config, section), **names) for section, names in sections.items()}
    return replace(config, **changed)


def live_fields() -> frozenset[str]:
    """Keys of the router's settings that SIGHUP can change."""
    return frozenset(info.key for info in ROUTER_FIELDS.values() if info.live)


def diff_live(old: RouterConfig, new: RouterConfig) -> tuple[dict[str, Any], dict[str, Any]]:
    """Split a reload into changes that apply now and changes that need a restart; new values by key."""
    changes: dict[str, Any] = {}
    refused: dict[str, Any] = {}
    for key, info in ROUTER_FIELDS.items():
        value = attrgetter(key)(new)
        if value != attrgetter(key)(old):
            (changes if info.live else refused)[key] = value
    return changes, refused


def apply_live(config: RouterConfig, changes: Mapping[str, Any]) -> RouterConfig:
    """``config`` with the changes that ``diff_live`` allowed: what runs after the reload."""
    return _with_values(config, changes)
