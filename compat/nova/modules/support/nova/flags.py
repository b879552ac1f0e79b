"""Flags: the values of ``nova.openstack.common.cfg.CONF`` in the manner of gflags, and Nova's own options.

To Diablo modules say ``flags.DEFINE_string(name, default, help)`` and read ``FLAGS.name``; ``FLAGS[name]`` is a flag
with ``SetDefault``, and flags may be defined after the command line was read. In Essex and Folsom they say
``FLAGS.register_opts``, and ``FLAGS[name]`` is the value. The latter holds until something is DEFINEd or DECLAREd.
"""

from __future__ import annotations

import importlib
import os
import socket
import sys
from collections.abc import Sequence
from typing import Any

import compat.nova
from compat.nova.config_registry import UNSET

from nova.openstack.common import cfg


class Error(Exception):
    """Root of what flags raise."""


class IllegalFlagValue(Error):
    """The command line gives a flag what it cannot take."""


class UnrecognizedFlag(Error, AttributeError):
    """No flag of that name is defined."""


class Flag:
    """One flag, as ``FLAGS[name]`` gives it to Diablo."""

    def __init__(self, flags: FlagValues, name: str) -> None:
        self._flags = flags
        self.name = name

    @property
    def value(self) -> Any:
        """The flag's current value."""
        return self._flags._get(self.name)

    @property
    def default(self) -> Any:
        """The flag's default."""
        entry = self._flags._entry(self.name)
        return entry.opt.default if entry.default is UNSET else entry.default

    @property
    def present(self) -> bool:
        """Whether the command line names it."""
        return self._flags._entry(self.name).given is not UNSET

    @property
    def help(self) -> str | None:
        """The flag's help text."""
        return self._flags._entry(self.name).opt.help

    def SetDefault(self, value: Any) -> None:
        """Change the default; what is set stays set."""
        opt = self._flags._entry(self.name).opt
        # gflags took a default through the flag's parser: tests give numbers as text.
        self._flags.set_default(self.name, opt.parse(value) if isinstance(value, str) else value)


class FlagValues(cfg.ConfigOpts):
    """``CONF`` as flags: the same options and values under both."""

    def __init__(self, conf: cfg.ConfigOpts | None = None) -> None:
        super().__init__()
        if conf is not None:
            object.__setattr__(self, "_state", conf._state)
        self._gflags = False

    def __getitem__(self, key: str) -> Any:
        if not self._gflags and compat.nova.era() not in ("cactus", "diablo"):
            return super().__getitem__(key)
        self._entry(key)
        return Flag(self, key)

    def __call__(self, args: Sequence[str] | None = None, *rest: Any, **named: Any) -> list[str]:
        """Read a command line.

        To Essex ``args`` starts with the program's name, unknown flags wait until they are defined, and what is left
        is returned with the name in front. Later (said by ``project`` and its kin) see :class:`ConfigOpts`.
        """
        if rest or named or args is None or not args or args[0].startswith("-"):
            return super().__call__(args, *rest, **named)
        self._forget_sources()
        self._state.args, self._state.common["prog"] = list(args), os.path.basename(args[0])
        return [args[0], *self._read(args[1:])]

    def register_opt(
        self, opt: cfg.Opt, group: str | cfg.OptGroup | None = None, cli: bool = False, soft: bool = False
    ) -> bool:
        """See :meth:`ConfigOpts.register_opt`; the command line read before is looked at again for it."""
        args = self._state.args
        late = args is not None and bool(args) and not args[0].startswith("-") and not group
        new = super().register_opt(opt, group, cli and not late, soft)
        if new and late:
            self.ParseNewFlags()
        return new

    def define(self, opt: cfg.Opt) -> None:
        """Implement the ``DEFINE_`` functions: defining the same flag twice is allowed, as test modules did."""
        self._gflags = True
        known = self._state.groups[None].get(opt.dest)
        if known is not None:
            known.soft = True
        self.register_opt(opt)

    def ParseNewFlags(self) -> None:
        """Look at the command line again, for flags that were defined since."""
        if self._state.args:
            self._read(self._state.args[1:])

    ClearDirty = ParseNewFlags

    def IsParsed(self) -> bool:
        """Return whether a command line was read."""
        return self._state.args is not None

    def WasAlreadyParsed(self) -> bool:
        """Like :meth:`IsParsed`."""
        return self.IsParsed()

    def Reset(self) -> None:
        """Forget the command line, the files and what was set, but no ``SetDefault``."""
        for entry in self._state.groups[None].values():
            entry.override = UNSET
        self._forget_sources()

    def FlagValuesDict(self) -> dict[str, Any]:
        """All flags by name."""
        return {name: self._get(name) for name in self._state.groups[None]}

    def RegisteredFlags(self) -> list[str]:
        """Names of the flags."""
        return [*self._state.groups[None]]

    def get(self, name: str, default: Any = None) -> Any:
        """The flag's value; ``default`` where there is no such flag, or it is None."""
        value = super().get(name)
        return default if value is None else value

    def _read(self, args: Sequence[str]) -> list[str]:
        """Take the flags in ``args``; what is no flag is left. An unknown flag is taken to have no value of its own."""
        left: list[str] = []
        rest = list(args)
        while rest:
            arg = rest.pop(0)
            if arg == "--":
                return left + rest
            if not arg.startswith("-") or arg == "-":
                left.append(arg)
                continue
            name, equals, text = arg.lstrip("-").partition("=")
            name = name.replace("-", "_")
            if name in ("flagfile", "config_file"):
                self.read_config_files([text if equals else rest.pop(0)])
            else:
                self._take(name, text if equals else None, rest)
        self._state.cache.clear()
        return left

    def _take(self, name: str, text: str | None, rest: list[str]) -> None:
        known = self._state.groups[None]
        entry = known.get(name)
        if entry is None:
            negated = known.get(name.removeprefix("no")) if name.startswith("no") else None
            if negated is not None and isinstance(negated.opt, cfg.BoolOpt):
                negated.given = False
            return
        if text is None:
            text = "true" if isinstance(entry.opt, cfg.BoolOpt) else rest.pop(0) if rest else ""
        try:
            value = entry.opt.parse(text)
        except ValueError as error:
            raise IllegalFlagValue(f"flag --{name}={text}: {error}") from None
        entry.given = [value] if entry.opt.multi else value


