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
import os
import string
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from compat.nova import options
from compat.nova.config_cli import Parser, add_argument, cli_dest
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
from compat.nova.config_registry import UNSET, Entry, RegisteredOptions


class ConfigOpts(RegisteredOptions, Mapping[str, Any]):
    """Registered options as attributes, items and an iteration over their names.

    Assigning to the attribute of an option overrides it, as programs of the gflags days did.
    """

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
            pass  # read for the first time since something was set
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

    def _raw(self, entry: Entry, group: str | None) -> Any:
        if entry.override is not UNSET:
            return entry.override
        if entry.given is not UNSET:
            return entry.given
        for section, name in self._names(entry.opt, group):
            texts = self._state.files.get(section, {}).get(name)
            if texts:
                try:
                    return [entry.opt.parse(text) for text in texts] if entry.opt.multi else entry.opt.parse(texts[-1])
                except ValueError as error:
                    raise ConfigFileValueError(f"{section}.{name}: {error}") from None
        return entry.opt.default if entry.default is UNSET else entry.default

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
                value = values.pop(cli_dest(group, dest), None)
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
        parser = Parser(prog=common["prog"], usage=common["usage"], allow_abbrev=False, conflict_handler="resolve")
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
                    add_argument(parser, holder, entry.opt, group)
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
    """The values of ``$name`` references. A name that nobody registered stays as written."""

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


CONF = ConfigOpts()
# Configuration files may name them before RPC is used.
options.register(CONF)
