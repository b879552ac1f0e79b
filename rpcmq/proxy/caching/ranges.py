"""Ranges of a body (RFC 9110 section 14)."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rpcmq.proxy.caching.decisions import BodyPlan, Span

__all__ = ["first_byte", "multipart", "parse_ranges", "satisfiable"]

_BYTES = re.compile(r"bytes\s*=\s*(.*)", re.IGNORECASE | re.DOTALL)
_RANGE = re.compile(r"([0-9]{1,19})-([0-9]{1,19})?|-([0-9]{1,19})")

Range = tuple[int | None, int | None]
"""First and last byte; without the last one to the end; without the first one the last bytes, so many."""


def parse_ranges(value: str | None, most: int) -> list[Range]:
    """Return the ranges that the Range field asks for; none where it is to be ignored (RFC 9110 section 14.2).

    That is where it has another unit, is malformed, or has more than ``most`` ranges.
    """
    found = _BYTES.fullmatch(value) if value else None
    if not found:
        return []
    ranges: list[Range] = []
    for each in found[1].split(",", most + 1):
        text = each.strip()
        if not text:
            continue
        parsed = _RANGE.fullmatch(text)
        if not parsed:
            return []
        first, last, suffix = (None if group is None else int(group) for group in parsed.groups())
        if first is not None and last is not None and last < first:
            return []
        ranges.append((first, last) if suffix is None else (None, suffix))
    return ranges if len(ranges) <= most else []


def first_byte(ranges: Sequence[Range]) -> int | None:
    """Return the byte at which the only one of ``ranges`` begins; None: there are several, or it is counted from the
    end.
    """
    return ranges[0][0] if len(ranges) == 1 else None


def satisfiable(ranges: Sequence[Range], size: int) -> list[Span]:
    """Return the parts of ``ranges`` that a body of ``size`` bytes has."""
    spans: list[Span] = []
    for first, last in ranges:
        if first is None:
            length = min(last or 0, size)
            if length:
                spans.append(Span(size - length, size))
        elif first < size:
            spans.append(Span(first, size if last is None else min(last + 1, size)))
    return spans


def multipart(spans: Sequence[Span], size: int, content_type: str | None, boundary: str) -> BodyPlan:
    """Return the body of type multipart/byteranges that has ``spans`` of a body of ``size`` bytes (section 14.6)."""
    pieces: list[bytes | Span] = []
    for number, span in enumerate(spans):
        lines = [f"--{boundary}"] if number == 0 else ["", f"--{boundary}"]
        if content_type is not None:
            lines.append(f"Content-Type: {content_type}")
        lines += [f"Content-Range: bytes {span.start}-{span.stop - 1}/{size}", "", ""]
        pieces += ["\r\n".join(lines).encode("latin-1"), span]
    return (*pieces, f"\r\n--{boundary}--\r\n".encode())
