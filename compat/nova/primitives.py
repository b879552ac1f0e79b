"""Values made of what JSON has: how the shim checks, converts and names what cannot be sent.

Legacy services passed whatever their broker's JSON took, later also datetimes, rows of a database and
any iterable. ``dumps`` takes all of these and nothing silently: what cannot be converted raises with
its path, such as ``args.server[2]``. Where nothing needs converting, all the work is done in C.

Differences from the Python 2 that the services were written on: bytes stand for its ``str`` and become
text; a ``str`` has ``__iter__`` now and is no iterable of strings here.
"""

from __future__ import annotations

import inspect
import itertools
import json
import sys
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

from rpcmq.adapters.untrusted_values import DEFAULT_MAX_DEPTH, check_depth, short_repr

__all__ = ["check", "dumps", "loads", "strtime", "to_primitive"]

PERFECT_TIME_FORMAT = "%Y-%m-%dT%H:%M:%S.%f"

_TOO_DEEP = "nested too deeply"
_SCALARS = (str, int, float, type(None))
# What prints well and contains nothing: Nova wrote it as text.
_AS_TEXT = (
    inspect.ismodule,
    inspect.isclass,
    inspect.ismethod,
    inspect.isfunction,
    inspect.istraceback,
    inspect.isframe,
    inspect.iscode,
    inspect.isbuiltin,
    inspect.isabstract,
)


def strtime(at: datetime) -> str:
    """``at`` as text, always with microseconds and with the year in four digits."""
    text = at.strftime(PERFECT_TIME_FORMAT)
    return text.rjust(26, "0")


def dumps(value: Any) -> str:
    """``value`` as JSON text.

    Raises:
        TypeError: some value has no JSON form; the text says which one and where.
        ValueError: it contains itself, or is nested too deeply to be written.
    """
    try:
        return "".join(_encode(value, 0))
    except (TypeError, RecursionError):
        return _Conversion(value).encode()


def loads(text: str | bytes | memoryview, max_depth: int | None = DEFAULT_MAX_DEPTH) -> Any:
    """The value that JSON ``text`` stands for.

    Args:
        max_depth: levels of arrays and objects; None, for text of one's own only: as many as Python's stack takes.

    Raises:
        ValueError: it is none, or nested more deeply.
    """
    text = text if isinstance(text, str) else str(text, "utf-8")
    if max_depth is not None and text.count("[") + text.count("{") > max_depth:
        check_depth(text.encode(), max_depth)
    try:
        value, end = _raw_decode(text)
    except ValueError:
        end = None
    # What is around a value costs as much to look for as a small value to read.
    return value if end == len(text) else _decode(text)


def check(value: Any) -> None:
    """Refuse what JSON itself has no form for: the rule before Folsom, when nothing was converted.

    Raises:
        TypeError: names the value and its path.
        ValueError: it contains itself, or is nested too deeply to be written.
    """
    try:
        _PLAIN.encode(value)
    except TypeError as error:
        raise _refusal(value, error, _refuse) from None
    except RecursionError:
        raise ValueError(f"cannot be sent: {_TOO_DEEP}") from None


