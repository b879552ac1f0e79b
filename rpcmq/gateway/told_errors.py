"""Errors as browsers are told of them: an object with ``type``, ``text``, and what else there is to say."""

from __future__ import annotations

from typing import Any

from rpcmq.errors import CallError, NestedCallError, RemoteError, RpcError, UnknownMethod

__all__ = ["INTERNAL_ERROR", "Draining", "told_error"]

#: Bytes of a text, and of all args of a remote exception.
_TEXT_BYTES = 4096
_UNKNOWN_METHOD = f"{UnknownMethod.__module__}.{UnknownMethod.__qualname__}"
INTERNAL_ERROR = {"type": "InternalError", "text": "the gateway failed; its log says how"}
"""The error object for an error of the gateway itself."""


class Draining(RpcError):
    """The gateway is stopping, and takes no more requests: nothing was sent."""


def told_error(error: BaseException, tracebacks: bool) -> dict[str, Any] | None:
    """Return the error object for ``error``; None: it is one of the gateway itself, which is nobody's business.

    Args:
        tracebacks: whether that of a remote exception is told.
    """
    if not isinstance(error, RpcError):
        return None
    told: dict[str, Any] = {"type": type(error).__name__}
    if isinstance(error, RemoteError):
        if error.exc_type == _UNKNOWN_METHOD:
            return {"type": UnknownMethod.__name__, "text": _cut(error.value)}
        told |= {"text": _cut(error.value), "exception": error.exc_type, "args": list(error.remote_args)}
        told["causes"] = [list(cause) for cause in error.remote_causes]
        if tracebacks:
            told["traceback"] = error.traceback
        if isinstance(error, NestedCallError):
            told["details"] = dict(error.details)
    else:
        told["text"] = _cut(str(error))
    if isinstance(error, CallError):
        told["details"] = dict(error.details)
    return told


def _cut(text: str) -> str:
    return text if len(text) <= _TEXT_BYTES else text[: _TEXT_BYTES - 3] + "..."
