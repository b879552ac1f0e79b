"""Stores that are damaged at random: a salvage invents nothing, saves what is whole, and tells of the rest."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.store.salvage.damages import DAMAGES, try_one


@pytest.mark.parametrize("how", DAMAGES)
@pytest.mark.parametrize("seed", [1, 13, 1012, 1020, 1031, 1041, 1054])
def test_nothing_is_invented_and_whatever_is_lost_is_told(seed: int, how: str, tmp_path: Path) -> None:
    try_one(tmp_path, seed, how)


@pytest.mark.long
@pytest.mark.parametrize("how", DAMAGES)
def test_nothing_is_invented_in_a_hundred_stores(how: str, tmp_path: Path) -> None:
    for seed in range(100):
        folder = tmp_path / str(seed)
        folder.mkdir()
        try_one(folder, seed, how)
