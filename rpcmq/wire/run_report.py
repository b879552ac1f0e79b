"""A report on the run of a request: told by the router of the consumer to another one that logs how requests end.

An answer carries a :data:`REPORT` in the place of the trace; the settlement of a cast has the same numbers at its end.
"""

from __future__ import annotations

from struct import Struct

from rpcmq.wire.header import ADDRESS_LENGTH, HEADER_BYTES, METHOD_LENGTH_AT, TRACE_LENGTH_AT, with_header

__all__ = ["MAX_RUNNERS", "REPORT", "REPORTED_SETTLEMENT", "split_report", "with_report"]

#: Microseconds from the request's arrival at the consumer's router to its end there, at least 1; the number of the
#: consumer, as RUNNER says it, or 0.
REPORT = Struct(">II")
#: As :data:`rpcmq.wire.SETTLEMENT`, and a report.
REPORTED_SETTLEMENT = Struct(">20sBBIII")
#: The greatest number that a consumer may have.
MAX_RUNNERS = 4096


def with_report(message: bytes, report: bytes) -> bytes:
    """``message``, an answer without address and trace, with ``report``."""
    end = HEADER_BYTES + message[METHOD_LENGTH_AT]
    length = int.from_bytes(message[:4]) + len(report)
    head = length.to_bytes(4) + message[4:TRACE_LENGTH_AT] + bytes((len(report),))
    return with_header(message, head + message[HEADER_BYTES:end] + report + message[end:])


def split_report(message: bytes) -> tuple[bytes, int, int]:
    """``message`` without its report, and the report's two numbers; both 0 if it has none that can be read."""
    end = HEADER_BYTES + message[METHOD_LENGTH_AT]
    size = message[TRACE_LENGTH_AT]
    if size != REPORT.size or message[ADDRESS_LENGTH] != b"\0\0" or len(message) < end + size:
        return message, 0, 0
    length = int.from_bytes(message[:4]) - size
    head = length.to_bytes(4) + message[4:TRACE_LENGTH_AT] + b"\0"
    microseconds, runner = REPORT.unpack_from(message, end)
    return with_header(message, head + message[HEADER_BYTES:end] + message[end + size :]), microseconds, runner
