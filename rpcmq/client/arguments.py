"""Check a caller's arguments and convert them for the wire."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from rpcmq.client.request import current_request
from rpcmq.errors import UsageError
from rpcmq.payload.bounded_text import short_repr
from rpcmq.wire.bodies import MAX_GROUP

__all__ = [
    "ONLY_ROUTED",
    "LegacyMessage",
    "check_group",
    "check_progress",
    "check_seconds",
    "context_dict",
    "request_body",
    "trace_context",
]

#: Text of the refusal of a direct call with ``sign_of_life``.
ONLY_ROUTED = "sign_of_life is watched for calls through the router; leave out direct or sign_of_life"
#: Keys of a message that are not passed on, those that it may not have, and those of Nova's messages.
_OWN = frozenset({"method", "args"})
_RESERVED = frozenset({"context", "keepalive"})
_LEGACY = frozenset({"namespace", "version"})
#: Bound of times (seconds): the wire carries milliseconds in 32 bits.
_MAX_SECONDS = 4_000_000
#: https://www.w3.org/TR/trace-context/, version 00
_TRACEPARENT = re.compile("[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")


class LegacyMessage(dict[str, Any]):
    """A message of another interface, given to a verb as it is: it may have any keys, which travel beside its args."""

    __slots__ = ()


def request_body(ctx: Any, msg: Mapping[str, Any]) -> tuple[bytes, dict[str, Any]]:
    """Return the method's name as bytes, and the payload.

    Raises:
        UsageError: ``msg`` or ``ctx`` is not of the form that a call takes.
    """
    try:
        method = msg["method"]
        args = args_given = msg.get("args")
    except (TypeError, KeyError, AttributeError):
        raise UsageError(f'msg must be {{"method": name, "args": {{...}}}}, not {short_repr(msg, 200)}') from None
    try:
        is_name = isinstance(method, str) and 0 < len(name := method.encode()) <= 255
    except UnicodeEncodeError:
        is_name = False
    if not is_name:
        raise UsageError(f"method must be a name of 1 to 255 bytes, not {short_repr(method)}")
    if type(args) is not dict:
        if args is not None and not isinstance(args, Mapping):
            raise UsageError(
                f"args must be a mapping of names to values, not {type(args).__name__}: {short_repr(args)}"
            )
        args = dict(args or {})
    body = {"context": context_dict(ctx), "args": args}
    if len(msg) != (1 if args_given is None else 2):
        body.update(_further(msg))
    return name, body


def _further(msg: Mapping[Any, Any]) -> dict[Any, Any]:
    """The keys of ``msg`` that are not rpcmq's own.

    Raises:
        UsageError: it has one that is reserved, or that nobody knows: one that is misspelt would be lost.
    """
    found = {key: value for key, value in msg.items() if key not in _OWN}
    for key in found:
        if key in _RESERVED:
            raise UsageError(f"msg has a key {short_repr(key)}, which rpcmq uses itself; choose another")
        known = key in _LEGACY or (isinstance(key, str) and key.startswith("_")) or isinstance(msg, LegacyMessage)
        if not known:
            raise UsageError(
                f"msg has an unknown key {short_repr(key)}; its keys are 'method' and 'args' (and from legacy programs "
                "'namespace', 'version' and those that begin with '_'). Arguments of the method go into 'args'"
            )
    return found


def trace_context(traceparent: object) -> bytes:
    """The trace context to send: the one given, else that of the request being handled.

    Raises:
        UsageError: it is not of the form that W3C Trace Context gives.
    """
    if traceparent is None:
        request = current_request()
        return b"" if request is None else request.trace
    if not isinstance(traceparent, str) or not _TRACEPARENT.fullmatch(traceparent):
        raise UsageError(f"traceparent {short_repr(traceparent)} is not of the form 00-<32 hex>-<16 hex>-<2 hex>")
    return traceparent.encode()


def context_dict(ctx: Any) -> Any:
    """A request context as it travels.

    Raises:
        UsageError: it is not None, a mapping, or an object with ``to_dict()``.
    """
    if ctx is None or type(ctx) is dict:
        return ctx
    to_dict = getattr(ctx, "to_dict", None)
    if callable(to_dict) and not isinstance(ctx, type):
        made = to_dict()
        if not isinstance(made, Mapping):
            raise UsageError(f"to_dict() of ctx ({type(ctx).__name__}) must give a mapping, not {type(made).__name__}")
        return dict(made)
    if isinstance(ctx, Mapping):
        return dict(ctx)
    raise UsageError(f"ctx must be None, a mapping or an object with to_dict(), not {type(ctx).__name__}")


def check_group(group: object) -> None:
    """Refuse a name that no group of a topic can have; empty: none.

    Raises:
        UsageError: it is no text, is too long, or has characters that cannot be printed.
    """
    if not isinstance(group, str) or len(group) > MAX_GROUP or not group.isprintable():
        raise UsageError(f"group must be a printable str of at most {MAX_GROUP} characters, not {short_repr(group)}")


def check_progress(on_progress: object) -> None:
    """Refuse an ``on_progress`` that reports could not be given to.

    Raises:
        UsageError: it cannot be called.
    """
    if not callable(on_progress):
        raise UsageError(f"on_progress must be callable, not {short_repr(on_progress)}")


def check_seconds(name: str, value: object) -> float:
    """``value`` as seconds.

    Raises:
        UsageError: it is no positive number, or beyond what the wire can carry.
    """
    if type(value) is float and 0.0 < value < _MAX_SECONDS:
        return value
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < _MAX_SECONDS:
        text = f"{name} must be a positive number of seconds below {_MAX_SECONDS:,}, not {short_repr(value)}"
        raise UsageError(text)
    return float(value)
