"""The file of tokens: read, changed by commands, read again."""

from __future__ import annotations

import os
from pathlib import Path
from time import time

import gevent
import pytest

from rpcmq.adapters.rights import parse_right
from rpcmq.errors import ConfigError
from rpcmq.gateway.tokens import VERBS, Token, TokenFile, edited_tokens, hash_of, new_secret, read_tokens

HEAD = '[[token]]\nname = "web"\nsha256 = "' + "0" * 64 + '"\n'


def written(tmp_path: Path, text: str, mode: int = 0o600) -> str:
    path = tmp_path / "tokens.toml"
    path.write_text(text)
    path.chmod(mode)
    return str(path)


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    path = str(tmp_path / "tokens.toml")
    full = Token(
        "full", hash_of("a"),
        (parse_right("call,cast:nova,*/a.#,b", VERBS, VERBS), parse_right("publish:x", VERBS, VERBS)),
        expires=1_900_000_000.0, origins=("https://a.example",), messages_per_second=7.0, takes_context=True,
        context={"user": 'a "b" \n', "roles": ["x"], "n": 1, "deep": {"on": True, "f": 1.5}},
    )  # fmt: skip
    with edited_tokens(path) as tokens:
        tokens += [full, Token("none", hash_of("b"))]
    assert read_tokens(path) == [full, Token("none", hash_of("b"))]
    assert os.stat(path).st_mode & 0o777 == 0o600
    with edited_tokens(path) as tokens:
        del tokens[0]
    assert [token.name for token in read_tokens(path)] == ["none"]
    assert sorted(os.listdir(tmp_path)) == ["tokens.toml", "tokens.toml.lock"]


def test_an_edit_that_fails_changes_nothing(tmp_path: Path) -> None:
    path = written(tmp_path, HEAD + "rights = []\n")
    before = Path(path).read_bytes()

    def fail() -> None:
        with edited_tokens(path) as tokens:
            tokens.clear()
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert Path(path).read_bytes() == before


def test_two_editors_take_turns(tmp_path: Path) -> None:
    path = str(tmp_path / "tokens.toml")

    def add(number: int) -> None:
        with edited_tokens(path) as tokens:
            tokens.append(Token(f"t{number}", hash_of(str(number))))

    threads = [gevent.get_hub().threadpool.spawn(add, number) for number in range(8)]
    for thread in threads:
        thread.get(timeout=20)
    assert len(read_tokens(path)) == 8


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[token]\n", "token = {}: expected list"),
        ("token = [1]\n", "token[0] = 1: expected a table"),
        ("[[tokens]]\n", "tokens: unknown; known: token"),
        (HEAD, "token[0].rights is missing"),
        (HEAD + "rights = []\nright = []\n", "token[0].right: unknown"),
        (HEAD.replace("web", "../x") + "rights = []\n", "token[0].name = '../x'"),
        (HEAD.replace("0" * 64, "abc") + "rights = []\n", "token[0].sha256: expected 64"),
        (HEAD + "rights = []\nexpires = 2027-01-01\n", "expires"),
        (HEAD + "rights = []\nexpires = 2027-01-01T00:00:00\n", "expected a time with its offset"),
        (HEAD + "rights = []\nmessages_per_second = -1\n", "messages_per_second = -1"),
        (HEAD + "rights = []\nmessages_per_second = nan\n", "messages_per_second = nan"),
        (HEAD + "rights = []\ntakes_context = 1\n", "takes_context = 1: expected bool"),
        (HEAD + "rights = []\ncontext = {at = 2027-01-01}\n", "context: expected texts"),
        (HEAD + '[[token.rights]]\nverbs = ["serve"]\ntopics = ["a"]\n', "rights[0].verbs: 'serve' is unknown"),
        (HEAD + '[[token.rights]]\nverbs = ["call"]\ntopics = ["a..b"]\n', "is no pattern"),
        ((HEAD + "rights = []\n") * 2, "token[1].name: another token has it"),
        ("x = ", "not valid TOML"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, text: str, problem: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(ConfigError) as caught:
        TokenFile(path)
    assert str(caught.value).startswith(path) and problem in str(caught.value)


def test_a_file_that_others_can_change_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="others can change it"):
        TokenFile(written(tmp_path, HEAD + "rights = []\n", 0o666))


def test_a_missing_file_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="rpcmq gateway token add"):
        TokenFile(str(tmp_path / "nothing.toml"))


def test_changes_are_seen_and_wrong_ones_told_once(tmp_path: Path) -> None:
    path = written(tmp_path, HEAD + "rights = []\n")
    file = TokenFile(path)
    with edited_tokens(path) as tokens:
        tokens.append(Token("new", hash_of("secret"), (parse_right("call:a", VERBS, VERBS),), time() + 100))
    assert file.refresh() == "" and len(file) == 2
    found = file.by_secret("secret")
    assert found is not None and found.allows("call", "", "a") and not found.allows("cast", "", "a")
    assert file.by_secret("Secret") is None and file.by_secret("\ud800") is None
    assert found.is_valid(time()) and not found.is_valid(time() + 200)
    os.utime(path, (1, 1))
    file.refresh()
    Path(path).unlink()
    assert "no such file" in file.refresh() and file.refresh() == ""
    assert len(file) == 2 and file.by_name("new") == found


def test_secrets_are_long_and_never_alike() -> None:
    made = {new_secret() for _ in range(100)}
    assert len(made) == 100 and all(secret.startswith("rpcmqt_") and len(secret) == 50 for secret in made)
    assert "secret" not in repr(Token("web", hash_of("x")))
