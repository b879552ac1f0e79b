"""Audits: what they note, what they never admit, and the file that comes of it."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID

import pytest

from rpcmq.errors import ConfigError, PayloadRefused
from rpcmq.payload import AllowList, Codec, Format
from rpcmq.payload.audit import Audit
from rpcmq.payload.trust import read_policy
from tests.payload.marks import MARKS, Other, marked

MARK = "tests.payload.marks:Mark"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    MARKS.clear()
    return tmp_path / "audit.toml"


def take(audit: Audit, topic: str, codec: Codec, form: int, data: bytes) -> object:
    value = audit.codec("", topic, codec).decode(form, data)
    audit.decoded("", topic, form)
    return value


def test_what_was_seen_can_be_enforced_as_it_is(path: Path) -> None:
    codec = Codec(allow=Codec().allow.allowing(MARK))
    audit = Audit(path)
    value = [datetime(2026, 1, 1, tzinfo=UTC), UUID(int=5), {1}]
    form, data = codec.encode(value)
    assert take(audit, "compute", codec, form, data) == value
    take(audit, "marks", codec, Format.PICKLE, marked())
    take(audit, "plain", codec, Format.JSON, b"1")
    audit.write()

    policy = read_policy(path)
    policy.check(codec)
    compute, marks, plain, rest = (
        policy.rule_for("", topic).codec(codec) for topic in ("compute", "marks", "plain", "x")
    )
    assert compute.decode(form, data) == value
    assert marks.decode(Format.PICKLE, marked())
    for other in (compute, plain, rest):
        with pytest.raises(PayloadRefused):
            other.decode(Format.PICKLE, marked())
    assert (plain.accepted, rest.accepted) == (Format.JSON.bit, Format.JSON.bit)
    assert MARKS == ["decoded"] * 2


def test_an_audit_admits_nothing_more(path: Path) -> None:
    audit = Audit(path)
    for data in (marked(), marked(Other), b"\x80\x05cos\nsystem\n."):
        with pytest.raises(PayloadRefused):
            take(audit, "compute", Codec(), Format.PICKLE, data)
    audit.write()
    assert MARKS == []
    assert f"# refused meanwhile, for this topic: {MARK}" in path.read_text()
    assert read_policy(path).rule_for("", "compute").allow == ()


def test_a_hostile_name_does_not_get_into_the_file(path: Path) -> None:
    audit = Audit(path)
    noting = audit.codec("", "compute", Codec()).allow
    for name in ('x"]\nallow = ["os', "a\nb", "x" * 300):
        with pytest.raises(PayloadRefused):
            noting.find(name, "system")
    for number in range(1000):
        with pytest.raises(PayloadRefused):
            noting.find("m", f"name{number}")
    audit.decoded("", 'to"pic\\', Format.JSON)
    audit.write()
    assert len(path.read_text().splitlines()) < 130
    assert read_policy(path).rule_for("", 'to"pic\\').formats == Format.JSON.bit


def test_what_was_there_is_kept_and_several_share_a_file(path: Path) -> None:
    one, two = Audit(path), Audit(path)
    codec = Codec(allow=AllowList([MARK]))
    take(one, "a", codec, Format.PICKLE, marked())
    one.write()
    take(two, "b", codec, Format.PICKLE, marked())
    two.write()
    Audit(path).write()
    policy = read_policy(path)
    assert [policy.rule_for("", topic).allow for topic in "abc"] == [(MARK,), (MARK,), ()]
    assert [entry.name for entry in path.parent.iterdir() if entry.name.endswith((".toml", ".lock"))]
    assert len(list(path.parent.iterdir())) == 2


def test_nothing_new_is_not_written(path: Path) -> None:
    audit = Audit(path)
    audit.write()
    path.unlink()
    audit.write()
    assert not path.exists()


def test_another_file_is_never_written_over(path: Path) -> None:
    path.write_text("[[topics]]\n")
    with pytest.raises(ConfigError, match="is no file of an audit"):
        Audit(path)
    assert path.read_text() == "[[topics]]\n"


def test_a_folder_that_is_missing_is_named(path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be written"):
        Audit(path.parent / "missing" / "audit.toml")
