"""Batches: any number of messages back to back in one frame, and then a frame for each detached payload."""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from struct import error as StructError

from rpcmq.errors import ProtocolError
from rpcmq.wire.address import MAX_NAME_BYTES
from rpcmq.wire.detached import Detached
from rpcmq.wire.header import DETACH_BYTES
from rpcmq.wire.kinds import VERSION

__all__ = ["MAX_BATCH_MESSAGES", "MAX_INLINE_BYTES", "split"]

#: The longest message in a batch frame: header, three names and their lengths, method, trace, a payload that is not
#: detached. What is longer is refused, so that 256 of them always fit into a frame that any peer takes.
MAX_INLINE_BYTES = 40 + 3 + 3 * MAX_NAME_BYTES + 255 + 255 + DETACH_BYTES - 1
#: Most messages in one batch, so that other peers need not wait; processes send 256.
MAX_BATCH_MESSAGES = 4096
#: Length, version, flags: what is needed to cut a message out of its batch.
_unpack_start = Struct(">IBxH").unpack_from


def split(batch: bytes, payloads: Sequence[bytes | memoryview] = ()) -> list[bytes]:
    """The messages of a batch, each with its detached payload if it has one.

    Raises:
        ProtocolError: a length, version or the number of detached payloads is wrong, or there are too many
            messages. Nothing of such a batch is used.
    """
    if len(batch) > 40 * MAX_BATCH_MESSAGES:
        _check_large(batch)
    messages: list[bytes] = []
    start, end = 0, len(batch)
    taken = 0
    try:
        while start < end:
            length, version, flags = _unpack_start(batch, start)
            stop = start + length
            if length < 40 or stop > end or version != VERSION:
                raise _framing_error(batch, start)
            message = batch[start:stop]
            if flags and flags & 1:
                if taken >= len(payloads):
                    raise ProtocolError("a message's detached payload is missing", "detached")
                message = Detached.of(message, payloads[taken])
                taken += 1
            messages.append(message)
            start = stop
    except StructError:
        raise _framing_error(batch, start) from None
    # Once for all: in a smaller batch none can be too long.
    if end > MAX_INLINE_BYTES and max(map(len, messages)) > MAX_INLINE_BYTES:
        lengths = list(map(len, messages))
        at = next(at for at, length in enumerate(lengths) if length > MAX_INLINE_BYTES)
        raise _too_long(lengths[at], sum(lengths[:at]))
    if not messages:
        raise ProtocolError("empty batch", "truncated")
    if taken != len(payloads):
        raise ProtocolError(f"{len(payloads)} payload frames for {taken} detached messages", "detached")
    return messages


def _check_large(batch: bytes) -> None:
    """Refuse a batch of too many messages, or with one that is too long, before any of them is made."""
    start, end = 0, len(batch)
    for _ in range(MAX_BATCH_MESSAGES):
        if end - start < 40:
            return
        length = _unpack_start(batch, start)[0]
        if length < 40:
            return  # malformed: split() will report it
        if length > MAX_INLINE_BYTES:
            raise _too_long(length, start)
        start += length
    if start < end:
        raise ProtocolError(f"batch exceeds the limit of {MAX_BATCH_MESSAGES} messages", "batch")


def _too_long(length: int, start: int) -> ProtocolError:
    text = f"message of {length} bytes at byte {start}: a payload of {DETACH_BYTES} bytes or more must be detached"
    return ProtocolError(text, "length")


def _framing_error(batch: bytes, start: int) -> ProtocolError:
    """Return why no message starts at ``start``."""
    left = len(batch) - start
    if left < 40:
        return ProtocolError(f"{left} bytes at {start} are shorter than a header (40)", "truncated")
    length, version, _ = _unpack_start(batch, start)
    if length < 40 or length > left:
        return ProtocolError(f"message length {length} at byte {start} of a batch of {len(batch)}", "length")
    return ProtocolError(f"version {version} is not supported; this is version {VERSION}", "version")
