"""JSON bodies of the control messages."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from rpcmq.errors import ProtocolError
from rpcmq.wire.header import pack, parse, payload_of

__all__ = ["MAX_VIEW_BYTES", "body_of", "control", "json_bytes"]

#: Longest body of a control message, except answers to queries: parsing JSON takes time and memory.
MAX_BODY_BYTES = 1 << 20
#: Longest answer to a query.
MAX_VIEW_BYTES = 1 << 30


def control(kind: int, body: Mapping[str, Any] | None = None, **fields: Any) -> bytes:
    """A message whose payload is ``body`` as plain JSON."""
    return pack(kind, b"" if body is None else json_bytes(body), format=1, **fields)


def json_bytes(body: Mapping[str, Any]) -> bytes:
    """``body`` as compact JSON."""
    return json.dumps(body, separators=(",", ":")).encode()


def body_of(message: bytes, max_bytes: int = MAX_BODY_BYTES) -> dict[str, Any]:
    """The plain JSON object in the payload of a control message.

    Raises:
        ProtocolError: the payload is longer than ``max_bytes``, or not a JSON object.
    """
    parse(message)
    payload = payload_of(message)
    if len(payload) > max_bytes:
        raise ProtocolError(f"body of {len(payload)} bytes exceeds the limit of {max_bytes}", "body")
    try:
        body = json.loads(bytes(payload).decode())
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"body is not JSON: {error}", "body") from None
    if not isinstance(body, dict):
        raise ProtocolError(f"body is a JSON {type(body).__name__}, not an object", "body")
    return body
