"""The payload formats: their numbers, names and bit masks.

The number of a format travels in the envelope of each message; the mask of the formats that a
process can decode travels in its HELLO. Bit ``1 << number`` stands for a format; bit 0 is never
set. A request with a stream has the number of its format plus :data:`STREAMED`, and so is given to
no process that does not know such requests. This module imports nothing that decodes, so the router may use it.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from typing import Final

from rpcmq.errors import UsageError

__all__ = [
    "ALL",
    "REQUEST_STREAMS",
    "STREAMED",
    "Format",
    "accept_mask",
    "accept_mask_with_json",
    "accept_names",
    "format_name",
    "has_stream",
    "known_mask",
    "with_streams",
]

#: Added to the format of a request whose caller sends a stream with it.
STREAMED: Final = 3
#: The name by which HELLO tells, among the formats, that a process takes requests with a stream.
REQUEST_STREAMS: Final = "request-streams"


class Format(IntEnum):
    """Payload formats. The numbers are on the wire: never reuse one."""

    JSON = 1
    """Typed JSON: every process decodes it, and so can other languages."""

    PICKLE = 2
    """Pickle protocol 5, loaded through an exact allow-list."""

    DILL = 3
    """dill: loading it runs code of the sender's choice. Off unless both ends switch it on."""

    @property
    def label(self) -> str:
        """The name used in configuration and output: ``json``, ``pickle`` or ``dill``."""
        return self.name.lower()

    @property
    def bit(self) -> int:
        """The bit that stands for this format in a mask of accepted formats."""
        return 1 << self

    @classmethod
    def named(cls, name: str) -> Format:
        """The format called ``name``.

        Raises:
            UsageError: there is no such format.
        """
        for member in cls:
            if member.label == name:
                return member
        expected = ", ".join(member.label for member in cls)
        raise UsageError(f"unknown payload format {name!r}; expected one of: {expected}")


ALL = Format.JSON.bit | Format.PICKLE.bit | Format.DILL.bit
"""The mask of all formats."""


def accept_mask(formats: Iterable[Format | str]) -> int:
    """The mask of ``formats``, given as members or as names.

    Raises:
        UsageError: a name is unknown.
    """
    if isinstance(formats, str):
        raise UsageError(f"accepted payload formats must be a list of names, not {formats!r}")
    mask = 0
    for entry in formats:
        mask |= (entry if isinstance(entry, Format) else Format.named(entry)).bit
    return mask


def accept_mask_with_json(names: Iterable[str]) -> int:
    """The mask of ``names``, of which JSON must be one.

    Raises:
        UsageError: it is not, or a name is unknown.
    """
    mask = accept_mask(names)
    if not mask & Format.JSON.bit:
        raise UsageError("json must be among them; it runs nothing, and errors travel in it")
    return mask


def accept_names(mask: int) -> tuple[str, ...]:
    """The names of the formats in ``mask``; bits of formats not known here are left out."""
    return tuple(member.label for member in Format if mask & member.bit)


def known_mask(names: object) -> int:
    """The mask of the formats that a peer names, of whatever it has sent: all else is left out. Everybody has JSON."""
    known = {entry for entry in names if isinstance(entry, str)} if isinstance(names, list) else ()
    mask = Format.JSON.bit | sum(member.bit for member in Format if member.label in known and member is not Format.JSON)
    return with_streams(mask) if REQUEST_STREAMS in known else mask


def with_streams(mask: int) -> int:
    """``mask``, and the same formats of requests with a stream."""
    return mask | mask << STREAMED


def has_stream(format: int) -> bool:
    """Return whether a request of this format is one with a stream."""
    return STREAMED < format <= 2 * STREAMED


def format_name(number: int) -> str:
    """The name of a format, for output; of one that is not known here, ``format 7``."""
    if has_stream(number):
        return f"{format_name(number - STREAMED)} with a stream"
    return next((member.label for member in Format if member == number), f"format {number}")
