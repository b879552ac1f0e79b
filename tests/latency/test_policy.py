"""The policy's file: what was written is read, and nothing else is."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from gevent import subprocess

from rpcmq.latency.policy import LONGEST_US, Entry, Policy, PolicyRefused, read_policy, write_policy
from rpcmq.log_format import latency_policy
from tests.server.daemons import SECONDS

NOW = 1_700_000_000.0
DAY = 86_400.0

BOOT = Entry(
    "", "compute", "boot", 5000, NOW - 60, NOW - 60 + DAY, (8000.0, 15_000.0, 40_000.0),
    ((7900.0, 8100.0), (14_500.0, 15_500.0), (38_000.0, 43_000.0)),
)  # fmt: skip


def policy(*entries: Entry) -> Policy:
    entries = entries or (BOOT,)
    found = {(entry.exchange, entry.topic, entry.method): entry for entry in entries}
    return Policy(NOW, max(entry.valid_until for entry in entries), 1000, found)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    made = tmp_path / "policy.json"
    write_policy(made, policy())
    return made


def test_what_was_written_is_read(path: Path) -> None:
    assert read_policy(path, NOW) == policy()
    assert [each.name for each in path.parent.iterdir()] == ["policy.json"]


def test_a_reader_sees_the_old_file_until_the_new_one_is_whole(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    rename = Path.rename

    def look(self: Path, target: Path) -> Path:
        seen.append((self.name.startswith("."), read_policy(path, NOW).entries))
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", look)
    other = replace(BOOT, method="list")
    write_policy(path, policy(other))
    assert seen == [(True, policy().entries)]
    assert read_policy(path, NOW) == policy(other)


def test_methods_that_are_too_old_are_left_out_and_then_all(path: Path) -> None:
    old = replace(BOOT, method="list", newest=NOW - 3600, valid_until=NOW + 100)
    write_policy(path, policy(BOOT, old))
    assert len(read_policy(path, NOW + 100).entries) == 2
    assert [entry.method for entry in read_policy(path, NOW + 101).entries.values()] == ["boot"]
    with pytest.raises(PolicyRefused, match=r"policy.json: too old: valid_until was 10 s ago"):
        read_policy(path, BOOT.valid_until + 10)


def test_a_file_from_the_future_is_refused(path: Path) -> None:
    assert read_policy(path, NOW - 59) == policy()
    with pytest.raises(PolicyRefused, match="made_at is 61 s in the future"):
        read_policy(path, NOW - 61)


def change(**values: Any) -> Callable[[dict[str, Any]], None]:
    return lambda source: source.update(values)


def of_entry(**values: Any) -> Callable[[dict[str, Any]], None]:
    return lambda source: source["methods"][0].update(values)


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (change(policy="other"), "no latency policy"),
        (change(version=2), "version 2: expected 1"),
        (change(version="1"), "version '1': expected 1"),
        (change(made_at=None), "made_at = None"),
        (change(made_at=True), "made_at = True"),
        (change(valid_until=float("inf")), "valid_until = inf"),
        (change(min_samples=0), "min_samples = 0"),
        (change(min_samples=5001), "samples = 5000: expected an integer of at least 5001"),
        (change(methods=[]), "expected a list that is not empty"),
        (change(methods={}), "expected a list that is not empty"),
        (change(methods=[1]), r"methods\[0\]: expected an object"),
        (lambda source: source["methods"].append(source["methods"][0]), r"methods\[1\]: a second one of that name"),
        (of_entry(topic=7), r"methods\[0\]: topic = 7: expected text"),
        (of_entry(samples=1e4), r"samples = 10000.0"),
        (of_entry(p50_us=0), "above 0 that rise"),
        (of_entry(p95_us=7000, p95_interval_us=[6000, 8000]), "above 0 that rise"),
        (of_entry(p99_us=float("nan")), "p99_us = nan"),
        (of_entry(p99_us=-5), "p99_us = -5"),
        (of_entry(p99_us=LONGEST_US * 2), "p99_us = 172800000000.0"),
        (of_entry(p99_us="fast"), "p99_us = 'fast'"),
        (of_entry(p99_interval_us=[1, 2]), "does not contain 40000.0"),
        (of_entry(p99_interval_us=[1]), "expected two numbers"),
        (of_entry(p99_interval_us=[1, None]), "p99_interval_us = None"),
        (of_entry(newest=NOW + 61), "newest after made_at"),
        (of_entry(newest=NOW, valid_until=NOW - 1), "valid_until"),
        (of_entry(valid_until=NOW + 2 * DAY), "valid_until after that of the file"),
    ],
)
def test_what_is_wrong_is_refused_by_name(path: Path, damage: Callable[[dict[str, Any]], None], says: str) -> None:
    source = json.loads(path.read_text())
    damage(source)
    path.write_text(json.dumps(source))
    with pytest.raises(PolicyRefused, match=says) as error:
        read_policy(path, NOW)
    assert str(error.value).startswith(str(path))


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"null", b"\xff\xfe", b"[" * 100_000, b'"rpcmq latency"'])
def test_what_is_no_policy_is_refused(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(PolicyRefused, match=r"no JSON|no latency policy"):
        read_policy(path, NOW)


def test_every_cut_of_the_file_is_refused(path: Path) -> None:
    whole = path.read_bytes().rstrip()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(PolicyRefused):
            read_policy(path, NOW)


def test_a_pipe_is_no_policy_and_a_link_to_one_is(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(PolicyRefused, match="is a named pipe, not a regular file"):
        read_policy(path, 0)
    path.unlink()
    path.symlink_to("/dev/zero")
    with pytest.raises(PolicyRefused, match="is a device, not a regular file"):
        read_policy(path, 0)


def test_a_file_that_is_far_too_large_is_not_parsed(path: Path) -> None:
    path.write_bytes(b" " * (17 << 20))
    with pytest.raises(
        PolicyRefused, match=r"has 17825792 bytes, more than 16777216, .*rpcmq latency policy --min-samples"
    ):
        read_policy(path, NOW)


def test_a_file_that_readers_refuse_for_its_size_is_not_written(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(latency_policy, "LARGEST_BYTES", path.stat().st_size)
    write_policy(path, policy())
    with pytest.raises(ValueError, match=r"has \d+ bytes, more than \d+, .*--min-samples leaves out methods"):
        write_policy(path, policy(BOOT, replace(BOOT, method="list")))
    assert read_policy(path, NOW) == policy()


def test_members_may_come_in_any_order_and_others_beside_them(path: Path) -> None:
    source = json.loads(path.read_text())
    for each in (dict(reversed(source.items())), {"comment": ["by hand"], **source}):
        path.write_text(json.dumps(each))
        assert read_policy(path, NOW) == policy()


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (
            b'{"policy": "rpcmq latency", "version": 1, "version": 1',
            "'version': expected a name that is not there twice",
        ),
        (b'{"methods": [], "methods": []}', "'methods': expected a name that is not there twice"),
        (b"{" + b",".join(b'"%d": []' % number for number in range(100_000)) + b"}", "more than 64 members"),
        (b'{"methods": [' + b"[]," * 1_000_000 + b"0]}", r"methods\[0\]: expected an object"),
        (b'{"version": ' + b"9" * 4000 + b', "policy": "rpcmq latency"}', r"version 9{20,}\.\.\.9+: expected 1"),
        (
            b'{"version": ' + b"[" * 300 + b"]" * 300 + b', "policy": "rpcmq latency"}',
            r"version \[.*\.\.\..*\]: expected 1",
        ),
        (b'{"policy": "rpcmq latency", "version": 1} {}', "no JSON: more after the end"),
    ],
)
def test_hostile_content_is_refused_in_few_words(path: Path, content: bytes, says: str) -> None:
    path.write_bytes(content)
    with pytest.raises(PolicyRefused, match=says) as error:
        read_policy(path, NOW)
    assert len(str(error.value)) < 400


def test_huge_numbers_are_refused_by_name(path: Path) -> None:
    text = path.read_text()
    for name, old in (("p99_us", "40000.0"), ("samples", "5000"), ("newest", str(BOOT.newest))):
        path.write_text(text.replace(f'"{name}": {old}', f'"{name}": 1{"0" * 4000}'))
        with pytest.raises(PolicyRefused, match=rf"methods\[0\]: {name} = 1000") as error:
            read_policy(path, NOW)
        assert len(str(error.value)) < 400


def test_nothing_wrong_is_written(path: Path) -> None:
    with pytest.raises(ValueError, match="does not contain"):
        write_policy(path, policy(replace(BOOT, us=(1.0, 2.0, 3.0))))
    with pytest.raises(ValueError, match="not empty"):
        write_policy(path, Policy(NOW, NOW, 1000, {}))
    assert read_policy(path, NOW) == policy()


def test_a_router_can_read_it_with_the_standard_library_alone() -> None:
    code = (
        "import sys; sys.modules.update(dict.fromkeys(('numpy', 'scipy', 'pyarrow', 'pyspark', 'gevent', 'zmq')));"
        "import rpcmq.latency.policy"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=SECONDS, check=False)
    assert ended.returncode == 0, ended.stderr
