"""Command groups that import a command's module on use."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

import click

__all__ = ["LazyGroup"]


class LazyGroup(click.Group):
    """Knows its commands without importing them.

    Args:
        table: command -> (module of ``rpcmq.cli`` that has it as ``<command>_command``, what it does).
    """

    def __init__(self, *args: Any, table: Mapping[str, tuple[str, str]], **more: Any) -> None:
        super().__init__(*args, **more)
        self._table = table

    def list_commands(self, ctx: click.Context) -> list[str]:
        """See :class:`click.Group`."""
        return list(self._table)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        """See :class:`click.Group`."""
        if name not in self._table:
            return None
        module = importlib.import_module(f"rpcmq.cli.{self._table[name][0]}")
        command: click.Command = getattr(module, f"{name}_command")
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """See :class:`click.Group`."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, help) for name, (_, help) in self._table.items()])
