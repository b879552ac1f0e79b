"""Reading settings from files, variables and arguments; and again while a router runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from difflib import get_close_matches
from operator import attrgetter
from typing import Any

from rpcmq.config.client import ClientConfig
from rpcmq.config.keys import CLIENT_FIELDS, ROUTER_FIELDS, VARIABLES, FieldInfo
from rpcmq.config.router import ASCENDING, RouterConfig
from rpcmq.config.values import WrongValue
from rpcmq.errors import ConfigError
from rpcmq.toml import read_toml

__all__ = ["apply_live", "diff_live", "live_fields", "load_client_config", "load_router_config"]


class _Values:
    """Collects values from sources of rising precedence, and everything that is wrong with them."""

    def __init__(self, known: Mapping[str, FieldInfo]) -> None:
        self.known = known
        self.values: dict[str, Any] = {}
        self.problems: list[str] = []
        self._origins: dict[str, str] = {}
        self._wrong: set[str] = set()

    def take(self, source: str, shown: str, key: str, value: Any, *, text: bool = False) -> None:
        kind = self.known[key].kind
        try:
            self.values[key] = kind.check(kind.read(value) if text else value)
            self._origins[key] = f"{source}: {shown} = {value!r}"
        except WrongValue as error:
            self.problems.append(f"{source}: {shown}{error.where} = {error.value!r}: expected {error.expected}")
            self._wrong.add(key)
        except ValueError:
            self.problems.append(f"{source}: {shown} = {value!r}: expected {kind.expected}")
            self._wrong.add(key)

    def unknown(self, source: str, shown: str, candidates: Iterable[str]) -> None:
        known = sorted(candidates)
        name = shown.rpartition(".")[2]
        near = get_close_matches(shown, known, 1, 0.8) or [key for key in known if key.endswith(f".{name}")]
        self.problems.append(f"{source}: {shown}: unknown" + (f"; did you mean {near[0]}?" if near else ""))

    def take_file(self, path: str) -> None:
        try:
            tables = read_toml(path)
        except ConfigError as error:
            self.problems.append(str(error))
        else:
            self._take_tables(path, tables)

    def _take_tables(self, path: str, tables: Mapping[str, Any]) -> None:
        sections = {key.partition(".")[0] for key in self.known}
        for section, table in tables.items():
            if section not in sections:
                self.unknown(path, section, sections if isinstance(table, dict) else self.known)
            elif not isinstance(table, dict):
                self.problems.append(f"{path}: {section} = {table!r}: expected a table [{section}]")
            else:
                for name, value in table.items():
                    self.take_key(path, f"{section}.{name}", value)

    def take_key(self, source: str, key: str, value: Any) -> None:
        if key in self.known:
            self.take(source, key, key, value)
        else:
            self.unknown(source, key, self.known)

    def take_environment(self, environ: Mapping[str, str]) -> None:
        keys = {info.env: key for key, info in self.known.items()}
        for name in sorted(environ):
            if name in keys:
                self.take("environment", name, keys[name], environ[name], text=True)
            elif name.startswith("RPCMQ_") and name not in VARIABLES:
                self.unknown("environment", name, VARIABLES)

    def check_order(self) -> None:
        for low, high in ASCENDING:
            if self._get(low) < self._get(high) or self._wrong & {low, high}:
                continue
            # Blame the setting that was given, not a default.
            wrong, relation, other = (high, "more", low) if high in self._origins else (low, "less", high)
            self.problems.append(f"{self._origins[wrong]}: expected {relation} than {other} = {self._get(other)!r}")

    def _get(self, key: str) -> Any:
        return self.values.get(key, self.known[key].default)

    def finish(self) -> dict[str, Any]:
        if self.problems:
            raise ConfigError("\n".join(self.problems))
        return self.values


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
    values = _Values(ROUTER_FIELDS)
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
    values.check_order()
    return _with_values(RouterConfig(), values.finish())


def load_client_config(
    environ: Mapping[str, str] | None = None, arguments: Mapping[str, Any] | None = None
) -> ClientConfig:
    """A client's settings: arguments before environment before defaults. An argument of None is not given.

    Raises:
        ConfigError: one line for each value that is unknown or wrong, in whichever source.
    """
    values = _Values(CLIENT_FIELDS)
    values.take_environment(environ or {})
    for key, value in (arguments or {}).items():
        if value is not None:
            values.take_key("argument", key, value)
    return replace(ClientConfig(), **values.finish())


def _with_values(config: RouterConfig, values: Mapping[str, Any]) -> RouterConfig:
    sections: dict[str, dict[str, Any]] = {}
    for key, value in values.items():
        section, _, name = key.partition(".")
        sections.setdefault(section, {})[name] = value
    changed = {section: replace(getattr(config, section), **names) for section, names in sections.items()}
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
