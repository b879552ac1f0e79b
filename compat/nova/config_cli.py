"""The command line of programs: what a parser is told of an option."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any, NoReturn

from compat.nova.config_options import (
    BoolOpt,
    Opt,
    SubCommandOpt,
)

__all__ = ["Parser", "add_argument", "cli_dest"]


class Parser(argparse.ArgumentParser):
    """An argument parser that says what is wrong and exits, in one line."""

    def error(self, message: str) -> NoReturn:
        """Say it, and exit with code 2."""
        self.exit(2, f"{self.prog}: error: {message}\n")


def cli_dest(group: str | None, dest: str) -> str:
    """The name under which the parser keeps an option."""
    return f"{group}_{dest}" if group else dest


def add_argument(parser: argparse.ArgumentParser, holder: Any, opt: Opt, group: str | None) -> None:
    """Have ``parser`` take ``opt``.

    Args:
        holder: where it is listed: the parser, or a group of arguments.
    """
    dest = cli_dest(group, opt.dest)
    if isinstance(opt, SubCommandOpt):
        named: dict[str, Any] = {"title": opt.title, "description": opt.description, "help": opt.help}
        given = {name: text for name, text in named.items() if text}
        subparsers: Any = parser.add_subparsers(dest=dest, **given)
        subparsers.required = True
        if opt.handler is not None:
            opt.handler(subparsers)
        return
    text = opt.help.replace("%", "%%") if opt.help else None
    if opt.positional:
        parser.add_argument(dest, type=_quoting(opt), nargs="*" if opt.multi else "?", metavar=opt.metavar, help=text)
        return
    names = _flags(opt.name, group)
    for old in opt.deprecated_opts:
        names += _flags(old.name, None if old.group == "DEFAULT" else old.group or group)
    names = list(dict.fromkeys(names))
    short = [f"-{opt.short}"] if opt.short else []
    if isinstance(opt, BoolOpt):
        holder.add_argument(*short, *names, dest=dest, action="store_const", const=True, help=text)
        noes = [
            name.replace("--", "--no", 1) if not group else f"--{group}-no{name[3 + len(group) :]}" for name in names
        ]
        holder.add_argument(*noes, dest=dest, action="store_const", const=False, help=argparse.SUPPRESS)
    else:
        action = "append" if opt.multi else "store"
        holder.add_argument(
            *short, *names, dest=dest, action=action, type=_quoting(opt), metavar=opt.metavar, help=text
        )


def _flags(name: str, group: str | None) -> list[str]:
    """``--a-name`` and, as the days of gflags had it, ``--a_name``."""
    prefix = f"--{group}-" if group else "--"
    return [prefix + name.replace("_", "-"), prefix + name, prefix + name.replace("-", "_")]


def _quoting(opt: Opt) -> Callable[[str], Any]:
    def parse(text: str) -> Any:
        try:
            return opt.parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return parse