def to_primitive(
    value: Any,
    convert_instances: bool = False,
    level: int = 0,
    max_depth: int = 3,
    time_text: Callable[[datetime], str] = strtime,
) -> Any:
    """Convert ``value`` to dicts, lists and scalars; values without such a form are returned unchanged.

    Args:
        convert_instances: take an object's ``__dict__`` where nothing else fits.
        level: objects already gone through to get here.
        max_depth: objects within objects that are gone through; ``'?'`` stands for one further down.
        time_text: writes a datetime.
    """
    if isinstance(value, _SCALARS):
        return value
    if level > max_depth:
        return "?"

    def inner(each: Any, deeper: int = 0) -> Any:
        return to_primitive(each, convert_instances, level + deeper, max_depth, time_text)

    if isinstance(value, dict):
        return {key: inner(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [inner(each) for each in value]
    try:
        form = _form(value, time_text)
    except TypeError:
        if not (convert_instances and hasattr(value, "__dict__")):
            return value
        form = vars(value)
    return inner(form, deeper=1) if isinstance(form, dict) else inner(form)


def _form(value: Any, time_text: Callable[[datetime], str] = strtime) -> Any:
    """Return the plain form of ``value``, one level deep: text, a list or a dict.

    Raises:
        TypeError: nothing does.
    """
    if isinstance(value, bytes | bytearray):
        try:
            return value.decode()
        except UnicodeDecodeError as error:
            raise TypeError(f"bytes that are not UTF-8 ({error})") from None
    if isinstance(value, datetime):
        return time_text(value)
    # Only if the program has loaded these two libraries.
    if (xmlrpc := sys.modules.get("xmlrpc.client")) and isinstance(value, xmlrpc.DateTime):
        return time_text(datetime(*value.timetuple()[:6]))
    if (netaddr := sys.modules.get("netaddr")) and isinstance(value, netaddr.IPAddress):
        return str(value)
    # Endless, and therefore no list.
    if isinstance(value, itertools.count | itertools.cycle | itertools.repeat) or any(test(value) for test in _AS_TEXT):
        return str(value)
    for name in ("iteritems", "items"):
        if callable(getattr(value, name, None)):
            return dict(getattr(value, name)())
    if hasattr(value, "__iter__"):
        return list(value)
    raise TypeError(f"{type(value).__name__} {short_repr(value)}")


class _Conversion:
    """The conversion of one value to text. Iterators are read once; their items are kept for error paths."""

    def __init__(self, value: Any) -> None:
        self._value = value
        self._forms: dict[int, tuple[Any, Any]] = {}

    def encode(self) -> str:
        try:
            return json.dumps(self._value, default=self._convert)
        except (TypeError, ValueError) as error:
            raise _refusal(self._value, error, self._convert) from None
        except RecursionError:
            raise ValueError(f"cannot be sent: {_TOO_DEEP}") from None

    def _convert(self, value: Any) -> Any:
        if not isinstance(value, Iterator):
            return _form(value)
        # The value is kept beside its form, so that its id stays its own.
        if id(value) not in self._forms:
            self._forms[id(value)] = (value, _form(value))
        return self._forms[id(value)][1]


def _refuse(value: Any) -> Any:
    raise TypeError(f"{type(value).__name__} {short_repr(value)}")


_PLAIN = json.JSONEncoder()
_decode, _raw_decode = json.JSONDecoder().decode, json.JSONDecoder().raw_decode


def _encode_slowly(value: Any, level: int) -> tuple[str, ...]:
    return (_PLAIN.encode(value),)


def _unknown(value: Any) -> Any:
    raise TypeError


def _encoder() -> Callable[[Any, int], tuple[str, ...]]:
    """Build once the encoder that ``JSONEncoder.encode`` builds for each value: that is a third of its time.

    It does not look for values that contain themselves; they end in a RecursionError.
    """
    make = getattr(json.encoder, "c_make_encoder", None)
    if make is None:
        return _encode_slowly
    encoder: Callable[[Any, int], tuple[str, ...]] = make(
        None, _unknown, json.encoder.encode_basestring_ascii, None, ": ", ", ", False, False, True
    )
    return encoder


_encode = _encoder()


def _refusal(value: Any, error: Exception, convert: Callable[[Any], Any]) -> Exception:
    """``error`` of the encoder, made to name the first value that cannot be written."""
    try:
        for path, reason in _faults(value, convert, "", []):
            return type(error)(f"{path or 'the value'} cannot be sent: {reason}")
    except RecursionError:
        return ValueError(f"cannot be sent: {_TOO_DEEP}")
    return error


def _faults(value: Any, convert: Callable[[Any], Any], path: str, above: list[int]) -> Iterator[tuple[str, str]]:
    """Iterate over (path, reason) of the parts of ``value`` that cannot be written, depth first."""
    if isinstance(value, _SCALARS):
        return
    if id(value) in above:
        yield path, "it contains itself"
        return
    inside = [*above, id(value)]
    if isinstance(value, dict):
        for key, each in value.items():
            if not isinstance(key, _SCALARS):
                yield path, f"its key {short_repr(key)} is a {type(key).__name__}, not text"
            yield from _faults(each, convert, f"{path}.{key}" if path else str(key), inside)
    elif isinstance(value, list | tuple):
        for index, each in enumerate(value):
            yield from _faults(each, convert, f"{path}[{index}]", inside)
    else:
        try:
            form = convert(value)
        except TypeError as error:
            yield path, str(error)
        else:
            yield from _faults(form, convert, path, inside)
