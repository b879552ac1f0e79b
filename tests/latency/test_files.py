"""Files are read whole, however they grow meanwhile, and up to a bound."""

from __future__ import annotations

import os
import tracemalloc
from pathlib import Path
from types import SimpleNamespace

import pytest

from rpcmq.latency import files
from rpcmq.latency.files import Unsuitable, read_regular


def test_a_small_file_takes_no_memory_for_the_largest_one(tmp_path: Path) -> None:
    (tmp_path / "small").write_bytes(b"content")
    tracemalloc.start()
    try:
        assert read_regular(tmp_path / "small", 1 << 30) == b"content"
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(("most", "is_whole"), [(100, True), (99, False)])
def test_a_file_that_grows_while_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int, is_whole: bool
) -> None:
    (tmp_path / "grows").write_bytes(b"x" * 100)
    fstat = os.fstat

    def before(fd: int) -> SimpleNamespace:
        return SimpleNamespace(st_size=10, st_mode=fstat(fd).st_mode)

    monkeypatch.setattr(files, "os", SimpleNamespace(**vars(os) | {"fstat": before}))
    if is_whole:
        assert read_regular(tmp_path / "grows", most) == b"x" * 100
    else:
        with pytest.raises(Unsuitable, match="has 100 bytes, more than 99"):
            read_regular(tmp_path / "grows", most)
