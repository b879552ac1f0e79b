"""The tables ``[[node]]``: node types that are loaded into the router as plug-ins, with their settings."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rpcmq.config.values import KIB, MIB, OPTIONAL_PATH, ValueType, WrongValue, seconds, size

__all__ = ["NODE_TABLES", "NodeTable"]

_NAME = re.compile("[a-z][a-z0-9-]{0,31}")
_NAME_EXPECTED = "a name of lower-case letters, digits and '-', of at most 32 characters"
_TAKEN = ("mesh", "node")
#: Members of a table beside its name and the settings of its type: name -> the values that it accepts.
_BOUNDS = {"max_bytes": size(64 * KIB), "max_seconds": seconds(0.001, 10.0), "file": OPTIONAL_PATH}


@dataclass(frozen=True)
class NodeTable:
    """A node that the router is to have.

    Attributes:
        type: the name of its entry point in the group ``rpcmq.nodes``.
        name: its own; as a rule that of the type. Rights, views and controls are called after it.
        max_bytes: bytes that it may hold; beyond it the node is taken out.
        max_seconds: seconds of the processor that one step of its work may take; beyond it the node is taken out.
        file: where the router puts what the node keeps for its next life; empty: nowhere.
        options: the settings of its type, as they were given.
    """

    type: str
    name: str = ""
    max_bytes: int = 16 * MIB
    max_seconds: float = 0.25
    file: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)


def _table(number: int, table: object) -> NodeTable:
    where = f"[{number}]"
    if isinstance(table, NodeTable):
        return table
    if not isinstance(table, dict):
        raise WrongValue(where, table, "a table [[node]]")
    given = dict(table)
    if "type" not in given:
        raise WrongValue(where, table, "a table with type")
    values: dict[str, Any] = {}
    for name in ("type", "name"):
        if name in given:
            value = values[name] = given.pop(name)
            if not isinstance(value, str) or not _NAME.fullmatch(value):
                raise WrongValue(f"{where}.{name}", value, _NAME_EXPECTED)
    values.setdefault("name", values["type"])
    if values["name"] in _TAKEN:
        raise WrongValue(f"{where}.name", values["name"], "another name: the router's own controls have this one")
    for name, kind in _BOUNDS.items():
        if name in given:
            value = given.pop(name)
            try:
                values[name] = kind.check(value)
            except ValueError:
                raise WrongValue(f"{where}.{name}", value, kind.expected) from None
    return NodeTable(options=given, **values)


def _check_tables(value: object) -> tuple[NodeTable, ...]:
    if not isinstance(value, list | tuple):
        raise ValueError
    found: dict[str, NodeTable] = {}
    files: list[NodeTable] = []
    for number, each in enumerate(value):
        table = _table(number, each)
        if table.name in found:
            raise WrongValue(f"[{number}].name", table.name, "another name than in the tables before")
        if table.file and any(os.path.abspath(each.file) == os.path.abspath(table.file) for each in files):
            raise WrongValue(f"[{number}].file", table.file, "a file of its own: another table has this one")
        files += [table] if table.file else []
        found[table.name] = table
    return tuple(found.values())


NODE_TABLES = ValueType(
    "tables",
    "tables [[node]] with type, and name, max_bytes, max_seconds, file or settings of that type",
    _check_tables,
)
