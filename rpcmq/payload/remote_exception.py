"""Remote exceptions: an exception as a record of plain values, and back.

The record
----------
A mapping that typed JSON (and any other format) carries; all members but ``type`` may be absent::

    type         "module:Name" of the exception's class
    text         str() of the exception
    args         its arguments; one that typed JSON does not carry is replaced by its repr()
    attributes   its instance attributes, as far as typed JSON carries them
    traceback    the formatted traceback
    host         identity of the process that raised it
    causes       [[type, text], ...]: what it was raised from, nearest first

Only a class in the receiver's registry is rebuilt, and only if its constructor takes the args;
otherwise the receiver gets ``RemoteError``. Either way the exception has ``remote_traceback``,
``remote_host`` and ``remote_causes``, and a printed traceback shows the remote one.

Sizes are bounded, so that an exception that drags a large object along can still be reported.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping
from typing import Any, Final

from rpcmq.errors import RemoteError
from rpcmq.payload.exception_registry import ExceptionRegistry, plain_args, wire_name
from rpcmq.payload.paths import brief

__all__ = ["UNDECODABLE", "brief_record", "describe_exception", "rebuild_exception", "undecodable"]

UNDECODABLE: Final = "unknown"
"""The class that stands for an exception that could not be decoded."""

MAX_TEXT: Final = 8 * 1024
"""Longest text of an exception, in characters."""

MAX_TRACEBACK: Final = 32 * 1024
"""Longest traceback, in characters; the middle is what is cut out."""

_MAX_CAUSES = 8
_MAX_ARGS = 32
_MAX_ATTRIBUTES = 32
_MAX_REPR = 1000
_OWN_ATTRIBUTES = frozenset({"remote_traceback", "remote_host", "remote_causes"})

Carries = Callable[[Any], bool]
"""Whether a value can be carried as it is."""


def describe_exception(exc: BaseException, host: str, carries: Carries) -> dict[str, Any]:
    """The record of ``exc``.

    Args:
        exc: the exception; its ``str()``, ``repr()`` and attributes may be as broken as they like.
        host: identity of this process.
        carries: tells which args and attributes to take along as they are.
    """
    return {
        "type": _type_name(exc),
        "text": _cut(_text(exc), MAX_TEXT),
        "args": [arg if carries(arg) else brief(arg, _MAX_REPR) for arg in plain_args(exc)[:_MAX_ARGS]],
        "attributes": _attributes(exc, carries),
        "traceback": _cut(_traceback(exc), MAX_TRACEBACK),
        "host": host,
        "causes": _causes(exc),
    }


def brief_record(exc: BaseException, host: str) -> dict[str, Any]:
    """A record of at most some hundred bytes, for where the full one cannot be sent."""
    return {"type": _type_name(exc)[:100], "text": _cut(_text(exc), 200), "host": host[:100]}


def rebuild_exception(record: object, registry: ExceptionRegistry) -> Exception:
    """The exception that ``record`` describes, as its own class or as ``RemoteError``."""
    if not isinstance(record, dict) or not isinstance(record.get("type"), str):
        return undecodable(f"a {type(record).__name__} is not the record of an exception")
    name: str = record["type"]
    args = tuple(_list(record, "args"))
    remote_traceback, host = _string(record, "traceback"), _string(record, "host")
    causes = tuple(
        (str(cause[0]), str(cause[1]))
        for cause in _list(record, "causes")
        if isinstance(cause, list) and len(cause) == 2
    )
    remote = RemoteError(_displayed(name), _string(record, "text"), traceback=remote_traceback, host=host, args=args)
    if remote_traceback:
        remote.add_note(f"Remote traceback (on {host or 'unknown host'}):\n{remote_traceback}")
    marks = {
        "remote_traceback": remote_traceback,
        "remote_host": host,
        "remote_causes": causes,
    }
    vars(remote).update(marks)
    rebuilt = registry.rebuild(name, args)
    if rebuilt is None:
        return remote
    try:
        # Into __dict__, past whatever setters the class has.
        vars(rebuilt).update(_named(record.get("attributes")) | marks)
    except Exception:
        return remote
    rebuilt.__cause__ = remote
    return rebuilt


def undecodable(reason: str) -> RemoteError:
    """What a caller gets when an exception was received but cannot be read."""
    error = RemoteError(UNDECODABLE, f"the remote method raised, but its exception cannot be decoded: {reason}")
    vars(error).update(remote_traceback="", remote_host="", remote_causes=())
    return error


def _displayed(name: str) -> str:
    """``"module:Name"`` as Python's own tracebacks show it."""
    return name.removeprefix("builtins:").replace(":", ".")


def _string(record: Mapping[str, Any], key: str) -> str:
    value = record.get(key)
    return value if isinstance(value, str) else ""


def _named(attributes: object) -> dict[str, Any]:
    if not isinstance(attributes, dict):
        return {}
    return {key: value for key, value in attributes.items() if type(key) is str}


def _list(record: Mapping[str, Any], key: str) -> list[Any]:
    value = record.get(key)
    return value if isinstance(value, list) else []


def _type_name(exc: BaseException) -> str:
    return wire_name(type(exc))


def _text(exc: BaseException) -> str:
    try:
        return str(exc)
    except Exception as error:
        return f"(str() of the exception raised {type(error).__qualname__})"


def _traceback(exc: BaseException) -> str:
    try:
        return "".join(traceback.format_exception(exc))
    except Exception as error:
        return f"(the traceback cannot be formatted: {type(error).__qualname__})\n"


def _cut(text: str, limit: int) -> str:
    """``text``, or its first quarter and its end where it is longer than ``limit``."""
    if len(text) <= limit:
        return text
    gap = "\n... (cut) ...\n"
    head = limit // 4
    return text[:head] + gap + text[len(text) - (limit - head - len(gap)) :]


def _attributes(exc: BaseException, carries: Carries) -> dict[str, Any]:
    taken: dict[str, Any] = {}
    for name, value in vars(exc).items():
        if len(taken) == _MAX_ATTRIBUTES:
            break
        if name not in _OWN_ATTRIBUTES and type(name) is str and carries(value):
            taken[name] = value
    return taken


def _causes(exc: BaseException) -> list[list[str]]:
    causes: list[list[str]] = []
    seen = {id(exc)}
    current = _raised_from(exc)
    while current is not None and id(current) not in seen and len(causes) < _MAX_CAUSES:
        seen.add(id(current))
        causes.append([_type_name(current), _cut(_text(current), MAX_TEXT // 8)])
        current = _raised_from(current)
    return causes


def _raised_from(exc: BaseException) -> BaseException | None:
    if exc.__cause__ is not None or exc.__suppress_context__:
        return exc.__cause__
    return exc.__context__
