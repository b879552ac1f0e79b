"""Markdown that is made of the software: settings from their dataclasses, commands from their own help, exit codes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import fields

import click

from rpcmq.adapters.settings import fields_of
from rpcmq.cli.commands import group
from rpcmq.cli.exit_codes import EXIT_CODES
from rpcmq.cli.gateway import gateway_command
from rpcmq.config import ClientConfig, FieldInfo, RouterConfig, describe_fields
from rpcmq.gateway.settings import GatewaySettings

__all__ = [
    "GENERATED",
    "commands",
    "exit_codes",
    "settings_of_a_client",
    "settings_of_a_router",
    "settings_of_the_gateway",
]

_WIDTH = 88


def settings_of_a_router() -> str:
    """A heading for each section of the file, and its settings."""
    about = {each.name: type(getattr(RouterConfig(), each.name)).__doc__ or "" for each in fields(RouterConfig)}
    lines: list[str] = []
    last = ""
    for info in describe_fields():
        section = info.key.partition(".")[0]
        if section != last:
            lines += ["", f"### {section}", "", about[section], ""]
            last = section
        lines += _setting(info)
    return "\n".join(lines)


def settings_of_a_client() -> str:
    """The settings of a client, which have no sections."""
    return "\n".join(line for info in describe_fields(ClientConfig()) for line in _setting(info))


def settings_of_the_gateway() -> str:
    """The settings of the gateway, which come from its file; some have an option, too."""
    options = {
        found[1]: option.opts[0]
        for option in gateway_command.params
        if isinstance(option, click.Option) and (found := re.search(r"\[(\w+\.\w+)\]$", option.help or ""))
    }
    infos = [info._replace(env=None, flag=options.get(info.key)) for info in fields_of(GatewaySettings(), False)]
    return "\n".join(line for info in infos for line in _setting(info, "the file only"))


def _setting(info: FieldInfo, only: str = "an argument only") -> Iterator[str]:
    ways = [f"`{way}`" for way in (info.flag, info.env) if way]
    default = ", ".join(info.default) if isinstance(info.default, tuple) else info.default
    facts = [
        f"Default: {'none' if default == '' else f'`{default}`'}",
        f"accepts {info.kind.expected}",
        ", ".join(ways) if ways else only,
    ]
    yield f"`{info.key}`"
    yield f": {_plain(info.help)}."
    yield ""
    yield f"  {_plain('; '.join(facts))}.{' **Live.**' if info.live else ''}"
    yield ""


def _plain(text: str) -> str:
    """Text that Markdown shows as it stands, but for what is between backticks."""
    parts = text.split("`")
    parts[::2] = [part.replace("*", r"\*").replace("_", r"\_").replace("<", "&lt;") for part in parts[::2]]
    return "`".join(parts)


def commands() -> str:
    """A heading for each command, and its help."""
    return "\n".join(_commands(group, _context(group, "rpcmq", None)))


def _context(of: click.Command, name: str, parent: click.Context | None) -> click.Context:
    return click.Context(of, info_name=name, parent=parent, terminal_width=_WIDTH, **of.context_settings)


def _commands(of: click.Command, context: click.Context) -> Iterator[str]:
    with context:
        yield f"## {context.command_path}"
        yield ""
        yield "```text"
        yield of.get_help(context)
        yield "```"
        yield ""
        if isinstance(of, click.Group):
            for name in of.list_commands(context):
                inner = of.get_command(context, name)
                if inner is not None and not inner.hidden:
                    yield from _commands(inner, _context(inner, name, context))


def exit_codes() -> str:
    """A table of the exit codes of ``rpcmq``."""
    rows = (f"| {int(code)} | {_plain(text)} |" for code, text in EXIT_CODES.items())
    return "\n".join(["| code | means |", "|---|---|", *rows])


#: By the name after ``here:`` in a page.
GENERATED = {
    "settings of a router": settings_of_a_router,
    "settings of a client": settings_of_a_client,
    "settings of the gateway": settings_of_the_gateway,
    "commands": commands,
    "exit codes": exit_codes,
}
