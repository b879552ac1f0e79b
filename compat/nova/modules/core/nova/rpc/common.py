"""Shared parts of Nova's RPC: errors, context, versions, and failures and envelopes on the wire.

Where eras differ:

* to Essex the errors derive from ``nova.exception`` (``Error``, ``NovaException``), from Folsom on
  from ``RPCException`` alone;
* to Essex a failure travels as ``[class name, text, traceback lines]`` and arrives as ``RemoteError``,
  from Folsom on as JSON text, from which an allowed class is rebuilt; either form is read at any time;
* only Havana wraps every message in the outer envelope; both forms are read at any time.
"""

from __future__ import annotations

import functools
import importlib
import itertools
import logging
from typing import TYPE_CHECKING, Any

from compat.nova import options, primitives
from rpcmq.adapters.untrusted_values import (
    check_depth,
    exception_text,
    exception_traceback,
    has_small_offsets,
    is_printable,
    short_repr,
)

from nova.rpc.client_exceptions import ClientException as ClientException
from nova.rpc.client_exceptions import ExcInfo as ExcInfo
from nova.rpc.client_exceptions import catch_client_exception as catch_client_exception
from nova.rpc.client_exceptions import client_exceptions as client_exceptions
from nova.rpc.connection_base import Connection as Connection
from nova.rpc.context import CommonRpcContext as CommonRpcContext
from nova.rpc.context import clear_store as clear_store
from nova.rpc.eras import since as since
from nova.rpc.masking import safe_log

LOG = logging.getLogger(__name__)

_safe_log = safe_log

# --- errors -------------------------------------------------------------------------------------


def _root() -> type[Exception]:
    """Return the base class of RPC errors: code written before Folsom catches them as errors of Nova."""
    if since("folsom"):
        return Exception
    try:
        errors: Any = importlib.import_module("nova.exception")
    except ImportError:
        return Exception
    found = [getattr(errors, name, None) for name in ("NovaException", "Error")]
    roots = {cls: None for cls in found if isinstance(cls, type) and issubclass(cls, Exception)}
    # A class and its own base would not go together.
    leaves = tuple(cls for cls in roots if not any(cls in other.__mro__[1:] for other in roots))
    return type("NovaError", leaves, {"__module__": __name__}) if leaves else Exception


if TYPE_CHECKING:
    _Root = Exception
else:
    _Root = _root()


class RPCException(_Root):
    """Root of the errors of RPC.

    A subclass gives its text as ``msg_fmt`` or ``message``; keyword arguments fill it in.
    """

    msg_fmt = "RPC failed."
    message = msg_fmt

    def __init__(self, message: Any = None, **kwargs: Any) -> None:
        self.kwargs = kwargs
        # Straight to the end of the chain: the constructors of nova.exception differ with the era.
        Exception.__init__(self, message or self._filled(kwargs))

    def __str__(self) -> str:
        return Exception.__str__(self)

    @classmethod
    def _filled(cls, kwargs: dict[str, Any]) -> str:
        """The text of the class, filled in; as it is where a value is missing."""
        names = ("msg_fmt", "message")
        template = next(vars(base)[name] for base in cls.__mro__ for name in names if name in vars(base))
        try:
            return str(template % kwargs)
        except (KeyError, TypeError, ValueError):
            LOG.warning("%s: no such values for its text %r: %s", cls.__name__, template, sorted(kwargs))
            return str(template)


class RemoteError(RPCException):
    """The method raised at the other end, and its exception is not rebuilt here.

    Args:
        exc_type: name of the exception's class, without its module.
        value: its text.
        traceback: its traceback, as text or lines.
    """

    msg_fmt = "Remote error: %(exc_type)s %(value)s\n%(traceback)s"
    message = msg_fmt

    def __init__(self, exc_type: Any = None, value: Any = None, traceback: Any = None) -> None:
        self.exc_type = exc_type
        self.value = value
        self.traceback = traceback
        super().__init__(exc_type=exc_type, value=value, traceback=traceback)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.exc_type, self.value, self.traceback)


class Timeout(RPCException):
    """No reply came in time.

    Args:
        info: what is known of it; the whole text if there is nothing else.
        topic: where the request went.
        method: what was called.
    """

    msg_fmt = "Timeout: no reply came from topic %(topic)s for method %(method)s (%(info)s)"
    message = "Timeout: no reply came."

    def __init__(self, info: Any = None, topic: str | None = None, method: str | None = None) -> None:
        self.info = info
        self.topic = topic
        self.method = method
        if topic is None and method is None:
            super().__init__(info or Timeout.message)
            return
        unknown = "<unknown>"
        super().__init__(info=info or unknown, topic=topic or unknown, method=method or unknown)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.info, self.topic, self.method)


