"""Values to payloads and back: which format, within which limits.

The ladder when encoding: pickle; dill for what pickle refuses, where both ends have dill on; typed
JSON where the other side accepts nothing else or where it is the preferred format. A value that
cannot be encoded fails in the caller, before anything is sent.
"""

from __future__ import annotations

import pickle
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn

from rpcmq.errors import PayloadError, PayloadRefused, UsageError
from rpcmq.payload.allow_list import AllowList
from rpcmq.payload.default_allow_list import DEFAULT_ALLOW_LIST
from rpcmq.payload.exception_registry import ExceptionRegistry
from rpcmq.payload.format import ALL, Format, accept_names, format_name
from rpcmq.payload.printed_size import is_printable
from rpcmq.payload.remote_exception import (
    MAX_RECORD,
    brief_record,
    describe_exception,
    rebuild_exception,
    undecodable,
)
from rpcmq.payload.safe_pickle import (
    PROTOCOL,
    RestrictedLoader,
    explain_refusal,
    refused_by_pickle,
)
from rpcmq.payload.typed_json import DEFAULT_MAX_DEPTH, TypedJson

__all__ = ["DEFAULT_MAX_BYTES", "Codec"]

DEFAULT_MAX_BYTES: Final = 64 * 1024 * 1024
_MIN_MAX_BYTES = 4096
_DEPTHS = range(8, 501)  # a remote exception needs 8; the JSON parser is recursive

# What an exception takes along must be readable by any receiver: no classes from a registry, and
# shallow enough for the smallest max_depth, two levels inside the record.
_MAX_ARG_BYTES = 16 * 1024
_EXCEPTION_JSON = TypedJson(ExceptionRegistry(defaults=False), max_depth=_DEPTHS.start - 2)

# Module-level names, because looking up a member of an enum costs on the hot path.
_JSON = Format.JSON
_PICKLE = Format.PICKLE
_DILL = Format.DILL
_JSON_BIT = Format.JSON.bit
_PICKLE_BIT = Format.PICKLE.bit
_DILL_BIT = Format.DILL.bit

_dumps = pickle.dumps


