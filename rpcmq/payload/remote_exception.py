"""Remote exceptions: an exception as a record of plain values, and back.

The record
----------
A mapping in typed JSON, whatever the format of the call: so none of its values is shared. All members
but ``type`` may be absent::

    type         "module:Name" of the exception's class
    text         str() of the exception
    args         its arguments; one that typed JSON does not carry is replaced by its repr()
    attributes   its instance attributes, as far as typed JSON carries them
    left_out     names of attributes that it does not carry
    traceback    the formatted traceback
    host         identity of the process that raised it
    causes       [[type, text], ...]: what it was raised from, nearest first
    hops         [[topic, method, server, type, text, details], ...]: if it is the end of a call that the
                 method made itself: that call, and those that were made for it, outermost first
    ran          whether the method was run; absent: not known

Only a class in the receiver's registry or allow-list is rebuilt: from its args and attributes, without its constructor;
where an attribute was left out by its constructor, if that takes the args. Otherwise the receiver gets ``RemoteError``,
whose ``reason`` says why and what to write. Either way the exception has ``remote_traceback``,
``remote_host``, ``remote_causes`` and ``remote_hops``, and a printed traceback shows the remote one.

What says how a call ended (``CallError`` and its kin) is never rebuilt: the receiver would take it for the end of
its own call. It gets ``NestedCallError``. Nor is what says that the receiver itself has made a mistake
(``UsageError``): it gets ``RemoteError``.

Sizes are bounded at both ends, so that an exception that drags a large object along can still be reported, and so that
a record from wherever makes one that is printed in no time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import islice
from typing import Any, Final, TypeVar

from rpcmq.errors import (
    CallError,
    Hop,
    IdentityTaken,
    NestedCallError,
    NotInstalled,
    PayloadRefused,
    ProtocolError,
    RemoteError,
    RouterUnreachable,
    UnknownMethod,
    UsageError,
)
from rpcmq.payload.bounded_text import (
    cut,
    exception_text,
    exception_traceback,
    raised_from,
    short_repr,
)
from rpcmq.payload.exception_registry import (
    CALLED,
    NOT_RUN,
    NotRebuilt,
    exception_state,
    plain_args,
    rebuild,
    set_state,
    wire_name,
)
from rpcmq.payload.printed_size import is_printable

__all__ = [
    "UNDECODABLE",
    "add_hop",
    "brief_record",
    "describe_exception",
    "mark_not_run",
    "rebuild_exception",
    "undecodable",
]

UNDECODABLE: Final = "unknown"
"""The class that stands for an exception that could not be decoded."""

MAX_TEXT: Final = 8 * 1024
"""Longest text of an exception, in characters."""

MAX_TRACEBACK: Final = 32 * 1024
"""Longest traceback, in characters; its middle is cut out."""

_MAX_CAUSES = 8
_MAX_ARGS = 32
_MAX_ATTRIBUTES = 32
_MAX_REPR = 1000
_MAX_HOPS = 8
_MAX_NAME = 300
_MAX_DETAILS = 16
_MAX_HOST = 1000
_MAX_LOOKED_AT = 256
_MAX_CARRIED = 128 * 1024

#: Errors that end a call; in a FAULT they never concern the receiver's own call.
_CALL_ENDS = (CallError, RouterUnreachable, IdentityTaken, NestedCallError)
#: Errors with which a service refuses a request; a method that ran may raise them, too.
_REFUSALS = (UnknownMethod, PayloadRefused)
#: Errors that blame their receiver; in a FAULT the method was at fault.
_FAULTS_OF_THE_METHOD = (UsageError, ProtocolError, NotInstalled)

MAX_RECORD: Final = 2 * 1024 * 1024
"""Largest record that is read, in bytes; none that is written is larger."""

CarriedSize = Callable[[Any], int]
"""Returns the encoded size of a value (bytes); 0 if it cannot be carried as it is."""


class _SizeBudget:
    """Accepts values within a byte budget."""

    def __init__(self, size: CarriedSize) -> None:
        self._size = size
        self._left = _MAX_CARRIED

    def takes(self, value: object) -> bool:
        """Accept ``value`` if it fits, using up the budget; return whether it was accepted."""
        size = self._size(value)
        if not 0 < size <= self._left:
            return False
        self._left -= size
        return True


def describe_exception(exc: BaseException, host: str, carried_size: CarriedSize) -> dict[str, Any]:
    """The record of ``exc``.

    Args:
        exc: the exception; its ``str()``, ``repr()`` and attributes may be as broken as they like.
        host: identity of this process.
        carried_size: tells which args and attributes to take along as they are.
    """
    carried = _SizeBudget(carried_size)
    attributes, left_out = _attributes(exc, carried)
    args = plain_args(exc)[:_MAX_ARGS]
    ran = NOT_RUN not in vars(exc)
    return {
        # Which kind of refusal it is, is in its text.
        "type": wire_name(PayloadRefused) if not ran and isinstance(exc, PayloadRefused) else _type_name(exc),
        "ran": ran,
        "text": exception_text(exc, MAX_TEXT),
        "args": [arg if carried.takes(arg) else short_repr(arg, _MAX_REPR) for arg in args],
        "attributes": attributes,
        "left_out": left_out,
        "traceback": exception_traceback(exc, MAX_TRACEBACK),
        "host": host[:_MAX_HOST],
        "causes": _causes(exc),
        "hops": [list(hop) for hop in _hops_of(exc)],
    }


def brief_record(exc: BaseException, host: str) -> dict[str, Any]:
    """A record of at most some hundred bytes, for where the full one cannot be sent."""
    return {"type": _type_name(exc)[:100], "text": exception_text(exc, 200), "host": host[:100]}


FindClass = Callable[[str], type[Exception] | None]
"""The class that may be rebuilt under a name; None: there is none."""


def rebuild_exception(record: object, find_class: FindClass) -> Exception:
    """The exception that ``record`` describes, as its own class or as ``RemoteError``.

    Args:
        record: decoded, of at most some megabyte; nothing is believed about it but that its values share nothing.
        find_class: the classes that may be rebuilt.
    """
    if not isinstance(record, dict) or not isinstance(record.get("type"), str):
        return undecodable(f"a {type(record).__name__} is not the record of an exception")
    name = _string(record, "type", _MAX_NAME)
    args = tuple(arg if is_printable(arg) else short_repr(arg, _MAX_REPR) for arg in _list(record, "args")[:_MAX_ARGS])
    remote_traceback, host = _string(record, "traceback", MAX_TRACEBACK), _string(record, "host", _MAX_HOST)
    causes = tuple(
        (cause[0][:_MAX_NAME], cut(cause[1], MAX_TEXT // 8))
        for cause in _list(record, "causes")[:_MAX_CAUSES]
        if type(cause) is list and len(cause) == 2 and type(cause[0]) is type(cause[1]) is str
    )
    hops = _hops(record)
    known = find_class(name)
    cls = known or Exception
    text, kind = _string(record, "text", MAX_TEXT), RemoteError
    refusal = issubclass(cls, _REFUSALS)
    if issubclass(cls, _CALL_ENDS) or (hops and refusal):
        kind = NestedCallError
        if issubclass(cls, NestedCallError) and hops:
            name, text = hops[-1].error, hops[-1].text
    remote = kind(_displayed(name), text, traceback=remote_traceback, host=host, args=args)
    if remote_traceback:
        remote.add_note(f"Remote traceback (on {host or 'unknown host'}):\n{remote_traceback}")
    marks = {
        "remote_traceback": remote_traceback,
        "remote_host": host,
        "remote_causes": causes,
        "remote_hops": hops,
    }
    vars(remote).update(marks)
    of_the_method = issubclass(cls, _FAULTS_OF_THE_METHOD) or (refusal and record.get("ran") is True)
    if kind is NestedCallError or of_the_method:
        return remote
    try:
        if known is None:
            raise NotRebuilt(_not_known(name))
        rebuilt = _rebuilt(known, args, record)
        vars(rebuilt).update(marks)
    except Exception as error:
        why = error if isinstance(error, NotRebuilt) else short_repr(error)
        remote.reason = f"{_displayed(name)} arrives as RemoteError: {why}"
        remote.add_note(f"({remote.reason})")
        return remote
    rebuilt.__cause__ = remote
    return rebuilt


def _rebuilt(cls: type[Exception], args: tuple[Any, ...], record: Mapping[str, Any]) -> Exception:
    attributes = _named(record.get("attributes"))
    left_out = [name[:_MAX_NAME] for name in _list(record, "left_out")[:_MAX_ATTRIBUTES] if type(name) is str]
    if type(record.get("attributes")) is dict and not left_out:
        return rebuild(cls, args, attributes)
    try:
        made = rebuild(cls, args)
        set_state(made, attributes)
    except NotRebuilt as refusal:
        lost = f"; of its attributes {', '.join(left_out)[:500]} cannot be carried in typed JSON" if left_out else ""
        hint = "keep plain values in its attributes, or let its constructor take its args"
        raise NotRebuilt(f"{refusal}{lost}; {hint}") from None
    return made


def _not_known(name: str) -> str:
    cls = name.partition(":")[2]
    if name in ("builtins:ExceptionGroup", "builtins:BaseExceptionGroup"):
        return "groups of exceptions are not carried; what is in it is in the traceback"
    if name.startswith("builtins:"):
        return "raised in another process it would steer that"
    if "<locals>" in name:
        return "it is defined in a function, where no other process can name it; define it in a module"
    return (
        f"this process does not know it; write rpcmq.allow({cls}) here, in the process that calls, "
        f"or set RPCMQ_ALLOW={name} in its environment"
    )


E = TypeVar("E", bound=Exception)


def mark_not_run(error: E) -> E:
    """Mark ``error`` as raised before the method was run, and return it."""
    vars(error)[NOT_RUN] = True
    return error


def undecodable(reason: str) -> RemoteError:
    """Build the error for a received exception that cannot be read."""
    error = RemoteError(UNDECODABLE, f"the remote method raised, but its exception cannot be decoded: {reason}")
    vars(error).update(remote_traceback="", remote_host="", remote_causes=(), remote_hops=())
    return error


def add_hop(error: BaseException, topic: str, method: str) -> None:
    """Record on ``error`` that it ended the call of ``method`` on ``topic``.

    Where that leaves a method that made the call, the caller of the method is told.
    """
    noted = vars(error)
    hops: tuple[Hop, ...] | None = noted.get("remote_hops")
    if hops is None:
        noted[CALLED] = topic, method
        return
    kind, text = _type_and_text(error)
    noted["remote_hops"] = Hop(topic, method, noted["remote_host"], kind, "" if hops else text, {}), *hops


def _type_and_text(error: BaseException) -> tuple[str, str]:
    if isinstance(error, RemoteError):
        return error.exc_type, error.value
    return _displayed(_type_name(error)), exception_text(error, MAX_TEXT // 8)


def _hops_of(exc: BaseException) -> tuple[Hop, ...]:
    """Return the calls made by the method, if ``exc`` ended one of them."""
    noted = vars(exc)
    hops: tuple[Hop, ...] = noted.get("remote_hops", ())
    if hops:
        return hops if len(hops) <= _MAX_HOPS else (*hops[: _MAX_HOPS - 1], hops[-1])
    if not isinstance(exc, _CALL_ENDS):
        return ()
    known = getattr(exc, "details", {})
    details = {key: value for key, value in known.items() if type(key) is str and _is_short(value)}
    topic, method = noted.get(CALLED) or (details.get("topic", ""), details.get("method", ""))
    kind, text = _type_and_text(exc)
    return (Hop(str(topic), str(method), str(details.get("server", "")), kind, text, details),)


def _is_short(value: object) -> bool:
    return value is None or type(value) in (bool, int, float) or (type(value) is str and len(value) <= _MAX_NAME)


def _hops(record: Mapping[str, Any]) -> tuple[Hop, ...]:
    """Return the hops of a record, as far as they are well-formed."""
    hops = []
    for hop in _list(record, "hops")[: 2 * _MAX_HOPS]:
        if type(hop) is not list or len(hop) != 6 or type(hop[5]) is not dict:
            continue
        if not all(type(part) is str for part in hop[:5]):
            continue
        topic, method, server, kind = (part[:_MAX_NAME] for part in hop[:4])
        details = {key: value for key, value in [*hop[5].items()][:_MAX_DETAILS] if _is_short(value)}
        hops.append(Hop(topic, method, server, kind, cut(hop[4], MAX_TEXT // 8), details))
    return tuple(hops)


def _displayed(name: str) -> str:
    """``"module:Name"`` as Python's own tracebacks show it."""
    return name.removeprefix("builtins:").replace(":", ".")