FLAGS = FlagValues(cfg.CONF)


def _define(
    kind: type[cfg.Opt], name: str, default: Any, help: str, flag_values: FlagValues | None, **more: Any
) -> None:
    flags = FLAGS if flag_values is None else flag_values
    opt = kind(name, help=help, **more)
    # A default may be given as text, as on the command line; $name in it waits for its use.
    opt.default = (
        opt.parse(default) if isinstance(default, str) and kind not in (cfg.StrOpt, cfg.MultiStrOpt) else default
    )
    flags.define(opt)


def DEFINE(parser: Any, name: str, default: Any, help: str, flag_values: FlagValues | None = None, **_: Any) -> None:
    """A flag whose text ``parser.Parse`` reads."""
    _define(
        cfg.StrOpt,
        name,
        default,
        help,
        flag_values,
        type=getattr(parser, "Parse", None) or getattr(parser, "parse", None),
    )


def DEFINE_string(name: str, default: Any, help: str = "", flag_values: FlagValues | None = None, **_: Any) -> None:
    """A flag of text."""
    _define(cfg.StrOpt, name, default, help, flag_values)


def DEFINE_integer(name: str, default: Any, help: str = "", flag_values: FlagValues | None = None, **_: Any) -> None:
    """A flag of a whole number; ``lower_bound`` and ``upper_bound`` are taken and not looked at."""
    _define(cfg.IntOpt, name, default, help, flag_values)


def DEFINE_float(name: str, default: Any, help: str = "", flag_values: FlagValues | None = None, **_: Any) -> None:
    """A flag of a number."""
    _define(cfg.FloatOpt, name, default, help, flag_values)


def DEFINE_bool(name: str, default: Any, help: str = "", flag_values: FlagValues | None = None, **_: Any) -> None:
    """A switch: ``--name``, ``--noname``, ``--name=false``."""
    _define(cfg.BoolOpt, name, default, help, flag_values)


DEFINE_boolean = DEFINE_bool


def DEFINE_enum(
    name: str, default: Any, enum_values: Sequence[str], help: str = "", flag_values: FlagValues | None = None, **_: Any
) -> None:
    """A flag of one of some texts."""
    _define(cfg.StrOpt, name, default, help, flag_values, choices=enum_values)


def DEFINE_list(name: str, default: Any, help: str = "", flag_values: FlagValues | None = None, **_: Any) -> None:
    """A flag of texts with commas between."""
    _define(cfg.ListOpt, name, default, help, flag_values)


DEFINE_spaceseplist = DEFINE_list


def DEFINE_multistring(
    name: str, default: Any, help: str = "", flag_values: FlagValues | None = None, **_: Any
) -> None:
    """A flag that may be given several times."""
    _define(cfg.MultiStrOpt, name, [default] if isinstance(default, str) else default, help, flag_values)


def DEFINE_flag(flag: Any, flag_values: FlagValues | None = None) -> None:
    """A flag made elsewhere: what has ``name``, ``default`` and ``help``."""
    _define(cfg.StrOpt, flag.name, flag.default, getattr(flag, "help", ""), flag_values)