@dataclass(frozen=True, slots=True)
class Codec:
    """Encodes and decodes payloads. Immutable, and safe to share between threads.

    Attributes:
        prefer: the format to write where the other side accepts it.
        accepted: mask of the formats to decode (``accept_mask``). JSON is always among them.
        allow: the globals that a received pickle may name.
        exceptions: the exception classes that are rebuilt.
        max_bytes: largest payload written or read, in bytes; at least 4096.
        max_depth: deepest nesting of arrays and objects in JSON; at least 8.

    Raises:
        UsageError: a value is out of range, or ``prefer`` is not among ``accepted``.
    """

    prefer: Format = Format.PICKLE
    accepted: int = _JSON_BIT | _PICKLE_BIT
    allow: AllowList = DEFAULT_ALLOW_LIST
    exceptions: ExceptionRegistry = field(default_factory=ExceptionRegistry)
    max_bytes: int = DEFAULT_MAX_BYTES
    max_depth: int = DEFAULT_MAX_DEPTH
    _json: TypedJson = field(init=False, repr=False, compare=False)
    _records: TypedJson = field(init=False, repr=False, compare=False)
    _loader: RestrictedLoader = field(init=False, repr=False, compare=False)
    _writes_pickle_first: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.max_bytes < _MIN_MAX_BYTES:
            raise UsageError(f"max_bytes is {self.max_bytes}; at least {_MIN_MAX_BYTES} is needed")
        if self.max_depth not in _DEPTHS:
            raise UsageError(f"max_depth is {self.max_depth}; expected 8 to 500")
        accepted = (self.accepted & ALL) | _JSON_BIT
        if not accepted & self.prefer.bit:
            raise UsageError(
                f"the preferred payload format {self.prefer.label!r} is not among the accepted "
                f"ones: {', '.join(accept_names(accepted))}"
            )
        derive = object.__setattr__
        derive(self, "accepted", accepted)
        derive(self, "_json", TypedJson(self.exceptions, self.max_depth))
        derive(self, "_records", TypedJson(ExceptionRegistry(defaults=False), self.max_depth))
        derive(self, "_loader", RestrictedLoader(self.allow))
        derive(self, "_writes_pickle_first", _PICKLE_BIT if self.prefer is _PICKLE else 0)

    def encode(self, value: object, accepted: int = ALL) -> tuple[int, bytes]:
        """``value`` in the first format of the ladder that the other side accepts.

        Args:
            value: the message.
            accepted: mask of the formats that the other side decodes.

        Returns:
            The format's number and the payload.

        Raises:
            PayloadError: names the path and the object that cannot be encoded, or the size.
        """
        if accepted & self._writes_pickle_first:
            try:
                data = _dumps(value, PROTOCOL)
            except Exception as error:
                return self._encode_refused(value, error, accepted)
            if len(data) > self.max_bytes:
                self._too_large(data)
            return _PICKLE, data
        return self._encode_by_preference(value, accepted)

    def decode(self, format: int, data: bytes | memoryview) -> Any:
        """The value that a payload encodes.

        Args:
            format: the number of its format.
            data: its bytes.

        Raises:
            PayloadRefused: the format is not accepted, the payload is too large or malformed, or
                it names a global that is not allowed.
        """
        if len(data) > self.max_bytes:
            raise PayloadRefused(f"payload of {len(data)} bytes is larger than max_bytes ({self.max_bytes})")
        if type(data) is not bytes:
            data = bytes(data)
        if format == _PICKLE and self.accepted & _PICKLE_BIT:
            return self._loader.loads(data)
        if format == _JSON:
            return self._json.decode(data)
        if format == _DILL and self.accepted & _DILL_BIT:
            from rpcmq.payload import dill_pickle

            return dill_pickle.loads(data)
        raise PayloadRefused(self._not_accepted(format))

    def encode_exception(self, exc: BaseException, host: str = "") -> tuple[int, bytes]:
        """The record of ``exc`` as a payload; see ``remote_exception``. Never raises.

        Args:
            exc: what a method raised.
            host: identity of this process.
        """
        try:
            record = describe_exception(exc, host, _carried_size)
            payload = self._encode_record(record)
            if len(payload[1]) <= self.max_bytes:
                return payload
            record = brief_record(exc, host)
        except Exception as error:
            # The exception cannot be described at all; report its class.
            text = f"(the exception cannot be described: {type(error).__qualname__})"
            record = {"type": type(exc).__qualname__[:100], "text": text, "host": host[:100]}
        return self._encode_record(record)

    def decode_exception(self, format: int, data: bytes | memoryview) -> BaseException:
        """The exception that a payload describes.

        A registered class is rebuilt; any other, and a payload that cannot be decoded, gives a
        ``RemoteError`` that says so. Does not raise ``PayloadRefused``.
        """
        try:
            record = self.decode_record(format, data)
        except PayloadRefused as error:
            return undecodable(str(error))
        return rebuild_exception(record, self._exception_class)

    def _exception_class(self, name: str) -> type[Exception] | None:
        return self.exceptions.get(name) or self.allow.exception_class(name)

    def decode_record(self, format: int, data: bytes | memoryview) -> Any:
        """The record of an exception that a payload encodes, or whatever else it does.

        Raises:
            PayloadRefused: it is no typed JSON of a size that such a record has.
        """
        if format != _JSON:
            raise PayloadRefused(f"it is no typed JSON (format {int(_JSON)}), but of format {format}")
        if len(data) > min(MAX_RECORD, self.max_bytes):
            raise PayloadRefused(f"its record of {len(data)} bytes is larger than {min(MAX_RECORD, self.max_bytes)}")
        return self._records.decode(bytes(data))

    def _encode_record(self, record: dict[str, Any]) -> tuple[int, bytes]:
        """Always typed JSON: everybody accepts that, and nothing in it can be shared, or is built by a class."""
        return _JSON, self._json.encode(record)

    def _encode_by_preference(self, value: object, accepted: int) -> tuple[int, bytes]:
        """The ladder where pickle is not the first choice, or not the other side's."""
        if accepted & _DILL_BIT and self.prefer is _DILL:
            return self._encode_dill(value)
        if accepted & _JSON_BIT and (self.prefer is _JSON or not accepted & _PICKLE_BIT):
            return _JSON, self._within_limit(self._json.encode(value))
        if accepted & _PICKLE_BIT:
            try:
                data = _dumps(value, PROTOCOL)
            except Exception as error:
                return self._encode_refused(value, error, accepted)
            return _PICKLE, self._within_limit(data)
        if accepted & self.accepted & _DILL_BIT:
            return self._encode_dill(value)
        names = ", ".join(accept_names(accepted)) or "none that is known here"
        raise PayloadError(f"no payload format in common: the other side accepts {names}")

    def _encode_refused(self, value: object, error: Exception, accepted: int) -> tuple[int, bytes]:
        """Second rung: what pickle refused goes to dill, where both ends have it on."""
        if accepted & self.accepted & _DILL_BIT and refused_by_pickle(error):
            return self._encode_dill(value)
        return explain_refusal(value, error)

    def _encode_dill(self, value: object) -> tuple[int, bytes]:
        from rpcmq.payload import dill_pickle

        return _DILL, self._within_limit(dill_pickle.dumps(value))

    def _within_limit(self, data: bytes) -> bytes:
        if len(data) > self.max_bytes:
            self._too_large(data)
        return data

    def _too_large(self, data: bytes) -> NoReturn:
        raise PayloadError(
            f"the message is {len(data)} bytes when encoded, more than max_bytes "
            f"({self.max_bytes}); send less, or raise max_bytes at both ends"
        )

    def _not_accepted(self, format: int) -> str:
        name = format_name(format).removeprefix("format ")
        text = f"payload format {name} is not accepted here; accepted: {', '.join(accept_names(self.accepted))}"
        if format == _DILL:
            text += " (dill runs code of the sender's choice; both ends must switch it on)"
        return text


def _carried_size(value: object) -> int:
    """Bytes of an arg or attribute of an exception; 0: it cannot be taken along as it is."""
    if not is_printable(value, _MAX_ARG_BYTES):
        return 0
    try:
        size = len(_EXCEPTION_JSON.encode(value))
    except PayloadError:
        return 0
    return size if size <= _MAX_ARG_BYTES else 0
