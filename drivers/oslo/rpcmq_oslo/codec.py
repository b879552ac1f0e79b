"""Payloads as oslo.messaging's other drivers carry them: JSON, made by oslo.serialization."""

from __future__ import annotations

import json
from typing import Any

from oslo_serialization import jsonutils

from rpcmq import Codec, Format
from rpcmq.adapters.untrusted_values import exception_text
from rpcmq.errors import PayloadError, PayloadRefused

__all__ = ["CODEC", "OsloCodec"]

_JSON = Format.JSON.bit


class OsloCodec(Codec):
    """Encodes what oslo.serialization takes: dates, UUIDs, sets and more become primitives, tuples become lists."""

    __slots__ = ()

    def encode(self, value: object, accepted: int = _JSON) -> tuple[int, bytes]:
        """See :meth:`rpcmq.Codec.encode`.

        Raises:
            PayloadError: it cannot be made JSON, or is too large.
        """
        try:
            data = jsonutils.dumps(value).encode()
        except Exception as error:
            # Values are asked for their items and attributes: what they raise then is theirs, such as an object whose
            # fields are loaded when they are read.
            text = f"{type(error).__name__}: {exception_text(error, 1000)}"
            raise PayloadError(f"it cannot be encoded as JSON: {text}") from error
        if len(data) > self.max_bytes:
            raise PayloadError(f"it has {len(data)} bytes when encoded, more than max_bytes ({self.max_bytes})")
        return Format.JSON, data

    def decode(self, format: int, data: bytes | memoryview) -> Any:
        """See :meth:`rpcmq.Codec.decode`.

        Raises:
            PayloadRefused: it is no JSON, or too large.
        """
        if format != Format.JSON or len(data) > self.max_bytes:
            return super().decode(format, data)
        try:
            return json.loads(bytes(data))
        except (ValueError, RecursionError) as error:
            raise PayloadRefused(f"the payload is no JSON: {type(error).__name__}: {error}") from error


CODEC = OsloCodec(prefer=Format.JSON, accepted=_JSON)
