"""Options of programs as they are registered, and what is set for them in code."""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import compat.nova
from compat.nova.config_options import (
    ArgsAlreadyParsedError,
    DuplicateOptError,
    NoSuchGroupError,
    NoSuchOptError,
    Opt,
    OptGroup,
)

__all__ = ["UNSET", "Entry", "RegisteredOptions", "State"]

UNSET: Any = object()


@dataclass
class Entry:
    """A registered option and what was set for it in code or on the command line."""

    opt: Opt
    cli: bool = False
    soft: bool = False
    default: Any = UNSET
    override: Any = UNSET
    given: Any = UNSET


@dataclass
class State:
    """The contents of a configuration object; two objects may share one."""

    groups: dict[str | None, dict[str, Entry]] = field(default_factory=lambda: {None: {}})
    group_objects: dict[str, OptGroup] = field(default_factory=dict)
    files: dict[str, dict[str, list[str]]] = field(default_factory=dict)
    cache: dict[tuple[str | None, str], Any] = field(default_factory=dict)
    args: list[str] | None = None
    leftover: list[str] = field(default_factory=list)
    subcommand: dict[str, Any] = field(default_factory=dict)
    interspersed: bool = True
    common: dict[str, Any] = field(
        default_factory=lambda: {
            "project": None, "prog": None, "version": None, "usage": None, "default_config_files": None,
            "config_file": [], "config_dir": None,
        }
    )  # fmt: skip


class RegisteredOptions:
    """The part of a configuration object that registers options, and sets them in code."""

    _state: State

    def __init__(self, **common: Any) -> None:
        object.__setattr__(self, "_state", State())
        self._state.common.update(common)

    # registering

    def register_opt(
        self, opt: Opt, group: str | OptGroup | None = None, cli: bool = False, soft: bool = False
    ) -> bool:
        """Make ``opt`` known; False if it was already.

        Raises:
            DuplicateOptError: another option has its name.
            ArgsAlreadyParsedError: it is for the command line, which was read already.
        """
        if cli and self._state.args is not None:
            raise ArgsAlreadyParsedError("cannot register CLI option")
        entries = self._entries(group, create=True)
        known = entries.get(opt.dest)
        if known is None:
            entries[opt.dest] = Entry(opt, cli, soft)
        elif known.opt is opt or known.opt == opt or soft:
            known.cli = known.cli or cli
            return False
        elif known.soft:
            # What was set while it was the shim's stays set.
            known.opt, known.cli, known.soft = opt, cli or known.cli, False
        else:
            raise DuplicateOptError(opt.name)
        self._state.cache.clear()
        return True

    def register_opts(self, opts: Iterable[Opt], group: str | OptGroup | None = None) -> None:
        """:meth:`register_opt` for each."""
        for opt in opts:
            self.register_opt(opt, group)

    def register_cli_opt(self, opt: Opt, group: str | OptGroup | None = None) -> bool:
        """Like :meth:`register_opt`, for the command line too."""
        return self.register_opt(opt, group, cli=True)

    def register_cli_opts(self, opts: Iterable[Opt], group: str | OptGroup | None = None) -> None:
        """:meth:`register_cli_opt` for each."""
        for opt in opts:
            self.register_cli_opt(opt, group)

    def register_group(self, group: OptGroup) -> None:
        """Make a group known, with its title and help."""
        self._state.group_objects.setdefault(group.name, group)
        self._state.groups.setdefault(group.name, {})

    def unregister_opt(self, opt: Opt, group: str | OptGroup | None = None) -> None:
        """Forget ``opt``.

        Raises:
            ArgsAlreadyParsedError: the command line was read and not cleared since.
        """
        if self._state.args is not None:
            raise ArgsAlreadyParsedError("reset before unregistering options")
        self._entries(group, create=True).pop(opt.dest, None)
        self._state.cache.clear()

    def unregister_opts(self, opts: Iterable[Opt], group: str | OptGroup | None = None) -> None:
        """:meth:`unregister_opt` for each."""
        for opt in opts:
            self.unregister_opt(opt, group)

    def import_opt(self, name: str, module_str: str, group: str | None = None) -> None:
        """Import the module that registers the option.

        Raises:
            NoSuchOptError: it does not.
        """
        importlib.import_module(module_str)
        self._entry(name, group)

    def import_group(self, group: str | OptGroup, module_str: str) -> None:
        """Import the module that registers the group.

        Raises:
            NoSuchGroupError: it does not.
        """
        importlib.import_module(module_str)
        self._entries(group)

    # setting

    def set_override(self, name: str, override: Any, group: str | OptGroup | None = None) -> None:
        """Set what goes before every other source. To Essex, None undoes that."""
        undo = override is None and compat.nova.era() == "essex"
        self._override(name, UNSET if undo else override, group)

    def _override(self, name: str, override: Any, group: str | OptGroup | None = None) -> None:
        self._entry(name, group).override = override
        self._state.cache.clear()

    def set_default(self, name: str, default: Any, group: str | OptGroup | None = None) -> None:
        """Set what goes before the option's own default only."""
        self._entry(name, group).default = default
        self._state.cache.clear()

    def clear_override(self, name: str, group: str | OptGroup | None = None) -> None:
        """Undo :meth:`set_override`."""
        self.set_override(name, UNSET, group)

    def clear_default(self, name: str, group: str | OptGroup | None = None) -> None:
        """Undo :meth:`set_default`."""
        self.set_default(name, UNSET, group)

    def reset(self) -> None:
        """Forget everything that was set, in code, in files and on the command line."""
        self.clear()

    def clear(self) -> None:
        """Like :meth:`reset`."""
        for entries in self._state.groups.values():
            for entry in entries.values():
                entry.default = entry.override = entry.given = UNSET
        self._forget_sources()

    def _forget_sources(self) -> None:
        state = self._state
        state.files, state.args, state.leftover, state.subcommand = {}, None, [], {}
        state.common |= {"config_file": [], "config_dir": None}
        for entries in state.groups.values():
            for entry in entries.values():
                entry.given = UNSET
        state.cache.clear()

    # parts

    def _entries(self, group: str | OptGroup | None, create: bool = False) -> dict[str, Entry]:
        if isinstance(group, OptGroup):
            self.register_group(group)
            group = group.name
        if group == "DEFAULT":
            group = None
        if group not in self._state.groups:
            if not create:
                raise NoSuchGroupError(str(group))
            self.register_group(OptGroup(str(group)))
        return self._state.groups[group]

    def _entry(self, name: str, group: str | OptGroup | None = None) -> Entry:
        try:
            return self._entries(group)[name]
        except KeyError:
            pass  # refused below, with the group's name
        known = group if isinstance(group, OptGroup) else self._state.group_objects.get(group or "")
        raise NoSuchOptError(name, known)
