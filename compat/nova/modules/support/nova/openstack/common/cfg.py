"""Configuration as Essex to Havana knew it: options declared in code, set by files, command line and code.

One implementation under several names: ``nova.openstack.common.cfg``, ``nova.common.cfg``, ``oslo.config.cfg``
and ``oslo_config.cfg``. A value comes, in falling order of precedence, from ``set_override``, the command line,
the config files, ``set_default`` and the option's own default; ``$name`` in a text stands for another option.
Where eras differ: to Essex objects were made by the program (``CommonConfigOpts()``); from Folsom on there is
one for all, ``CONF``. ``nova.flags.FLAGS`` is the same values in yet another manner.

An option registered with ``soft=True`` is the shim's own: a program that registers one of that name takes it over.
"""

from __future__ import annotations

import argparse
import importlib
import os
import string
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

import compat.nova
from compat.nova import options
from compat.nova.config_files import config_dirs, files_of
from compat.nova.config_files import find_config_files as find_config_files
from compat.nova.config_files import parse_config as parse_config
from compat.nova.config_options import ArgsAlreadyParsedError as ArgsAlreadyParsedError
from compat.nova.config_options import BoolOpt as BoolOpt
from compat.nova.config_options import ConfigDirNotFoundError as ConfigDirNotFoundError
from compat.nova.config_options import ConfigFileParseError as ConfigFileParseError
from compat.nova.config_options import ConfigFilesNotFoundError as ConfigFilesNotFoundError
from compat.nova.config_options import ConfigFileValueError as ConfigFileValueError
from compat.nova.config_options import DeprecatedOpt as DeprecatedOpt
from compat.nova.config_options import DictOpt as DictOpt
from compat.nova.config_options import DuplicateOptError as DuplicateOptError
from compat.nova.config_options import Error as Error
from compat.nova.config_options import FloatOpt as FloatOpt
from compat.nova.config_options import IntOpt as IntOpt
from compat.nova.config_options import ListOpt as ListOpt
from compat.nova.config_options import MultiOpt as MultiOpt
from compat.nova.config_options import MultiStrOpt as MultiStrOpt
from compat.nova.config_options import NoSuchGroupError as NoSuchGroupError
from compat.nova.config_options import NoSuchOptError as NoSuchOptError
from compat.nova.config_options import Opt as Opt
from compat.nova.config_options import OptGroup as OptGroup
from compat.nova.config_options import RequiredOptError as RequiredOptError
from compat.nova.config_options import StrOpt as StrOpt
from compat.nova.config_options import SubCommandOpt as SubCommandOpt
from compat.nova.config_options import TemplateSubstitutionError as TemplateSubstitutionError

_UNSET: Any = object()


@dataclass
class _Entry:
    """A registered option and what was set for it in code or on the command line."""

    opt: Opt
    cli: bool = False
    soft: bool = False
    default: Any = _UNSET
    override: Any = _UNSET
    given: Any = _UNSET


@dataclass
class _State:
    """What a configuration object is made of; two objects may share one."""

    groups: dict[str | None, dict[str, _Entry]] = field(default_factory=lambda: {None: {}})
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


# --- the object ---------------------------------------------------------------------------------


