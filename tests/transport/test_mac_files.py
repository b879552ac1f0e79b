"""Files of the keys that payloads are signed with."""

from __future__ import annotations

from pathlib import Path

import pytest

from rpcmq.errors import ConfigError
from rpcmq.transport.mac_files import new_mac_key, read_mac_keys, use_mac_key


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "mac.toml"


def test_keys_are_added_and_changed(path: Path) -> None:
    assert new_mac_key(path, "2026-11")
    assert path.stat().st_mode & 0o777 == 0o600
    first = read_mac_keys(path)
    assert first.write == "2026-11" and [len(secret) for secret in first.secrets.values()] == [32]
    assert not new_mac_key(path, "2026.12")
    second = read_mac_keys(path)
    assert second.write == "2026-11" and list(second.secrets) == ["2026-11", "2026.12"]
    assert second.secrets["2026-11"] == first.secrets["2026-11"] != second.secrets["2026.12"]
    use_mac_key(path, "2026.12")
    assert read_mac_keys(path).write == "2026.12" and path.stat().st_mode & 0o777 == 0o600
    assert list(path.parent.iterdir()) == [path]
    assert second.secrets["2026-11"].hex() not in repr(second)


def test_what_cannot_be_done_is_named(path: Path) -> None:
    new_mac_key(path, "a")
    for action, problem in (
        (lambda: new_mac_key(path, "a"), "has a key 'a' already"),
        (lambda: new_mac_key(path, "a b"), "'a b' is no name"),
        (lambda: use_mac_key(path, "b"), "has no key 'b'; it has a"),
        (lambda: read_mac_keys(path.parent / "none"), "cannot be read"),
    ):
        with pytest.raises(ConfigError, match=problem):
            action()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "write = '': expected one of its keys: it has none"),
        ('write = "b"\n[keys]\na = "' + "0" * 64 + '"', "expected one of its keys: a"),
        ('write = "a"\n[keys]\na = "' + "0" * 62 + '"', "keys.a: it is no key"),
        ('write = "a"\n[keys]\na = 5', "keys.a: it is no key"),
        ('write = "a"\n[keys]\n"a b" = "' + "0" * 64 + '"', "keys.a b: expected up to"),
        ("more = 1", "more: unknown"),
    ],
)
def test_what_is_wrong_is_named(path: Path, text: str, problem: str) -> None:
    path.write_text(text)
    path.chmod(0o600)
    with pytest.raises(ConfigError, match=problem):
        read_mac_keys(path)


def test_a_file_that_others_can_read_is_refused(path: Path) -> None:
    new_mac_key(path, "a")
    path.chmod(0o640)
    with pytest.raises(ConfigError, match="chmod 600"):
        read_mac_keys(path)
