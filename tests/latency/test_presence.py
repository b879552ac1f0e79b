"""A directory without a log that can be read is said to be one, at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from rpcmq.errors import UsageError
from rpcmq.latency.presence import check_log
from tests.latency.logs import ship
from tests.latency.spools import many, spooled


def refusal(directory: Path) -> str:
    with pytest.raises(UsageError) as refused:
        check_log(directory)
    return str(refused.value).removeprefix(f"{directory}: ")


def test_a_directory_without_a_log_is_none(tmp_path: Path) -> None:
    assert refusal(tmp_path) == "no dispatch log here"
    assert refusal(tmp_path / "nowhere") == "no dispatch log here"


def test_a_log_that_is_near_is_named(tmp_path: Path) -> None:
    spooled(tmp_path / "log", many(1, 10))
    assert refusal(tmp_path) == f"no dispatch log here; there is one in {tmp_path / 'log'}"
    assert refusal(tmp_path / "log" / "spool") == f"no dispatch log here; there is one in {tmp_path / 'log'}"


def test_a_spool_that_was_never_shipped_waits(tmp_path: Path) -> None:
    for segment in range(1, 4):
        spooled(tmp_path, many(1, 10), segment=segment)
    spooled(tmp_path, many(1, 10), segment=4, cut=10**9)
    assert refusal(tmp_path) == (
        f"nothing was shipped yet, 4 spool files wait: run `rpcmq ship --log {tmp_path} --once`"
    )
    ship(tmp_path)
    check_log(tmp_path)


def test_a_lost_manifest_is_made_anew(tmp_path: Path) -> None:
    spooled(tmp_path, many(1, 10))
    ship(tmp_path)
    (tmp_path / "manifest.jsonl").unlink()
    assert refusal(tmp_path).startswith(f"the manifest is missing, run `rpcmq ship --log {tmp_path} --once`")


def test_a_log_without_records_has_none_yet(tmp_path: Path) -> None:
    (tmp_path / "spool").mkdir()
    assert refusal(tmp_path) == "the dispatch log has no records yet"