class ConfigOpts(Mapping[str, Any]):
    """Registered options as attributes, items and an iteration over their names.

    Assigning to the attribute of an option overrides it, as programs of the gflags days did.
    """

    _state: _State

    def __init__(self, **common: Any) -> None:
        object.__setattr__(self, "_state", _State())
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
            entries[opt.dest] = _Entry(opt, cli, soft)
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
        """As :meth:`register_opt`, for the command line too."""
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
        self._override(name, _UNSET if undo else override, group)

    def _override(self, name: str, override: Any, group: str | OptGroup | None = None) -> None:
        self._entry(name, group).override = override
        self._state.cache.clear()

    def set_default(self, name: str, default: Any, group: str | OptGroup | None = None) -> None:
        """Set what goes before the option's own default only."""
        self._entry(name, group).default = default
        self._state.cache.clear()

    def clear_override(self, name: str, group: str | OptGroup | None = None) -> None:
        """Undo :meth:`set_override`."""
        self.set_override(name, _UNSET, group)

    def clear_default(self, name: str, group: str | OptGroup | None = None) -> None:
        """Undo :meth:`set_default`."""
        self.set_default(name, _UNSET, group)

    def reset(self) -> None:
        """Forget everything that was set, in code, in files and on the command line."""
        self.clear()

    def clear(self) -> None:
        """As :meth:`reset`."""
        for entries in self._state.groups.values():
            for entry in entries.values():
                entry.default = entry.override = entry.given = _UNSET
        self._forget_sources()

    def _forget_sources(self) -> None:
        state = self._state
        state.files, state.args, state.leftover, state.subcommand = {}, None, [], {}
        state.common |= {"config_file": [], "config_dir": None}
        for entries in state.groups.values():
            for entry in entries.values():
                entry.given = _UNSET
        state.cache.clear()

    # reading

    def get(self, name: str, default: Any = None) -> Any:
        """The option's value, or ``default`` where no such option is registered."""
        try:
            return self._get(name)
        except NoSuchOptError:
            return default

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self._get(name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self._state.groups[None]:
            self._override(name, value)
        else:
            object.__setattr__(self, name, value)

    def __getitem__(self, key: str) -> Any:
        return self._get(key)

    def __contains__(self, key: object) -> bool:
        return key in self._state.groups[None] or key in self._state.groups

    def __iter__(self) -> Iterator[str]:
        return iter([*self._state.groups[None], *(name for name in self._state.groups if name is not None)])

    def __len__(self) -> int:
        return len(self._state.groups[None]) + len(self._state.groups) - 1

    def __eq__(self, other: object) -> bool:
        return self is other

    __hash__ = object.__hash__

    def iteritems(self) -> Iterator[tuple[str, Any]]:
        """Names and values."""
        return iter(self.items())

    def iterkeys(self) -> Iterator[str]:
        """Names."""
        return iter(self)

    def _get(self, name: str, group: str | None = None) -> Any:
        key = (group, name)
        try:
            return self._state.cache[key]
        except KeyError:
            pass
        if group is None and name not in self._state.groups[None]:
            if name in self._state.groups:
                return GroupAttr(self, name)
            if name in self._state.subcommand:
                return self._state.subcommand[name]
            if name in self._state.common:
                return self._state.common[name]
        value = self._substitute(self._raw(self._entry(name, group), group))
        # A list or dict may be changed by whoever gets it: such a change lasted, and does so here.
        self._state.cache[key] = value
        return value

    def _raw(self, entry: _Entry, group: str | None) -> Any:
        if entry.override is not _UNSET:
            return entry.override
        if entry.given is not _UNSET:
            return entry.given
        for section, name in self._names(entry.opt, group):
            texts = self._state.files.get(section, {}).get(name)
            if texts:
                try:
                    return [entry.opt.parse(text) for text in texts] if entry.opt.multi else entry.opt.parse(texts[-1])
                except ValueError as error:
                    raise ConfigFileValueError(f"{section}.{name}: {error}") from None
        return entry.opt.default if entry.default is _UNSET else entry.default

    @staticmethod
    def _names(opt: Opt, group: str | None) -> Iterator[tuple[str, str]]:
        here = group or "DEFAULT"
        yield here, opt.dest
        yield here, opt.name
        for old in opt.deprecated_opts:
            yield old.group or here, old.name.replace("-", "_")
            yield old.group or here, old.name

    def _substitute(self, value: Any) -> Any:
        if isinstance(value, str):
            return string.Template(value).safe_substitute(_Names(self)) if "$" in value else value
        if isinstance(value, list) and any(isinstance(each, str) and "$" in each for each in value):
            return [self._substitute(each) for each in value]
        return value

    def _entries(self, group: str | OptGroup | None, create: bool = False) -> dict[str, _Entry]:
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

    def _entry(self, name: str, group: str | OptGroup | None = None) -> _Entry:
        try:
            return self._entries(group)[name]
        except KeyError:
            pass
        known = group if isinstance(group, OptGroup) else self._state.group_objects.get(group or "")
        raise NoSuchOptError(name, known)

    # files and command line

    def __call__(
        self,
        args: Sequence[str] | None = None,
        project: str | None = None,
        prog: str | None = None,
        version: str | None = None,
        usage: str | None = None,
        default_config_files: Sequence[str] | None = None,
        **ignored: Any,
    ) -> list[str]:
        """Read the command line and the config files it names, or the default ones; what was set in code stays.

        Args:
            args: without the program's name; None: those of the process.

        Returns:
            What is left of ``args``: the arguments that are no options.

        Raises:
            SystemExit: the command line is wrong, or help was asked for.
            ConfigFilesNotFoundError, ConfigFileParseError, ConfigFileValueError, RequiredOptError: of the files.
        """
        self._forget_sources()
        named = {"project": project, "prog": prog, "version": version, "usage": usage}
        self._state.common.update({name: value for name, value in named.items() if value is not None})
        if self._state.common["prog"] is None:
            self._state.common["prog"] = os.path.basename(sys.argv[0])
        if default_config_files is None:
            default_config_files = self._state.common["default_config_files"]
        if default_config_files is None:
            default_config_files = find_config_files(self._state.common["project"], self._state.common["prog"])
        self._parse_args(list(sys.argv[1:] if args is None else args), list(default_config_files))
        self._check_values()
        return self._state.leftover

    def _parse_args(self, args: list[str], default_config_files: list[str]) -> None:
        parser = self._parser()
        parsed, leftover = (parser.parse_known_intermixed_args if self._mixes() else parser.parse_known_args)(args)
        if unknown := [arg for arg in leftover if arg.startswith("-") and arg != "-"]:
            parser.error(f"no such option: {unknown[0]}")
        values = vars(parsed)
        self._state.leftover = [*values.pop("__rest", ()), *leftover]
        files = values.pop("config_file") or default_config_files
        directory = values.pop("config_dir")
        for group, entries in self._state.groups.items():
            for dest, entry in entries.items():
                value = values.pop(_cli_dest(group, dest), None)
                if value is not None:
                    entry.given = value
        self._state.subcommand = values
        self._state.args = args
        self._state.common |= {"config_file": files, "config_dir": directory}
        self.read_config_files([*files, *files_of(directory)])

    def _mixes(self) -> bool:
        opts = [entry.opt for entries in self._state.groups.values() for entry in entries.values() if entry.cli]
        return self._state.interspersed and not any(isinstance(opt, SubCommandOpt) or opt.positional for opt in opts)

    def _parser(self) -> argparse.ArgumentParser:
        common = self._state.common
        parser = _Parser(prog=common["prog"], usage=common["usage"], allow_abbrev=False, conflict_handler="resolve")
        if common["version"]:
            parser.add_argument("--version", action="version", version=str(common["version"]))
        parser.add_argument("--config-file", "--config_file", action="append", metavar="PATH")
        parser.add_argument("--config-dir", "--config_dir", metavar="DIR")
        takes_rest = True
        for group, entries in self._state.groups.items():
            holder: Any = parser
            if group is not None and any(entry.cli for entry in entries.values()):
                holder = parser.add_argument_group(self._state.group_objects[group].title)
            for entry in entries.values():
                if entry.cli:
                    _add_argument(parser, holder, entry.opt, group)
                    takes_rest = takes_rest and not (isinstance(entry.opt, SubCommandOpt) or entry.opt.positional)
        if takes_rest:
            nargs = "*" if self._state.interspersed else argparse.REMAINDER
            parser.add_argument("__rest", nargs=nargs, help=argparse.SUPPRESS)
        return parser

    def read_config_files(self, paths: Iterable[str]) -> None:
        """Add what the files say to what is known; a later file goes before an earlier one.

        Raises:
            ConfigFilesNotFoundError: some cannot be read.
            ConfigFileParseError: one is malformed.
        """
        missing = []
        for path in paths:
            path = os.path.expanduser(path)
            try:
                with open(path, encoding="utf-8") as file:
                    sections = parse_config(file.read().splitlines(), path)
            except OSError:
                missing.append(path)
                continue
            for section, values in sections.items():
                self._state.files.setdefault(section, {}).update(values)
        self._state.cache.clear()
        if missing:
            raise ConfigFilesNotFoundError(missing)

    def _check_values(self) -> None:
        for group, entries in self._state.groups.items():
            for dest, entry in entries.items():
                if self._raw(entry, group) is None and entry.opt.required:
                    raise RequiredOptError(dest, self._state.group_objects.get(group or ""))

    def disable_interspersed_args(self) -> None:
        """The first argument that is no option ends the options."""
        self._state.interspersed = False

    def enable_interspersed_args(self) -> None:
        """Options may follow other arguments: the default."""
        self._state.interspersed = True

    def print_usage(self, file: Any = None) -> None:
        """Print how the command line looks."""
        self._parser().print_usage(file)

    def print_help(self, file: Any = None) -> None:
        """Print the options of the command line."""
        self._parser().print_help(file)

    def find_file(self, name: str) -> str | None:
        """The path of ``name`` beside the config files, in the configuration directory or in the usual ones."""
        common = self._state.common
        places = [common["config_dir"], *(os.path.dirname(path) for path in reversed(common["config_file"]))]
        places += config_dirs(common["project"])
        paths = (os.path.join(os.path.expanduser(place), name) for place in places if place)
        return next((os.path.abspath(path) for path in paths if os.path.exists(path)), None)

    def log_opt_values(self, logger: Any, lvl: int) -> None:
        """Log each option with its value, but no secret."""
        logger.log(lvl, "*" * 80)
        logger.log(lvl, "Configuration options gathered from:")
        logger.log(lvl, "command line args: %s", self._state.args)
        logger.log(lvl, "config files: %s", self._state.common["config_file"])
        for group, entries in self._state.groups.items():
            for dest, entry in sorted(entries.items()):
                value = "****" if entry.opt.secret else self._get(dest, group)
                logger.log(lvl, "%-30s = %s", f"{group}.{dest}" if group else dest, value)
        logger.log(lvl, "*" * 80)


class CommonConfigOpts(ConfigOpts):
    """Options of every program, mostly about its log (Essex; later ``nova.openstack.common.log`` registers them)."""

    DEFAULT_LOG_FORMAT = "%(asctime)s %(levelname)8s [%(name)s] %(message)s"
    DEFAULT_LOG_DATE_FORMAT = "%Y-%m-%d %H:%M:%S"

    common_cli_opts = (
        BoolOpt("debug", short="d", default=False, help="Print debugging output"),
        BoolOpt("verbose", short="v", default=False, help="Print more verbose output"),
    )
    logging_cli_opts = (
        StrOpt("log-config", metavar="PATH", help="Configuration file of the logging module"),
        StrOpt("log-format", default=DEFAULT_LOG_FORMAT, metavar="FORMAT", help="Format of log records"),
        StrOpt("log-date-format", default=DEFAULT_LOG_DATE_FORMAT, metavar="DATE_FORMAT", help="Format of their times"),
        StrOpt("log-file", metavar="PATH", deprecated_name="logfile", help="File to log to"),
        StrOpt("log-dir", deprecated_name="logdir", help="Directory of log files"),
        BoolOpt("use-syslog", default=False, help="Log to syslog"),
        StrOpt("syslog-log-facility", default="LOG_USER", help="Facility of what goes to syslog"),
    )

    def __init__(self, **common: Any) -> None:
        super().__init__(**common)
        for opt in (*self.common_cli_opts, *self.logging_cli_opts):
            self.register_opt(opt, cli=True, soft=True)


class GroupAttr(Mapping[str, Any]):
    """The options of a group as attributes and items."""

    def __init__(self, conf: ConfigOpts, group: str) -> None:
        self._conf = conf
        self._group = group

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self._conf._get(name, self._group)

    def __getitem__(self, key: str) -> Any:
        return self._conf._get(key, self._group)

    def __contains__(self, key: object) -> bool:
        return key in self._conf._entries(self._group)

    def __iter__(self) -> Iterator[str]:
        return iter([*self._conf._entries(self._group)])

    def __len__(self) -> int:
        return len(self._conf._entries(self._group))


class _Names(Mapping[str, str]):
    """What ``$name`` stands for. A name that nobody registered stays as it was written."""

    def __init__(self, conf: ConfigOpts) -> None:
        self._conf = conf

    def __getitem__(self, key: str) -> str:
        try:
            value = self._conf._get(key)
        except NoSuchOptError:
            raise KeyError(key) from None
        if isinstance(value, GroupAttr):
            raise TemplateSubstitutionError(f"substituting group {key} not supported")
        return str(value)

    def __iter__(self) -> Iterator[str]:
        return iter(self._conf)

    def __len__(self) -> int:
        return len(self._conf)


# --- command line -------------------------------------------------------------------------------


class _Parser(argparse.ArgumentParser):
    """An argument parser that says what is wrong and exits, in one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: error: {message}\n")


def _cli_dest(group: str | None, dest: str) -> str:
    return f"{group}_{dest}" if group else dest


def _add_argument(parser: argparse.ArgumentParser, holder: Any, opt: Opt, group: str | None) -> None:
    dest = _cli_dest(group, opt.dest)
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


CONF = ConfigOpts()
# Configuration files may name them before RPC is used.
options.register(CONF)