def DECLARE(name: str, module_string: str, flag_values: FlagValues | None = None) -> None:
    """Say that ``name`` is needed here; ``module_string``, which defines it, is imported if it has to be.

    Raises:
        UnrecognizedFlag: the module does not define it.
    """
    flags = FLAGS if flag_values is None else flag_values
    flags._gflags = True
    if module_string not in sys.modules:
        try:
            importlib.import_module(module_string)
        except ModuleNotFoundError:
            # A part of Nova that is not here: its flag may still be one of ours.
            if name not in flags:
                raise
    if name not in flags:
        raise UnrecognizedFlag(f"{name} not defined by {module_string}")


def parse_args(argv: Sequence[str], default_config_files: Sequence[str] | None = None) -> None:
    """Read a program's command line and config files (Folsom)."""
    FLAGS.disable_interspersed_args()
    FLAGS(list(argv[1:]), project="nova", default_config_files=default_config_files)


def _get_my_ip() -> str:
    """The address that this host would use for the outside. Nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("8.8.8.8", 80))
            address: str = probe.getsockname()[0]
        except OSError:
            return "127.0.0.1"
    return address


_STATE_PATH = os.path.abspath(os.getcwd())

global_opts: list[cfg.Opt] = [
    cfg.StrOpt("my_ip", default=_get_my_ip(), help="address of this host"),
    cfg.StrOpt("host", default=socket.gethostname(), help="name of this host, as the second part of its topics"),
    cfg.StrOpt("node_availability_zone", default="nova", help="availability zone of this node"),
    cfg.StrOpt("state_path", default=_STATE_PATH, help="directory of what services keep"),
    cfg.StrOpt("bindir", default="$state_path/bin", help="directory of binaries"),
    cfg.StrOpt("lock_path", default="$state_path", help="directory of lock files"),
    cfg.StrOpt("logdir", help="directory of log files"),
    cfg.StrOpt("logfile", help="log file"),
    cfg.BoolOpt("use_stderr", default=True, help="log to standard error"),
    cfg.BoolOpt("monkey_patch", default=False, help="patch the modules of monkey_patch_modules"),
    cfg.ListOpt("monkey_patch_modules", default=[], help="module:decorator, to be patched"),
    cfg.StrOpt("sql_connection", default="sqlite://", help="URL of the database"),
    cfg.StrOpt("sqlite_db", default="nova.sqlite", help="file of the database, for sqlite"),
    cfg.StrOpt("sqlite_clean_db", default="clean.sqlite", help="file of an empty database, for tests"),
    cfg.StrOpt("image_service", default="nova.image.glance.GlanceImageService", help="class that finds images"),
    cfg.StrOpt("api_paste_config", default="api-paste.ini", help="configuration of the API servers"),
    cfg.StrOpt("connection_type", help="kind of virtualization"),
    cfg.StrOpt("flagfile", help="file of flags"),
    *(
        cfg.StrOpt(f"{name}_topic", default=name, help=f"topic that {name} services listen on")
        for name in ("ajax_console_proxy", "cert", "compute", "conductor", "console", "network", "scheduler", "volume")
    ),
    cfg.StrOpt("consoleauth_topic", default="consoleauth", help="topic that consoleauth services listen on"),
    *(
        cfg.StrOpt(f"{name}_manager", default=f"nova.{name}.manager.{name.title()}Manager", help=f"manager of {name}")
        for name in ("compute", "console", "network", "scheduler", "volume")
    ),
    cfg.IntOpt("report_interval", default=10, help="seconds between two reports of a service"),
    cfg.IntOpt("periodic_interval", default=60, help="seconds between two runs of a service's periodic tasks"),
    cfg.IntOpt("service_down_time", default=60, help="seconds after the last report when a service is down"),
    cfg.IntOpt("password_length", default=12, help="characters of a generated password"),
    cfg.BoolOpt("fatal_exception_format_errors", default=False, help="raise when a message does not fit its arguments"),
    cfg.StrOpt("rootwrap_config", default="/etc/nova/rootwrap.conf", help="configuration of the root wrapper"),
    cfg.StrOpt("root_helper", default="sudo", help="command in front of what runs as root"),
    cfg.BoolOpt("fake_network", default=False, help="pretend network devices"),
    cfg.BoolOpt("fake_tests", default=True, help="pretend everything that can be"),
    cfg.StrOpt("auth_strategy", default="noauth", help="how users are known"),
    cfg.StrOpt("instances_path", default="$state_path/instances", help="directory of instances"),
    cfg.StrOpt("default_image", default="ami-11111", help="image of an instance"),
    cfg.StrOpt("storage_availability_zone", default="nova", help="availability zone of volumes"),
]

for _opt in (*cfg.CommonConfigOpts.common_cli_opts, *cfg.CommonConfigOpts.logging_cli_opts, *global_opts):
    FLAGS.register_opt(_opt, cli=FLAGS._state.args is None, soft=True)
