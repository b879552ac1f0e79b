"""Values and exceptions that a peer made: printed and walked within bounds, whatever they are.

Their ``repr()``, ``str()`` and nesting are under the peer's control, and so is the time and memory that these take.
"""

from __future__ import annotations

from rpcmq.payload.bounded_text import (
    exception_text,
    exception_traceback,
    has_small_offsets,
    printable_exception,
    short_repr,
)
from rpcmq.payload.printed_size import is_printable
from rpcmq.payload.typed_json import DEFAULT_MAX_DEPTH, check_depth

__all__ = [
    "DEFAULT_MAX_DEPTH",
    "check_depth",
    "exception_text",
    "exception_traceback",
    "has_small_offsets",
    "is_printable",
    "printable_exception",
    "short_repr",
]
