"""The values of settings: integers, seconds, bytes, URLs, lists; read from text, and checked."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf
from typing import Any, TypeVar

__all__ = [
    "BYTES",
    "CONNECT_URLS",
    "COUNT",
    "DAY",
    "DOMAINS",
    "FLAG",
    "GIB",
    "GLOBALS",
    "HOSTS",
    "KIB",
    "LISTEN_URL",
    "LOG_LEVELS",
    "MIB",
    "NAME",
    "OPTIONAL_ADDRESS",
    "OPTIONAL_PATH",
    "RATE",
    "STORE_URL",
    "URLS",
    "WORDS",
    "Setting",
    "ValueType",
    "WrongValue",
    "choice",
    "integer",
    "is_connect_url",
    "number",
    "seconds",
    "setting",
    "size",
]

T = TypeVar("T")

KIB, MIB, GIB = 2**10, 2**20, 2**30
DAY = 86400.0
_SIZE_UNITS = {"": 1, "B": 1, "KiB": KIB, "MiB": MIB, "GiB": GIB}
_TIME_UNITS = {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": DAY}
_FLAG_WORDS = dict.fromkeys(("1", "true", "yes", "on"), True) | dict.fromkeys(("0", "false", "no", "off"), False)


class WrongValue(ValueError):
    """A part of a value is wrong.

    Args:
        where: the way from the setting's key to the part: ``[0].url``.
        value: the part.
        expected: completes the sentence "expected ...".
    """

    def __init__(self, where: str, value: object, expected: str) -> None:
        super().__init__(where, value, expected)
        self.where = where
        self.value = value
        self.expected = expected


@dataclass(frozen=True)
class ValueType:
    """The values that a setting accepts.

    Args:
        name: short, for tables.
        expected: completes the sentence "expected ...".
        check: returns the value to keep; raises ValueError if this is none, :class:`WrongValue` if a part of it is not.
        read: turns the text of a variable or flag into what ``check`` takes.
    """

    name: str
    expected: str
    check: Callable[[Any], Any]
    read: Callable[[str], Any] = str


def _in_range(value: float, low: float, high: float) -> bool:
    return not isinstance(value, bool) and low <= value <= high


def _range(low: float, high: float) -> str:
    return f">= {low:.15g}" if high == inf else f"from {low:.15g} to {high:.15g}"


def integer(low: int, high: float = inf) -> ValueType:
    """An integer within bounds."""

    def check(value: object) -> int:
        if not isinstance(value, int) or not _in_range(value, low, high):
            raise ValueError
        return value

    return ValueType("integer", f"an integer {_range(low, high)}", check, int)


def number(low: float, high: float) -> ValueType:
    """A number within bounds."""

    def check(value: object) -> float:
        if not isinstance(value, int | float) or not _in_range(value, low, high):
            raise ValueError
        return float(value)

    return ValueType("number", f"a number {_range(low, high)}", check, float)


def seconds(low: float, high: float) -> ValueType:
    """A time within bounds of seconds."""

    def check(value: object) -> float:
        if isinstance(value, str):
            parts = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?) ?(ms|[smhd]?)", value)
            if parts is None:
                raise ValueError
            value = float(parts[1]) * _TIME_UNITS[parts[2]]
        if not isinstance(value, int | float) or not _in_range(value, low, high):
            raise ValueError
        return float(value)

    text = f"seconds {_range(low, high)}, as a number or text like '250ms', '30s', '5m'"
    return ValueType("seconds", text, check)


def size(low: int, high: float = inf) -> ValueType:
    """A number of bytes within bounds."""

    def check(value: object) -> int:
        if isinstance(value, str):
            parts = re.fullmatch(r"([0-9]+) ?([KMG]iB|B?)", value)
            if parts is None:
                raise ValueError
            value = int(parts[1]) * _SIZE_UNITS[parts[2]]
        if not isinstance(value, int) or not _in_range(value, low, high):
            raise ValueError
        return value

    text = f"bytes {_range(low, high)}, as an integer or text like '64KiB', '16MiB'"
    return ValueType("bytes", text, check)


def _matching(name: str, expected: str, accepts: Callable[[str], object]) -> ValueType:
    def check(value: object) -> str:
        if not isinstance(value, str) or not accepts(value):
            raise ValueError
        return value

    return ValueType(name, expected, check)


def choice(*choices: str) -> ValueType:
    """One of a few words."""

    return _matching("choice", "one of " + ", ".join(map(repr, choices)), choices.__contains__)


def _read_flag(text: str) -> bool:
    if text.lower() not in _FLAG_WORDS:
        raise ValueError
    return _FLAG_WORDS[text.lower()]


def _check_flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError
    return value


def _checked_words(pattern: str) -> Callable[[object], tuple[str, ...]]:
    def check(value: object) -> tuple[str, ...]:
        if not isinstance(value, list | tuple):
            raise ValueError
        if not all(isinstance(item, str) and re.fullmatch(pattern, item) for item in value):
            raise ValueError
        return tuple(value)

    return check


def _check_domains(value: object) -> tuple[str, ...]:
    patterns = _checked_words(r"(?=.{1,255}$)[^\s.,]+(\.[^\s.,]+)*")(value)
    if len(patterns) > 100 or sum(map(len, patterns)) > 4096:
        raise ValueError  # other routers would refuse this one
    return patterns


def _split(text: str) -> list[str]:
    return [item.strip() for item in text.split(",") if item.strip()]


def _is_address(text: str, port_pattern: str = "[0-9]{1,5}") -> bool:
    parts = re.fullmatch(rf"(?:[^\s:/\[\]]+|\[[0-9A-Fa-f:.%]+\]):({port_pattern})", text)
    return parts is not None and (parts[1] == "*" or int(parts[1]) <= 65535)


def _is_url(text: str, port_pattern: str) -> bool:
    scheme, _, rest = text.partition("://")
    if scheme == "tcp":
        return _is_address(rest, port_pattern)
    return scheme in ("ipc", "inproc") and rest.isprintable() and rest != ""


def is_connect_url(url: object) -> bool:
    """Return whether ``url`` is an endpoint that can be connected to."""
    return isinstance(url, str) and _is_url(url, "0*[1-9][0-9]{0,4}") and not url.startswith("tcp://*")


def _check_connect_urls(value: object) -> tuple[str, ...]:
    if isinstance(value, str):
        # A path may have commas.
        value = re.split(r"\s*,\s*(?=[a-z]+://)", value)
    if not isinstance(value, list | tuple) or not value or not all(map(is_connect_url, value)):
        raise ValueError
    return tuple(dict.fromkeys(value))


NAME = _matching(
    "text",
    "printable text of at most 255 bytes",
    lambda text: text.isprintable() and len(text.encode(errors="replace")) <= 255,
)
LISTEN_URL = _matching(
    "URL",
    "a URL like 'tcp://127.0.0.1:7700' (port 0 or *: any free one), 'ipc:///run/rpcmq.sock' or 'inproc://name'",
    lambda text: _is_url(text, r"[0-9]{1,5}|\*"),
)
CONNECT_URLS = ValueType(
    "URLs",
    "a URL like 'tcp://127.0.0.1:7700', 'ipc:///run/rpcmq.sock' or 'inproc://name', or a list of them "
    "(as text: separated by commas)",
    _check_connect_urls,
)
URLS = ValueType(
    "URLs",
    "URLs like 'tcp://10.0.0.7:7700' (as text: separated by commas), or none",
    lambda value: _check_connect_urls(value) if value else (),
)
OPTIONAL_ADDRESS = _matching(
    "address",
    "host:port like '127.0.0.1:7780' (port 0: any free one), or '' for off",
    lambda text: text == "" or _is_address(text),
)
RATE = ValueType("number", "messages a second >= 0; 0: no limit", number(0, inf).check, float)
OPTIONAL_PATH = _matching("path", "a path, or '' for off", lambda text: text == "" or text.isprintable())
STORE_URL = _matching(
    "URL",
    "a URL like 'postgresql://host/database', or '' for none",
    lambda text: text == "" or (text.startswith(("postgresql://", "postgres://")) and text.isprintable()),
)
FLAG = ValueType("flag", "true or false", _check_flag, _read_flag)
GLOBALS = ValueType(
    "list",
    "a list of 'module:qualname', 'module:*' or 'numpy' (as text: separated by commas)",
    _checked_words(r"numpy|[^\W\d][\w.]*:(\*|[^\W\d][\w.]*)"),
    _split,
)
DOMAINS = ValueType(
    "patterns",
    "topic patterns like 'volume.#', at most 100, of at most 4096 characters together (as text: separated by commas)",
    _check_domains,
    lambda text: tuple(_split(text)),
)
HOSTS = ValueType(
    "list",
    "a list of host names without ports (as text: separated by commas)",
    _checked_words(r"[^\s:/\[\]]+"),
    _split,
)
WORDS = ValueType("list", "a list of words (as text: separated by commas)", _checked_words(r"[^\s,]+"), _split)
LOG_LEVELS = choice("debug", "info", "warning", "error")
COUNT = integer(1)
BYTES = size(KIB)


@dataclass(frozen=True)
class Setting:
    """The metadata of a field that is a setting: see :func:`setting`."""

    kind: ValueType
    help: str
    live: bool
    env: bool
    flag: str | None


def setting(
    default: T, kind: ValueType, help: str, *, live: bool = False, env: bool = True, flag: str | None = ""
) -> T:
    """A field of a dataclass of settings.

    Args:
        default: its value where nothing is given.
        kind: the values that it accepts.
        help: a line for ``--help`` and the docs.
        live: whether a running router takes a new value at SIGHUP.
        env: whether a variable can give it.
        flag: its flag, where that does not follow from its key; None: it has none.
    """
    return field(default=default, metadata={"setting": Setting(kind, help, live, env, flag)})
