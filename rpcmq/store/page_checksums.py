"""Checksums of pages, from which one flipped bit is found and put right; more than one are noticed.

CRC-32 tells any two pages of 8 KiB apart that differ in up to three bits, so that a page in which one bit is wrong is
next to one right page only, and one with two wrong bits to none. Its number is in the checksum: a page that stands in
the place of another one is none.
"""

from __future__ import annotations

from zlib import crc32

__all__ = ["CHECKSUM_BYTES", "is_sealed", "mended", "sealed"]

#: At the end of a page.
CHECKSUM_BYTES = 4


def sealed(page: bytes, number: int) -> bytes:
    """The page with the checksum of what stands before its last 4 bytes.

    Args:
        number: from 1 on.
    """
    content = memoryview(page)[:-CHECKSUM_BYTES]
    return b"".join((content, _checksum(content, number).to_bytes(CHECKSUM_BYTES)))


def is_sealed(page: bytes, number: int) -> bool:
    """Return whether a page is as it was sealed."""
    return _wrong_bits(page, number) == 0


def mended(page: bytes, number: int) -> bytes:
    """The page as it was sealed, where one bit of it is another one; empty: more of it is wrong.

    It takes up to 50 ms.
    """
    wrong = _wrong_bits(page, number)
    if wrong.bit_count() <= 1:
        return sealed(page, number)  # the bit was one of the checksum
    # Of each bit, from the last one back, the change of the checksum that it makes.
    changes = [_TABLE[1 << bit] for bit in range(8)]
    for at in range(len(page) - CHECKSUM_BYTES - 1, -1, -1):
        if wrong in changes:
            right = bytearray(page)
            right[at] ^= 1 << changes.index(wrong)
            return bytes(right)
        changes = [change >> 8 ^ _TABLE[change & 0xFF] for change in changes]
    return b""


def _wrong_bits(page: bytes, number: int) -> int:
    content = memoryview(page)[:-CHECKSUM_BYTES]
    return _checksum(content, number) ^ int.from_bytes(page[-CHECKSUM_BYTES:])


def _checksum(content: memoryview, number: int) -> int:
    # As if the number stood before it: a page in the place of another one is not like one of which a bit is wrong.
    return crc32(content, crc32(number.to_bytes(4)))


#: Of each byte the checksum that it makes of 0.
_TABLE = [crc32(bytes([byte])) ^ crc32(b"\0") for byte in range(256)]
