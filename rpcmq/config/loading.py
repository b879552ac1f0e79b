"""Reading settings from files, variables and arguments."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from difflib import get_close_matches
from typing import Any

from rpcmq.config.client_keys import CLIENT_FIELDS
from rpcmq.config.keys import FieldInfo
from rpcmq.config.values import WrongValue
from rpcmq.errors import ConfigError
from rpcmq.toml import read_toml

__all__ = ["Values"]


class Values:
    """Collects values from sources of rising precedence, and everything that is wrong with them."""

    def __init__(self, known: Mapping[str, FieldInfo]) -> None:
        self.known = known
        self.values: dict[str, Any] = {}
        self.problems: list[str] = []
        self._origins: dict[str, str] = {}
        self._wrong: set[str] = set()

    def take(self, source: str, shown: str, key: str, value: Any, *, text: bool = False) -> None:
        """Set ``key`` to ``value``, which ``source`` calls ``shown``; ``text``: it is read first."""
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
        """Note a name that is none of ``candidates``, with the one that may be meant."""
        known = sorted(candidates)
        name = shown.rpartition(".")[2]
        near = get_close_matches(shown, known, 1, 0.8) or [key for key in known if key.endswith(f".{name}")]
        self.problems.append(f"{source}: {shown}: unknown" + (f"; did you mean {near[0]}?" if near else ""))

    def take_file(self, path: str) -> None:
        """Take all that a TOML file has."""
        try:
            tables = read_toml(path)
        except ConfigError as error:
            self.problems.append(str(error))
        else:
            self._take_tables(path, tables)

    def _take_tables(self, path: str, tables: Mapping[str, Any]) -> None:
        sections = {key.partition(".")[0] for key in self.known}
        for section, table in tables.items():
            if section in self.known:
                self.take_key(path, section, table)
            elif section not in sections:
                self.unknown(path, section, sections if isinstance(table, dict) else self.known)
            elif not isinstance(table, dict):
                self.problems.append(f"{path}: {section} = {table!r}: expected a table [{section}]")
            else:
                for name, value in table.items():
                    self.take_key(path, f"{section}.{name}", value)

    def take_key(self, source: str, key: str, value: Any) -> None:
        """Set ``key``, if there is one, to ``value``."""
        if key in self.known:
            self.take(source, key, key, value)
        else:
            self.unknown(source, key, self.known)

    def take_environment(self, environ: Mapping[str, str]) -> None:
        """Take all variables that are settings; of the others none may begin as they do."""
        keys = {info.env: key for key, info in self.known.items()}
        for name in sorted(environ):
            if name in keys:
                self.take("environment", name, keys[name], environ[name], text=True)
            elif name.startswith("RPCMQ_") and name not in (variables := _variables()):
                self.unknown("environment", name, variables)

    def check_order(self, ascending: Iterable[tuple[str, str]]) -> None:
        """Note each pair of settings of which the first is not less than the second."""
        for low, high in ascending:
            if self._get(low) < self._get(high) or self._wrong & {low, high}:
                continue
            # Blame the setting that was given, not a default.
            wrong, relation, other = (high, "more", low) if high in self._origins else (low, "less", high)
            self.problems.append(f"{self._origins[wrong]}: expected {relation} than {other} = {self._get(other)!r}")

    def _get(self, key: str) -> Any:
        return self.values.get(key, self.known[key].default)

    def finish(self) -> dict[str, Any]:
        """Return the values by key.

        Raises:
            ConfigError: one line for each problem.
        """
        if self.problems:
            raise ConfigError("\n".join(self.problems))
        return self.values


def _variables() -> Set[str]:
    """All variables of routers and clients: a host may run both in one environment."""
    # Few clients have any of a router's, and to make the tables of its settings takes longer than all else here.
    from rpcmq.config.router_keys import ROUTER_FIELDS

    return {info.env for table in (ROUTER_FIELDS, CLIENT_FIELDS) for info in table.values() if info.env}
