"""The directory of authorised keys: strict about each file, live, and never half read."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path
from time import time

import pytest

from rpcmq.core.router.rights import EVERYTHING, MESH_VERB, Key, Right
from rpcmq.errors import ConfigError
from rpcmq.payload.format import Format
from rpcmq.server.authorized_keys import AuthorizedKeys, read_authorised, summary, to_toml
from rpcmq.transport.curve import new_pair

PUBLIC = "rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7"
FILE = f"""
name = "node-7"
public = "{PUBLIC}"
owner = "ops@example.org"
expires = 2027-01-01T00:00:00Z
identities = ["node-7", "worker-*"]
max_links = 10
messages_per_second = 1000

[[rights]]
verbs = ["serve"]
topics = ["compute", "compute.node-7"]
exchanges = ["nova"]

[[rights]]
verbs = ["call", "cast"]
topics = ["#"]
"""


def written(folder: Path, text: str, name: str = "node-7") -> str:
    path = folder / f"{name}.toml"
    path.write_text(text)
    return str(path)


def has(folder: Path, name: str, public: str) -> str:
    """Let the file of ``name`` have the key ``public``, which is returned."""
    written(folder, to_toml(Key(name, public), None), name)
    return public


def test_a_file_says_all_of_a_key(tmp_path: Path) -> None:
    found = read_authorised(written(tmp_path, FILE))
    assert found.until == datetime(2027, 1, 1, tzinfo=UTC).timestamp()
    assert found.is_valid(found.until - 1) and not found.is_valid(found.until)
    rights = (
        Right(frozenset(["serve"]), ("compute", "compute.node-7"), ("nova",)),
        Right(frozenset(["call", "cast"]), ("#",)),
    )
    expires = "2027-01-01T00:00:00+00:00"
    key = Key("node-7", PUBLIC, rights, ("node-7", "worker-*"), "ops@example.org", expires, 10, 1000)
    assert found.key == key
    assert summary(key) == "serve [nova] compute,compute.node-7; call,cast #"


@pytest.mark.parametrize(
    "key",
    [
        Key("a", PUBLIC, (EVERYTHING,)),
        Key("a", PUBLIC, formats=Format.JSON.bit | Format.PICKLE.bit),
        Key("a", PUBLIC, owner='He said "no" \\ \n'),
        Key("a", PUBLIC, (Right(frozenset([MESH_VERB]), ("#",), ("*",)),)),
        Key("a", PUBLIC, (Right(frozenset(["call"]), ("x",), ("", "nova")),), ("a", "b*"), "o", "", 3, 0.5),
    ],
)
def test_what_is_written_is_what_is_read(tmp_path: Path, key: Key) -> None:
    assert read_authorised(written(tmp_path, to_toml(key, None), "a")).key == key
    until = datetime(2030, 5, 6, 7, 8, 9, tzinfo=UTC)
    assert read_authorised(written(tmp_path, to_toml(key, until), "a")).until == until.timestamp()


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ('name = "node-7"', 'name = "node-8"', "name = 'node-8': expected 'node-7', as the file is called"),
        (f'public = "{PUBLIC}"', "", "public is missing"),
        (PUBLIC, "~" * 40, "public: .* is no key"),
        ('owner = "ops@example.org"', "owner = 7", "owner = 7: expected str"),
        ('owner = "ops@example.org"', 'ownr = "x"', "ownr: unknown"),
        ("expires = 2027-01-01T00:00:00Z", "expires = 2027-01-01T00:00:00", "expires = .*with its offset"),
        ("expires = 2027-01-01T00:00:00Z", "expires = 2027-01-01", "expires = .*: expected datetime"),
        ('["node-7", "worker-*"]', "[]", r"identities = \[\]: expected a list of texts"),
        ('["node-7", "worker-*"]', "[7]", r"identities = \[7\]"),
        ("max_links = 10", "max_links = true", "max_links = True"),
        ("max_links = 10", 'formats = ["yaml"]', r"formats = \['yaml'\]: unknown payload format 'yaml'"),
        ("max_links = 10", 'formats = ["pickle"]', "json must be among them"),
        ("max_links = 10", "formats = []", "formats = .*: expected a list of texts"),
        ("max_links = 10", "max_links = -1", "max_links = -1: expected 0 or more"),
        ("messages_per_second = 1000", 'messages_per_second = "x"', "messages_per_second = 'x': expected int or float"),
        ('verbs = ["serve"]', 'verbs = ["srve"]', r"rights\[0\].verbs: 'srve' is unknown; known: call"),
        ('verbs = ["serve"]', "", r"rights\[0\].verbs is missing"),
        ('verbs = ["serve"]', 'verbs = ["mesh"]', r"rights: a key with the right 'mesh' is a router's and can have no"),
        ('topics = ["#"]', "", r"rights\[1\].topics is missing"),
        ('topics = ["#"]', 'topics = ["a..b"]', r"rights\[1\].topics: 'a..b' is no pattern"),
        ('topics = ["#"]', 'topics = "#"', r"rights\[1\].topics = '#': expected a list"),
        ('topics = ["#"]', 'topics = ["#"]\ntopic = 1', r"rights\[1\].topic: unknown"),
        ('name = "node-7"', 'name = "node-7', "not valid TOML"),
    ],
)
def test_what_is_wrong_names_file_and_key(tmp_path: Path, old: str, new: str, expected: str) -> None:
    assert FILE.count(old) == 1
    path = written(tmp_path, FILE.replace(old, new))
    with pytest.raises(ConfigError, match=expected) as caught:
        read_authorised(path)
    assert str(caught.value).startswith(path)


def names(authorized_keys: AuthorizedKeys) -> set[str]:
    return {key.name for key in authorized_keys.valid.values()}


def added(folder: Path, name: str, until: datetime | None = None) -> str:
    return written(folder, to_toml(Key(name, new_pair()[0], (EVERYTHING,)), until), name)


def test_files_that_come_change_and_go(tmp_path: Path) -> None:
    added(tmp_path, "a")
    authorized_keys = AuthorizedKeys(str(tmp_path))
    assert authorized_keys.read() == [] and authorized_keys.changed(0.0) and names(authorized_keys) == {"a"}
    assert not authorized_keys.changed(0.0)
    added(tmp_path, "b")
    (tmp_path / "notes.txt").write_text("not a key")
    assert authorized_keys.read() == [] and authorized_keys.changed(0.0) and names(authorized_keys) == {"a", "b"}
    added(tmp_path, "a")
    before = set(authorized_keys.valid)
    assert authorized_keys.read() == [] and authorized_keys.changed(0.0) and set(authorized_keys.valid) != before
    (tmp_path / "a.toml").unlink()
    assert authorized_keys.read() == [] and authorized_keys.changed(0.0) and names(authorized_keys) == {"b"}


def test_a_key_expires_while_nothing_else_happens(tmp_path: Path) -> None:
    until = datetime(2030, 1, 1, tzinfo=UTC)
    added(tmp_path, "a", until)
    authorized_keys = AuthorizedKeys(str(tmp_path))
    authorized_keys.read()
    assert authorized_keys.changed(until.timestamp() - 1)
    (public,) = authorized_keys.valid
    assert authorized_keys.refusal_reason(public) == ""
    assert authorized_keys.changed(until.timestamp()) and not authorized_keys.valid
    assert authorized_keys.refusal_reason(public) == "key 'a' has expired"
    assert authorized_keys.refusal_reason("other") == "unknown key"


def test_a_file_that_goes_wrong_leaves_its_key_and_is_said_once(tmp_path: Path) -> None:
    path = added(tmp_path, "a")
    authorized_keys = AuthorizedKeys(str(tmp_path))
    authorized_keys.read()
    authorized_keys.changed(0.0)
    Path(path).write_text("name = ")
    (problem,) = authorized_keys.read()
    assert problem.startswith(path)
    assert authorized_keys.read() == [] and not authorized_keys.changed(0.0) and names(authorized_keys) == {"a"}
    Path(path).unlink()
    assert authorized_keys.read() == [] and authorized_keys.changed(0.0) and not authorized_keys.valid


def test_one_key_has_one_file(tmp_path: Path) -> None:
    public = new_pair()[0]
    written(tmp_path, to_toml(Key("a", public), None), "a")
    written(tmp_path, to_toml(Key("b", public, (EVERYTHING,)), None), "b")
    authorized_keys = AuthorizedKeys(str(tmp_path))
    (problem,) = authorized_keys.read()
    assert "b.toml: public: is the key of" in problem
    authorized_keys.changed(0.0)
    assert names(authorized_keys) == {"a"}
    assert authorized_keys.read() == []


def test_a_file_that_was_renamed_by_a_copy_has_its_key_when_the_other_is_gone(tmp_path: Path) -> None:
    public = new_pair()[0]
    old = written(tmp_path, to_toml(Key("a", public), None), "a")
    authorized_keys = AuthorizedKeys(str(tmp_path))
    assert authorized_keys.read() == []
    written(tmp_path, to_toml(Key("b", public, (EVERYTHING,)), None), "b")
    assert len(authorized_keys.read()) == 1 and authorized_keys.read() == []
    Path(old).unlink()
    assert authorized_keys.read() == [] and authorized_keys.changed(0.0)
    assert names(authorized_keys) == {"b"}


def test_two_files_that_exchange_their_keys(tmp_path: Path) -> None:
    authorized_keys = AuthorizedKeys(str(tmp_path))
    first, second = (has(tmp_path, name, new_pair()[0]) for name in "ab")
    assert authorized_keys.read() == []
    has(tmp_path, "a", second)
    has(tmp_path, "b", first)
    assert authorized_keys.read() == []
    assert {a.key.name: a.key.public for a in authorized_keys.all.values()} == {"a": second, "b": first}


def test_a_key_that_was_given_away_is_not_its_former_owners_any_more(tmp_path: Path) -> None:
    authorized_keys = AuthorizedKeys(str(tmp_path))
    _, second, third = (has(tmp_path, name, new_pair()[0]) for name in "abc")
    assert authorized_keys.read() == []
    has(tmp_path, "a", second)
    has(tmp_path, "b", third)
    assert [problem for problem in authorized_keys.read() if "is the key of" in problem]
    assert {a.key.name: a.key.public for a in authorized_keys.all.values()} == {"a": second, "c": third}
    (tmp_path / "c.toml").unlink()
    assert authorized_keys.read() == []
    assert {a.key.name: a.key.public for a in authorized_keys.all.values()} == {"a": second, "b": third}


def test_a_key_that_was_refused_for_its_twin_comes_in_when_that_has_another(tmp_path: Path) -> None:
    public = new_pair()[0]
    written(tmp_path, to_toml(Key("b", public), None), "b")
    authorized_keys = AuthorizedKeys(str(tmp_path))
    authorized_keys.read()
    written(tmp_path, to_toml(Key("a", public), None), "a")
    assert len(authorized_keys.read()) == 1
    written(tmp_path, to_toml(Key("b", new_pair()[0]), None), "b")
    assert authorized_keys.read() == [] and authorized_keys.read() == []
    authorized_keys.changed(0.0)
    assert names(authorized_keys) == {"a", "b"}


def test_a_folder_that_is_gone_is_said_and_changes_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "authorized"
    folder.mkdir()
    added(folder, "a")
    authorized_keys = AuthorizedKeys(str(folder))
    authorized_keys.read()
    authorized_keys.changed(0.0)
    folder.rename(tmp_path / "elsewhere")
    (problem,) = authorized_keys.read()
    assert "cannot be read" in problem
    assert authorized_keys.read() == [] and not authorized_keys.changed(0.0) and names(authorized_keys) == {"a"}


def test_a_link_to_a_file_that_is_gone_is_a_key_that_is_gone(tmp_path: Path) -> None:
    (tmp_path / "authorized").mkdir()
    target = Path(added(tmp_path, "a"))
    (tmp_path / "authorized" / "a.toml").symlink_to(target)
    authorized_keys = AuthorizedKeys(str(tmp_path / "authorized"))
    assert authorized_keys.read() == [] and authorized_keys.changed(0.0) and names(authorized_keys) == {"a"}
    target.unlink()
    assert authorized_keys.read() == [] and authorized_keys.changed(0.0) and names(authorized_keys) == set()


def test_what_is_written_in_the_same_instant_is_read_again(tmp_path: Path) -> None:
    """The clock of a file system may have stood still between two writes: nothing tells them apart but the content."""
    path = Path(added(tmp_path, "a"))
    authorized_keys = AuthorizedKeys(str(tmp_path))
    authorized_keys.read()
    assert authorized_keys._files[str(path)] == (), "young, so it is read again"
    os.utime(path, ns=(1, 1))
    before = path.stat().st_ctime
    authorized_keys.read()
    assert authorized_keys._files[str(path)] == () or time() - before >= 2.0


def test_a_file_that_others_come_to_be_able_to_change_leaves_its_key_as_it_was(tmp_path: Path) -> None:
    path = Path(added(tmp_path, "a"))
    authorized_keys = AuthorizedKeys(str(tmp_path))
    authorized_keys.read()
    authorized_keys.changed(0.0)
    path.write_text(path.read_text().replace('topics = ["#"]', 'topics = ["mine"]'))
    path.chmod(0o666)
    (problem,) = authorized_keys.read()
    assert "others can change it" in problem and not authorized_keys.changed(0.0)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("messages_per_second = nan", "messages_per_second = nan"),
        ("messages_per_second = inf", "messages_per_second = inf"),
        ("expires = 0001-01-01T00:00:00+14:00", "out of the range"),
    ],
)
def test_numbers_and_times_that_no_clock_knows_are_refused(tmp_path: Path, line: str, expected: str) -> None:
    text = f'name = "node-7"\npublic = "{PUBLIC}"\n{line}\nrights = []\n'
    with pytest.raises(ConfigError, match=expected):
        read_authorised(written(tmp_path, text))