def _string(record: Mapping[str, Any], key: str, limit: int) -> str:
    value = record.get(key)
    return cut(value, limit) if type(value) is str else ""


def _named(attributes: object) -> dict[str, Any]:
    """The attributes to set, as far as they can be printed."""
    if not isinstance(attributes, dict):
        return {}
    return {
        key: value
        for key, value in islice(attributes.items(), _MAX_ATTRIBUTES)
        if type(key) is str and len(key) <= _MAX_NAME and is_printable(value)
    }


def _list(record: Mapping[str, Any], key: str) -> list[Any]:
    value = record.get(key)
    return value if isinstance(value, list) else []


def _type_name(exc: BaseException) -> str:
    return wire_name(type(exc))[:_MAX_NAME]


def _attributes(exc: BaseException, carried: _SizeBudget) -> tuple[dict[str, Any], list[str]]:
    """The attributes that are carried, and the names of others."""
    taken: dict[str, Any] = {}
    left_out: list[str] = []
    for name, value in islice(exception_state(exc).items(), _MAX_LOOKED_AT):
        if type(name) is not str or len(name) > _MAX_NAME:
            continue
        if len(taken) < _MAX_ATTRIBUTES and carried.takes(value):
            taken[name] = value
        elif len(left_out) < _MAX_ATTRIBUTES:
            left_out.append(name)
    return taken, left_out


def _causes(exc: BaseException) -> list[list[str]]:
    causes: list[list[str]] = []
    seen = {id(exc)}
    current = raised_from(exc)
    while current is not None and id(current) not in seen and len(causes) < _MAX_CAUSES:
        seen.add(id(current))
        causes.append([_type_name(current), exception_text(current, MAX_TEXT // 8)])
        current = raised_from(current)
    return causes
