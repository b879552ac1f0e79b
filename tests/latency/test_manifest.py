"""The journal: each line whole or not at all, and its state the same however it was written."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rpcmq.latency import manifest
from rpcmq.latency.log_state import RouterLife, Source
from rpcmq.latency.manifest import Manifest, ManifestDamaged, read
from rpcmq.latency.retention import Limits
from rpcmq.latency.ship import account
from tests.latency.logs import NOW, names, rows, ship, times_seen
from tests.latency.spools import BOOT, Sent, many, spooled

HOUR = 3600


def a_log(directory: Path) -> None:
    """A log whose journal has a line of each kind but ``damage``."""
    for segment in (1, 2, 3):
        spooled(directory, many(segment * 100, 50), [Sent(900 + segment)], segment=segment)
    ship(directory)
    (directory / "spool" / "other").write_text("not a spool file")
    ship(directory, NOW + HOUR)
    spooled(directory, many(500, 10), segment=4)
    ship(directory, NOW + HOUR + 1)


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    a_log(tmp_path)
    opened = Manifest(tmp_path)

    assert opened.state == read(tmp_path)
    assert read(tmp_path).rows_written == 160
    opened.close()


def test_a_log_that_nobody_shipped_is_empty(tmp_path: Path) -> None:
    assert account(read(tmp_path))["records"]["read"] == 0


def test_a_line_that_was_torn_off_never_was(tmp_path: Path) -> None:
    a_log(tmp_path)
    content = (tmp_path / manifest.NAME).read_bytes()
    lines = content.splitlines(keepends=True)
    (tmp_path / manifest.TOTALS).unlink()
    for cut in range(0, len(content), 61):
        (tmp_path / manifest.NAME).write_bytes(content[:cut])
        whole = sum(len(b"".join(lines[: n + 1])) <= cut for n in range(len(lines)))
        assert read(tmp_path).lines == whole
        opened = Manifest(tmp_path)
        opened.append("quarantine", source={"name": "x", "crc32": 0}, reason="foreign", rows=0, bytes=0, at=NOW)
        opened.close()
        assert read(tmp_path).lines == whole + 1


def test_a_line_that_is_none_is_named(tmp_path: Path) -> None:
    a_log(tmp_path)
    path = tmp_path / manifest.NAME
    path.write_bytes(path.read_bytes().replace(b'"event":"compact"', b'"event":"compost"'))

    with pytest.raises(ManifestDamaged, match="line 5: ValueError: unknown event 'compost'"):
        read(tmp_path)


@pytest.mark.parametrize(
    "line", [b"[]", b"{}", b"\xff", b'{"event":"ship"}', b'{"event":"retire","paths":["x"],"why":"","at":0}']
)
def test_no_line_is_a_crash(tmp_path: Path, line: bytes) -> None:
    (tmp_path / manifest.NAME).write_bytes(line + b"\n")

    with pytest.raises(ManifestDamaged):
        read(tmp_path)


def test_it_is_rewritten_when_most_of_it_says_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    a_log(tmp_path)
    before = read(tmp_path)
    monkeypatch.setattr(manifest, "_STALE_LINES", 1)

    ship(tmp_path, NOW + HOUR + 2)

    after = read(tmp_path)
    assert after.lines == 1
    assert (after.live, after.boots, after.superseded) == (before.live, before.boots, before.superseded)
    assert account(after) == account(before)
    # The spool files are gone, so their names need no memory.
    assert not after.settled
    spooled(tmp_path, many(600, 10), segment=5)
    assert ship(tmp_path, NOW + HOUR + 3).state.rows_written == 170


@pytest.mark.parametrize("how", ["lost", "damaged"])
@pytest.mark.parametrize("ready", [10, 10 * HOUR])
def test_without_it_the_files_tell_what_is_in_the_log(tmp_path: Path, how: str, ready: float) -> None:
    a_log(tmp_path)
    ship(tmp_path, NOW + HOUR + 30, Limits(ready=ready))
    expected = times_seen(tmp_path)
    path = tmp_path / manifest.NAME
    if how == "lost":
        path.unlink()
    else:
        path.write_bytes(b"{}\n" + path.read_bytes())

    ship(tmp_path, NOW + HOUR + 31, Limits(ready=ready))

    assert times_seen(tmp_path) == expected
    ship(tmp_path, NOW + 2 * HOUR, Limits(ready=ready))
    assert times_seen(tmp_path) == expected
    aside = [name for name in names(tmp_path, "quarantine") if name.endswith(manifest.NAME)]
    assert len(aside) == (how == "damaged")


def a_long_story(directory: Path) -> Limits:
    """A log of which something was removed, set aside, damaged, compacted and said of the dead."""
    for segment in range(1, 6):
        at = NOW + segment * HOUR
        spooled(directory, many(segment * 100, 50 + segment), [Sent(900 + segment)], segment=segment)
        ship(directory, at)
    spooled(directory, many(1, 10), boot=BOOT + 1, given=17, dropped=3)
    (directory / "spool" / "other").write_text("not a spool file")
    state = ship(directory, at).state
    (damaged,) = [path for path in state.live if path.endswith(f"{BOOT}-00000005.parquet")]
    (directory / damaged).write_bytes(b"PAR1")
    limits = Limits(age=4.5 * HOUR, ready=1.5 * HOUR)
    ship(directory, NOW + 6 * HOUR, limits)
    spooled(directory, many(600, 6), boot=BOOT + 1, segment=2)
    state = ship(directory, NOW + 6 * HOUR + 10, limits).state
    assert min(state.rows_retired, state.rows_damaged, state.files_quarantined) > 0
    assert {path.partition("/")[0] for path in state.live} == {"ready", "log"} and state.superseded
    return limits


@pytest.mark.parametrize("how", ["lost", "damaged"])
def test_without_it_the_account_is_as_it_was(tmp_path: Path, how: str) -> None:
    limits = a_long_story(tmp_path)
    expected, before = times_seen(tmp_path), account(read(tmp_path))
    path = tmp_path / manifest.NAME
    if how == "lost":
        path.unlink()
    else:
        path.write_bytes(b"{}\n" + path.read_bytes())

    after = account(ship(tmp_path, NOW + 6 * HOUR + 20, limits).state)

    assert times_seen(tmp_path) == expected
    # What had been compacted may be in its segments again, until the hour is over.
    for each in (before, after):
        assert each["files"].pop("live") and each["bytes"].pop("live")
    assert after == before
    # It is kept in the new one, and goes on from there.
    spooled(tmp_path, many(700, 7), boot=BOOT + 1, segment=3)
    last = account(ship(tmp_path, NOW + 6 * HOUR + 30, limits).state)
    assert last == account(read(tmp_path))
    assert last["records"]["written"] == before["records"]["written"] + 7
    assert last["boots"][-1]["records"] == before["boots"][-1]["records"] + 7


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b'{"boots": 3}', b'{"boots": [[1, 2, {"x": 3}]]}', b"\xff"])
def test_totals_that_are_none_are_passed_over(tmp_path: Path, content: bytes) -> None:
    spooled(tmp_path, many(1, 10))
    ship(tmp_path)
    (tmp_path / manifest.NAME).unlink()
    (tmp_path / manifest.TOTALS).write_bytes(content)

    assert account(ship(tmp_path).state)["records"]["written"] == 10
    assert json.loads((tmp_path / manifest.TOTALS).read_bytes())["boots"][0][2]["rows"] == 10


def test_a_stray_that_cannot_be_read_is_set_aside(tmp_path: Path) -> None:
    spooled(tmp_path, many(1, 10))
    ship(tmp_path)
    (tmp_path / "ready" / "7-1-00000001.parquet").write_text("not Parquet")
    (tmp_path / "log/v1/dt=2023-01-01/hour=00").mkdir(parents=True)
    (tmp_path / "log/v1/dt=2023-01-01/hour=00/x.parquet").write_text("not Parquet")

    ship(tmp_path)

    assert len(rows(tmp_path)) == 10
    assert {"7-1-00000001.parquet", "x.parquet"} <= set(names(tmp_path, "quarantine"))


def test_holes_and_missing_segments_of_a_life_are_counted() -> None:
    boot = RouterLife()
    boot.add(Source("a", 0, "r1", 7, BOOT, segno=1, first_seq=3, last_seq=9, given=12), 5)
    boot.add(Source("c", 0, "r1", 7, BOOT, segno=3, given=12, dropped=2, final=True), 0)

    assert (boot.holes, boot.missing_segments, boot.dropped, boot.final) == (7, 1, 2, True)