class DuplicateMessageError(RPCException):
    """The consumer has had this message already."""

    msg_fmt = "Message %(msg_id)s came again and is skipped."
    message = msg_fmt


class InvalidRPCConnectionReuse(RPCException):
    """The connection was closed before."""

    msg_fmt = "The RPC connection is closed and cannot be used again."
    message = msg_fmt


class UnsupportedRpcVersion(RPCException):
    """No endpoint has this version of the interface."""

    msg_fmt = "No endpoint supports version %(version)s of the RPC interface."
    message = msg_fmt


class UnsupportedRpcEnvelopeVersion(RPCException):
    """The message is wrapped in an envelope of another major version."""

    msg_fmt = "RPC envelope version %(version)s is not supported."
    message = msg_fmt


class RpcVersionCapError(RPCException):
    """The message needs a later version than the proxy may send."""

    msg_fmt = "The RPC version cap %(version_cap)s is too low for this message."
    message = msg_fmt


# --- failures on the wire -----------------------------------------------------------------------

_REMOTE_POSTFIX = "_Remote"
# What an exception brings along is shown, so it is bounded: see rpcmq.payload.bounded_text.
_MAX_TEXT = 8 * 1024
_MAX_TRACEBACK = 32 * 1024
_MAX_CARRIED = 32
_MAX_CARRIED_CHARACTERS = 16 * 1024
_MAX_DEPTH = 100


def failure_of(exc_info: ExcInfo, log_failure: bool = True) -> Any:
    """Return the wire form of an exception, in the era in force.

    Args:
        exc_info: the exception; of a ``ClientException``, the inner one is taken and not logged.
        log_failure: write it to the log.
    """
    if isinstance(exc_info[1], ClientException):
        exc_info, log_failure = exc_info[1]._exc_info, False
    if since("folsom"):
        return serialize_remote_exception(exc_info, log_failure)
    kind, error, _ = exc_info
    lines = _lines(error)
    if log_failure:
        _log_failure(error, lines)
    return [kind.__name__, _text(error), lines]


def exception_from(conf: Any, failure: Any) -> Exception:
    """The exception that a received failure, of whichever form, stands for here."""
    if isinstance(failure, list | tuple):
        return RemoteError(*failure[:3])
    return deserialize_remote_exception(conf, failure)


def serialize_remote_exception(failure_info: ExcInfo, log_failure: bool = True) -> str:
    """The JSON text of an exception: ``class``, ``module``, ``message``, ``tb``, ``args`` and ``kwargs``."""
    kind, error, _ = failure_info
    lines = _lines(error)
    if log_failure:
        _log_failure(error, lines)
    # One that came from elsewhere goes on as what it was there.
    if kind.__name__.endswith(_REMOTE_POSTFIX):
        kind = kind.__bases__[0]
    kwargs = getattr(error, "kwargs", None)
    record: dict[str, Any] = {
        "class": kind.__name__,
        "module": _old_module_name(kind.__module__),
        "message": _text(error),
        "tb": lines,
        "args": [_carried(arg) for arg in error.args[:_MAX_CARRIED]],
        "kwargs": {},
    }
    if isinstance(kwargs, dict):
        record["kwargs"] = {key: _carried(value) for key, value in itertools.islice(kwargs.items(), _MAX_CARRIED)}
    try:
        return primitives.dumps(record)
    except (TypeError, ValueError):
        # The exception matters more than what it carries.
        record["args"] = [_as_text(arg) for arg in record["args"]]
        record["kwargs"] = {_as_text(key): _as_text(value) for key, value in record["kwargs"].items()}
        return primitives.dumps(record)


def deserialize_remote_exception(conf: Any, data: Any) -> Exception:
    """The exception that JSON text stands for.

    Its own class, turned into a subclass ``<name>_Remote`` whose text ends with the remote traceback, if
    its module is one of ``allowed_rpc_exception_modules``; ``RemoteError`` if not, or if that fails.
    """
    try:
        check_depth(data.encode() if isinstance(data, str) else b"", _MAX_DEPTH)
        failure = primitives.loads(data)
    except (TypeError, ValueError):
        failure = None
    if not isinstance(failure, dict):
        return RemoteError(None, str(data), [])
    name, lines, message = failure.get("class"), failure.get("tb") or [], failure.get("message")
    try:
        error = _rebuilt(conf, failure)
    except Exception:
        # Whatever a constructor raises: the caller is to see the remote error, not this one.
        LOG.debug("%s.%s is not rebuilt", failure.get("module"), name, exc_info=True)
        return RemoteError(name, message, lines)
    text = f"{message or ''}\n" + "\n".join(map(str, lines))
    cls: Any = type(error)
    try:
        error.__class__ = _remote_class(cls)
        error.__dict__["_remote_text"] = text
    except TypeError:
        # A builtin's class cannot be changed.
        error.args = (text, *error.args[1:])
    return error


