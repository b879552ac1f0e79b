"""The checksums of pages."""

from __future__ import annotations

from random import Random

import pytest

from rpcmq.store.page_checksums import CHECKSUM_BYTES, is_sealed, mended, sealed

PAGE = sealed(Random(1).randbytes(8192), 77)


def flipped(page: bytes, *bits: int) -> bytes:
    wrong = bytearray(page)
    for bit in bits:
        wrong[bit >> 3] ^= 1 << (bit & 7)
    return bytes(wrong)


def test_a_page_is_known_by_its_content_and_its_number() -> None:
    assert len(PAGE) == 8192 and is_sealed(PAGE, 77) and not is_sealed(PAGE, 78)
    assert PAGE[:-CHECKSUM_BYTES] == Random(1).randbytes(8192)[:-CHECKSUM_BYTES]
    assert not is_sealed(bytes(8192), 1), "a disk that has lost a page often has zeros in its place"


@pytest.mark.parametrize("bit", [0, 7, 8, 40_001, 65_503, 65_504, 65_535])
def test_one_flipped_bit_is_put_right(bit: int) -> None:
    wrong = flipped(PAGE, bit)
    assert not is_sealed(wrong, 77)
    assert mended(wrong, 77) == PAGE


@pytest.mark.parametrize("bits", [(0, 1), (3, 65_535), (65_504, 65_505), (100, 40_000)])
def test_two_flipped_bits_are_no_page(bits: tuple[int, int]) -> None:
    assert mended(flipped(PAGE, *bits), 77) == b""


def test_a_page_in_the_place_of_another_is_no_page() -> None:
    assert mended(PAGE, 76) == b""
