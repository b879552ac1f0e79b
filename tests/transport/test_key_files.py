"""Key files and folders: what is wrong is named, what others can read is refused."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rpcmq.errors import ConfigError
from rpcmq.transport.curve import check_libzmq, is_key, new_pair, public_of
from rpcmq.transport.key_files import KeyFile, check_folder, read_key_file, read_trusted_toml, write_private


@pytest.fixture
def keys() -> KeyFile:
    public, secret = new_pair()
    return KeyFile(public, secret, "web", new_pair()[0])


def written(path: Path, text: str, mode: int = 0o600) -> Path:
    path.write_text(text)
    path.chmod(mode)
    return path


def test_what_is_written_is_read_and_private_whatever_the_umask(tmp_path: Path, keys: KeyFile) -> None:
    before = os.umask(0)
    try:
        write_private(tmp_path / "k", keys.text("for you only"))
    finally:
        os.umask(before)
    assert (tmp_path / "k").stat().st_mode & 0o777 == 0o600
    assert read_key_file(tmp_path / "k", client=True) == keys
    assert os.listdir(tmp_path) == ["k"], "no half file is left"
    assert keys.secret not in repr(keys)


def test_what_root_writes_belongs_to_the_owner_of_the_folder(
    tmp_path: Path, keys: KeyFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "fchown", lambda descriptor, user, group: given.append((user, group)))
    for user, expected in ((0, [(tmp_path.stat().st_uid, -1)]), (1000, [])):
        monkeypatch.setattr(os, "geteuid", lambda user=user: user)
        write_private(tmp_path / f"{user}.key", keys.text())
        assert given == expected
        given.clear()


def test_keys_are_never_written_over(tmp_path: Path, keys: KeyFile) -> None:
    write_private(tmp_path / "k", "first")
    with pytest.raises(ConfigError, match="exists already"):
        write_private(tmp_path / "k", "second")
    assert (tmp_path / "k").read_text() == "first"
    assert os.listdir(tmp_path) == ["k"]


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644, 0o660, 0o777])
def test_a_secret_that_others_can_read_is_refused(tmp_path: Path, keys: KeyFile, mode: int) -> None:
    path = written(tmp_path / "k", keys.text(), mode)
    with pytest.raises(ConfigError, match=rf"{path}.*mode {mode:04o}.*chmod 600"):
        read_key_file(path, client=True)


def test_a_folder_is_no_key_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=rf"{tmp_path}: is no regular file"):
        read_key_file(tmp_path, client=True)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda text: text.replace("secret", "sekret"), "sekret: unknown"),
        (lambda text: "\n".join(line for line in text.splitlines() if "public" not in line), "public is missing"),
        (lambda text: "", "name is missing"),
        (lambda text: text.replace('name = "web"', 'name = "a/b"'), "name = 'a/b'"),
        (lambda text: text.replace('name = "web"', "name = 7"), "name = 7: expected str"),
        (lambda text: text + "x", "not valid TOML"),
        (lambda text: text.replace('router = "', 'router = "~'), "router: .* is no key; .*, and this has 41$"),
        (lambda text: text.replace('secret = "', 'secret = "0'), "secret: it is no key; .* 40 .*, and this has 41$"),
        (
            lambda text: "\n".join(line for line in text.splitlines() if line.split(" ")[0] in ("public", "secret")),
            "no `name` and no `router`: it is a router's own key",
        ),
    ],
)
def test_what_is_wrong_names_file_and_key(tmp_path: Path, keys: KeyFile, change, expected: str) -> None:
    path = written(tmp_path / "k", change(keys.text()))
    with pytest.raises(ConfigError, match=expected) as caught:
        read_key_file(path, client=True)
    assert str(path) in str(caught.value) and keys.secret not in str(caught.value)


def test_two_halves_of_different_pairs_are_refused(tmp_path: Path) -> None:
    path = written(tmp_path / "k", KeyFile(new_pair()[0], new_pair()[1]).text())
    with pytest.raises(ConfigError, match="same pair"):
        read_key_file(path, client=False)


def test_no_file_is_said(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        read_key_file(tmp_path / "none", client=True)


@pytest.mark.parametrize("mode", [0o720, 0o702, 0o777])
def test_a_folder_where_others_can_put_keys_is_refused(tmp_path: Path, mode: int) -> None:
    tmp_path.chmod(mode)
    with pytest.raises(ConfigError, match="chmod 700"):
        check_folder(tmp_path)
    tmp_path.chmod(0o755)
    check_folder(tmp_path)
    with pytest.raises(ConfigError, match="rpcmq init"):
        check_folder(tmp_path / "none")


@pytest.mark.parametrize("text", ["", "~" * 40, "#" * 40, "a" * 39, "é" * 40, None, 7, b"a" * 40])
def test_what_is_no_key(text: object) -> None:
    assert not is_key(text)


def test_a_pair_fits() -> None:
    public, secret = new_pair()
    assert is_key(public) and is_key(secret) and public_of(secret) == public
    with pytest.raises(ValueError, match="40 characters"):
        public_of("nothing")


def test_an_old_libzmq_is_refused() -> None:
    check_libzmq((4, 3, 3), True)
    with pytest.raises(ConfigError, match=r"libzmq 4\.3\.2 can be crashed.*upgrade"):
        check_libzmq((4, 3, 2), True)
    with pytest.raises(ConfigError, match="without CURVE"):
        check_libzmq((4, 3, 5), False)


def test_what_others_have_laid_where_a_secret_goes_is_neither_used_nor_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rpcmq.transport.key_files.token_hex", lambda size: "known")
    theirs = tmp_path / "theirs"
    theirs.write_text("")
    (tmp_path / "k.known.tmp").symlink_to(theirs)
    with pytest.raises(ConfigError, match="exists already"):
        write_private(tmp_path / "k", "secret")
    assert theirs.read_text() == "" and not (tmp_path / "k").exists()


def test_what_is_no_small_regular_file_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo", 0o600)
    (tmp_path / "folder").mkdir(0o700)
    (tmp_path / "large").write_bytes(b"#" * (1 << 21))
    (tmp_path / "endless").symlink_to("/dev/zero")
    expected = {
        "fifo": "no regular file",
        "folder": "Is a directory",
        "large": "more than",
        "endless": "no regular file",
    }
    for name, text in expected.items():
        with pytest.raises(ConfigError, match=rf"{name}: .*{text}"):
            read_trusted_toml(tmp_path / name, {})


@pytest.mark.parametrize("text", ["a = " + "[" * 20_000, "a = 1_", "a = " + "9" * 10_000, "\x00", "a.b.c = 1\na = 2"])
def test_toml_that_wants_to_break_its_reader_is_wrong_and_no_more(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError, match=r"not valid TOML|expected str"):
        read_trusted_toml(written(tmp_path / "k", text), {"a": str})


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
def test_a_file_that_others_can_change_says_nothing(tmp_path: Path, mode: int) -> None:
    with pytest.raises(ConfigError, match=f"mode {mode:04o}.*chmod go-w"):
        read_trusted_toml(written(tmp_path / "k", 'a = "b"', mode), {"a": str})