def _rebuilt(conf: Any, failure: dict[str, Any]) -> Exception:
    """The exception made anew.

    Raises:
        Exception: its module is not allowed, there is no such class, or its constructor refuses.
    """
    module = _old_module_name(str(failure.get("module")))
    if module not in options.value("allowed_rpc_exception_modules", conf):
        raise TypeError(f"{module} is not one of allowed_rpc_exception_modules")
    cls = getattr(importlib.import_module("builtins" if module == "exceptions" else module), str(failure.get("class")))
    if not issubclass(cls, Exception):
        raise TypeError(f"{cls} is no exception")
    if issubclass(cls, StopIteration | StopAsyncIteration):
        raise TypeError(f"{cls} would end a loop of the caller in silence")
    args = tuple(failure.get("args") or ()) if since("havana") else ()
    # Python's own have no keyword arguments that Nova sent; one of them has its traceback import a module.
    kwargs = {} if module == "exceptions" else failure.get("kwargs") or {}
    if issubclass(cls, SyntaxError) and not has_small_offsets(args):
        args = args[:1]
    error: Exception = cls(*args, **kwargs)
    return error


@functools.lru_cache(maxsize=256)
def _remote_class(cls: Any) -> type[Exception]:
    """The subclass of ``cls`` for exceptions that were raised elsewhere."""

    def text(self: Any) -> str:
        return str(self._remote_text)

    members = {"__str__": text, "__unicode__": text, "__module__": cls.__module__}
    return type(cls.__name__ + _REMOTE_POSTFIX, (cls,), members)


def _old_module_name(module: str) -> str:
    """Peers and allow-lists know the module of the built-in exceptions as ``exceptions``."""
    return "exceptions" if module == "builtins" else module


def _log_failure(error: BaseException, lines: list[str]) -> None:
    LOG.error("The caller gets the exception: %s", _text(error))
    LOG.error("%s", "".join(lines))


def _lines(error: BaseException) -> list[str]:
    return exception_traceback(error, _MAX_TRACEBACK).splitlines(keepends=True)


def _text(error: BaseException) -> str:
    return exception_text(error, _MAX_TEXT)


def _as_text(value: Any) -> str:
    """``str()`` of a value, also of one whose ``__str__`` fails or never ends."""
    try:
        return str(value)[:_MAX_TEXT] if is_printable(value) else short_repr(value, _MAX_TEXT)
    except Exception:
        return f"<{type(value).__name__} without text>"


def _carried(value: Any) -> Any:
    return value if is_printable(value, _MAX_CARRIED_CHARACTERS) else short_repr(value, _MAX_TEXT)


# --- envelope -----------------------------------------------------------------------------------

_VERSION_KEY = "oslo.version"
_MESSAGE_KEY = "oslo.message"
_RPC_ENVELOPE_VERSION = "2.0"
_SEND_RPC_ENVELOPE = False
"""Set by a program of Grizzly that wants every message in an envelope."""


def version_is_compatible(imp_version: str, version: str) -> bool:
    """Return whether what implements ``imp_version`` can serve a request for ``version``.

    The major numbers must agree; minor number and revision asked for must not be later than those there.
    """
    there, wanted = _numbers(imp_version), _numbers(version)
    return there[0] == wanted[0] and wanted[1:] <= there[1:]


def _numbers(version: str) -> tuple[int, int, int]:
    major, minor, revision = [*map(int, str(version).split(".")), 0, 0][:3]
    return major, minor, revision


def serialize_msg(raw_msg: Any, force_envelope: bool = False) -> Any:
    """``raw_msg`` in the outer envelope, if the era in force, the program or the caller wants one."""
    if not (force_envelope or _SEND_RPC_ENVELOPE or since("havana")):
        return raw_msg
    return {_VERSION_KEY: _RPC_ENVELOPE_VERSION, _MESSAGE_KEY: primitives.dumps(raw_msg)}


def deserialize_msg(msg: Any) -> Any:
    """The message of an envelope; anything else as it is.

    Raises:
        UnsupportedRpcEnvelopeVersion: the envelope is one of another major version.
        ValueError: what is in it is no JSON, or is nested too deeply.
    """
    if not (isinstance(msg, dict) and _VERSION_KEY in msg and _MESSAGE_KEY in msg):
        return msg
    try:
        known = version_is_compatible(_RPC_ENVELOPE_VERSION, msg[_VERSION_KEY])
    except ValueError:
        known = False
    if not known:
        raise UnsupportedRpcEnvelopeVersion(version=msg[_VERSION_KEY])
    return primitives.loads(msg[_MESSAGE_KEY])
