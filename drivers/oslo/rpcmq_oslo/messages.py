"""The form in which messages, and the answers to them, travel in payloads of rpcmq."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from oslo_messaging import MessageDeliveryFailure

from rpcmq.adapters.calling import LegacyMessage
from rpcmq_oslo.failures import failure_of

__all__ = ["context_and_message", "failed", "request", "result_of", "succeeded"]

#: Key of the message beside the context.
_MESSAGE = "oslo"
_RESULT, _FAILURE = "result", "failure"
_MOST_BYTES = 255


def request(message: Mapping[str, Any]) -> LegacyMessage:
    """Return ``message`` as it is given to a verb of rpcmq, which is not to change it.

    Operators see it under the name of its method, or of the event that it notifies of.
    """
    name = message.get("method") or message.get("event_type")
    # JSON carries halves of surrogate pairs, and UTF-8 does not.
    shown = name.encode(errors="replace") if isinstance(name, str) else b""
    if not 0 < len(shown) <= _MOST_BYTES:
        shown = b"message"
    return LegacyMessage({"method": shown.decode(), _MESSAGE: message})


def context_and_message(body: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return context and message of a received payload; a sender that has no context (None) has sent an empty one.

    Raises:
        ValueError: it is not of the form that :func:`request` gives.
    """
    context, message = body.get("context"), body.get(_MESSAGE)
    if context is None:
        context = {}
    if not isinstance(message, dict) or not isinstance(context, dict):
        raise ValueError("no message of oslo.messaging: its sender does not use this driver")
    return context, message


def succeeded(result: Any) -> dict[str, Any]:
    """Return the answer of a method that has returned."""
    return {_RESULT: result}


def failed(text: str) -> dict[str, Any]:
    """Return the answer of a method that has raised.

    Args:
        text: the exception, as :func:`rpcmq_oslo.failures.text_of_failure` gives it.
    """
    return {_FAILURE: text}


def result_of(answer: Any, allowed_modules: list[str]) -> Any:
    """Return the result that ``answer`` has, or raise the exception.

    Raises:
        MessageDeliveryFailure: whoever has answered does not use this driver.
    """
    match answer:
        case {"result": result}:
            return result
        case {"failure": str(text)}:
            raise failure_of(text, allowed_modules)
    raise MessageDeliveryFailure("the answer is none of oslo.messaging: whoever gave it does not use this driver")
