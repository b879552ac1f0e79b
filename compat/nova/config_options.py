"""Option types and errors: the parts of ``nova.openstack.common.cfg`` that hold no values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

_BOOLS = {"true": True, "1": True, "yes": True, "on": True, "false": False, "0": False, "no": False, "off": False}


# --- errors -------------------------------------------------------------------------------------


class Error(Exception):
    """Root of what this module raises."""

    def __init__(self, msg: str | None = None) -> None:
        super().__init__(msg or "")
        self.msg = msg


class ArgsAlreadyParsedError(Error):
    """An option of the command line came after the command line was read."""


class NoSuchOptError(Error, AttributeError):
    """No option of that name is registered."""

    def __init__(self, opt_name: str, group: OptGroup | None = None) -> None:
        super().__init__(f"no such option in group {group.name if group else 'DEFAULT'}: {opt_name}")
        self.opt_name = opt_name
        self.group = group


class NoSuchGroupError(Error):
    """No group of that name is registered."""

    def __init__(self, group_name: str) -> None:
        super().__init__(f"no such group: {group_name}")
        self.group_name = group_name


class DuplicateOptError(Error):
    """Another option of that name is registered."""

    def __init__(self, opt_name: str) -> None:
        super().__init__(f"duplicate option: {opt_name}")
        self.opt_name = opt_name


class RequiredOptError(Error):
    """A required option has no value."""

    def __init__(self, opt_name: str, group: OptGroup | None = None) -> None:
        super().__init__(f"value required for option: {f'{group.name}.' if group else ''}{opt_name}")
        self.opt_name = opt_name
        self.group = group


class TemplateSubstitutionError(Error):
    """A ``$name`` stands for something other than text."""


class ConfigFilesNotFoundError(Error):
    """A config file cannot be read."""

    def __init__(self, config_files: Sequence[str]) -> None:
        super().__init__(f"Failed to read some config files: {','.join(config_files)}")
        self.config_files = config_files


class ConfigDirNotFoundError(Error):
    """A directory of config files is not there."""

    def __init__(self, config_dir: str) -> None:
        super().__init__(f"Failed to read config file directory: {config_dir}")
        self.config_dir = config_dir


class ConfigFileParseError(Error):
    """A config file is malformed."""

    def __init__(self, config_file: str, msg: str) -> None:
        super().__init__(f"Failed to parse {config_file}: {msg}")
        self.config_file = config_file


class ConfigFileValueError(Error):
    """A value of a config file is not what its option takes."""


# --- options ------------------------------------------------------------------------------------


class Opt:
    """An option: its name, what its text means, and its default.

    Args:
        name: as in config files; dashes are underscores in ``dest``, the attribute.
        short: a letter for the command line.
        positional: an argument without a flag.
        choices: the only texts that are allowed.
        deprecated_name: another name in config files and on the command line.
    """

    multi = False

    def __init__(
        self,
        name: str,
        type: Callable[[str], Any] | None = None,
        dest: str | None = None,
        short: str | None = None,
        default: Any = None,
        positional: bool = False,
        metavar: str | None = None,
        help: str | None = None,
        secret: bool = False,
        required: bool = False,
        deprecated_name: str | None = None,
        deprecated_group: str | None = None,
        deprecated_opts: Iterable[DeprecatedOpt] | None = None,
        choices: Sequence[str] | None = None,
    ) -> None:
        self.name = name
        self.dest = (dest or name).replace("-", "_")
        self.short = short
        self.default = default
        self.positional = positional
        self.metavar = metavar
        self.help = help
        self.secret = secret
        self.required = required
        self.choices = choices
        self.deprecated_name = deprecated_name
        self.deprecated_group = deprecated_group
        self.deprecated_opts = [*(deprecated_opts or ())]
        if deprecated_name or deprecated_group:
            self.deprecated_opts.append(DeprecatedOpt(deprecated_name or name, deprecated_group))
        if type is not None:
            self.parse = type  # type: ignore[assignment,method-assign]

    def parse(self, text: str) -> Any:
        """The value that ``text`` stands for.

        Raises:
            ValueError: none does.
        """
        if self.choices is not None and text not in self.choices:
            raise ValueError(f"{text!r} is none of {', '.join(self.choices)}")
        return text

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Opt):
            return NotImplemented
        return type(self) is type(other) and self._known() == other._known()

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = object.__hash__

    def __lt__(self, other: Opt) -> bool:
        return self.name < other.name

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, default={'***' if self.secret else self.default!r})"

    def _known(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name not in ("parse", "deprecated_opts")}


@dataclass(frozen=True)
class DeprecatedOpt:
    """A name that an option had before, possibly in another group."""

    name: str
    group: str | None = None


class StrOpt(Opt):
    """Text."""


class BoolOpt(Opt):
    """A switch: true, 1, yes, on or false, 0, no, off; ``--name`` and ``--noname`` on the command line."""

    def parse(self, text: str) -> bool:
        """See :meth:`Opt.parse`."""
        try:
            return _BOOLS[text.strip().lower()]
        except KeyError:
            raise ValueError(f"unexpected boolean value {text!r}") from None


class IntOpt(Opt):
    """A whole number."""

    def parse(self, text: str) -> int:
        """See :meth:`Opt.parse`."""
        return int(text)


class FloatOpt(Opt):
    """A number."""

    def parse(self, text: str) -> float:
        """See :meth:`Opt.parse`."""
        return float(text)


class ListOpt(Opt):
    """Texts with commas between."""

    def parse(self, text: str) -> list[str]:
        """See :meth:`Opt.parse`."""
        return [part.strip() for part in text.split(",")] if text.strip() else []


class DictOpt(Opt):
    """``key:value`` with commas between."""

    def parse(self, text: str) -> dict[str, str]:
        """See :meth:`Opt.parse`."""
        parts = [part.partition(":") for part in text.split(",") if part.strip()]
        if not all(colon for _, colon, _ in parts):
            raise ValueError(f"{text!r} has a part without a colon")
        return {key.strip(): value.strip() for key, _, value in parts}


class MultiOpt(Opt):
    """An option that may be given several times: a list."""

    multi = True


class MultiStrOpt(MultiOpt):
    """Texts, each given separately."""


class SubCommandOpt(Opt):
    """The name of a subcommand; ``handler(subparsers)`` adds them in argparse's way."""

    def __init__(
        self,
        name: str,
        dest: str | None = None,
        handler: Callable[[Any], Any] | None = None,
        title: str | None = None,
        description: str | None = None,
        help: str | None = None,
    ) -> None:
        super().__init__(name, dest=dest, help=help)
        self.handler = handler
        self.title = title
        self.description = description


class OptGroup:
    """A section of options."""

    def __init__(self, name: str, title: str | None = None, help: str | None = None) -> None:
        self.name = name
        self.title = title or f"{name} options"
        self.help = help
