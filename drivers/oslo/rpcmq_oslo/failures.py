"""Errors of rpcmq as oslo.messaging's users know them, and remote exceptions as its other drivers carry them."""

from __future__ import annotations

from types import TracebackType

from oslo_messaging import MessageDeliveryFailure, MessagingException, MessagingTimeout, RemoteError
from oslo_messaging._drivers.base import TransportDriverError
from oslo_messaging._drivers.common import deserialize_remote_exception, serialize_remote_exception

from rpcmq.adapters.untrusted_values import exception_text
from rpcmq.errors import AccessDenied, CallTimeout, LinkLost, PayloadError, RouterUnreachable, RpcError

__all__ = ["ExcInfo", "MessageNotEncodable", "RefusedByRouter", "failure_of", "oslo_error", "text_of_failure"]

ExcInfo = tuple[type[BaseException], BaseException, TracebackType | None]


class MessageNotEncodable(MessagingException, ValueError):
    """A message or context holds what oslo.serialization cannot make JSON of; nothing was sent."""


class RefusedByRouter(TransportDriverError):
    """The router refuses this process: its key, or a right that the key lacks."""


def oslo_error(error: RpcError, shown: str) -> Exception:
    """Return the exception that tells a caller of oslo.messaging of ``error``, with its reason; to be raised from it.

    Args:
        shown: the message, as it is named in the exception's text.
    """
    text = f"{shown}: {error}"
    told: Exception
    match error:
        case CallTimeout() | LinkLost() | RouterUnreachable():
            told = MessagingTimeout(text)
        case AccessDenied():
            told = RefusedByRouter(text)
        case PayloadError():
            told = MessageNotEncodable(text)
        case _:
            told = MessageDeliveryFailure(text)
    return told


def text_of_failure(failure: ExcInfo) -> str:
    """Return a raised exception as text; one whose arguments cannot be encoded is described by another one."""
    try:
        return str(serialize_remote_exception(failure))
    except Exception as error:
        # It asks the exception for its text and arguments, so it may raise whatever a user's class does.
        cls = type(failure[1])
        told = RuntimeError(
            f"{cls.__module__}.{cls.__qualname__}, which cannot be encoded: {exception_text(error, 1000)}"
        )
        return str(serialize_remote_exception((RuntimeError, told, failure[2])))


def failure_of(text: str, allowed_modules: list[str]) -> Exception:
    """Return the exception that :func:`text_of_failure` has described.

    Args:
        allowed_modules: those whose exceptions are rebuilt, beside the built-in ones; others become RemoteError.
    """
    failure: Exception
    try:
        failure = deserialize_remote_exception(text, allowed_modules)
    except Exception as error:
        # Its class may refuse the arguments, in any way; and the text is a peer's.
        failure = RemoteError(
            type(error).__name__,
            f"a remote exception that cannot be rebuilt: {exception_text(error, 1000)}",
            [text[:10_000]],
        )
    return failure
