"""Trust policies: which rule applies, what it makes of a codec, and what is wrong in a file."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rpcmq.core.router.rights import matches
from rpcmq.errors import ConfigError, PayloadRefused, UsageError
from rpcmq.payload import AllowList, Codec, Format
from rpcmq.payload.trust import Policy, Rule, read_policy
from tests.payload.marks import MARKS, Mark, marked

MARK = "tests.payload.marks:Mark"
JSON, PICKLE, DILL = Format.JSON.bit, Format.PICKLE.bit, Format.DILL.bit


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "trust.toml"


def test_everything_that_a_policy_can_say(path: Path) -> None:
    path.write_text(
        """
window = 60
skew = 5.5
remember = 5000

[[topics]]
topics = ["compute.#", "image"]
exchanges = ["nova", "*"]
formats = ["json", "pickle"]
allow = ["tests.payload.marks:Mark"]
only = true
require = true
max_bytes = 5000
max_depth = 9
keys = {api = ["json"], batch = ["json", "dill"]}

[[topics]]
topics = ["#"]
"""
    )
    policy = read_policy(path)
    assert policy == Policy(
        (
            Rule(
                topics=("compute.#", "image"),
                exchanges=("nova", "*"),
                formats=JSON | PICKLE,
                allow=(MARK,),
                only=True,
                require=True,
                keys={"api": JSON, "batch": JSON | DILL},
                max_bytes=5000,
                max_depth=9,
            ),
            Rule(),
        ),
        60.0,
        5.5,
        5000,
    )
    assert policy.needs_keys and not Policy().needs_keys


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[[", "not valid TOML"),
        ("window = 0", "window = 0: expected seconds from 1"),
        ("window = true", "window = True: expected seconds"),
        ("remember = 1000.5", "remember = 1000.5: expected an integer"),
        ("topic = 1", "topic: unknown; known: window"),
        ("topics = 1", r"topics: expected tables \[\[topics\]\]"),
        ("[[topics]]", r"\[\[topics\]\] 1: topics is missing"),
        ('[[topics]]\ntopics = ["#"]\n[[topics]]\ntopics = "#"', r"\[\[topics\]\] 2: topics = '#': expected a list"),
        ('[[topics]]\ntopics = ["a..b"]', "'a..b': expected words between dots"),
        ('[[topics]]\ntopics = ["#"]\nexchanges = []', "exchanges = "),
        ('[[topics]]\ntopics = ["#"]\nformat = ["json"]', "format: unknown; known: topics"),
        ('[[topics]]\ntopics = ["#"]\nformats = ["yaml"]', r"formats = \['yaml'\]: unknown payload format 'yaml'"),
        ('[[topics]]\ntopics = ["#"]\nformats = ["pickle"]', "json must be among them"),
        ('[[topics]]\ntopics = ["#"]\nformats = "json"', "formats = 'json': expected a list"),
        ('[[topics]]\ntopics = ["#"]\nallow = "x"', "allow = 'x': expected a list"),
        ('[[topics]]\ntopics = ["#"]\nallow = ["x"]', "allow: .*'x' is not of the form"),
        ('[[topics]]\ntopics = ["#"]\nallow = ["os:system"]', "allow: .*run code"),
        ('[[topics]]\ntopics = ["#"]\nonly = true', "only = true needs allow"),
        ('[[topics]]\ntopics = ["#"]\nrequire = "yes"', "require = 'yes': expected true or false"),
        ('[[topics]]\ntopics = ["#"]\nmax_bytes = 5', "max_bytes = 5: expected an integer from 4096"),
        ('[[topics]]\ntopics = ["#"]\nmax_depth = 501', "max_depth = 501"),
        ('[[topics]]\ntopics = ["#"]\nkeys = ["a"]', "keys = .*expected a table"),
        ('[[topics]]\ntopics = ["#"]\nkeys = {a = ["dill"]}', "keys.a = .*json must be among"),
    ],
)
def test_what_is_wrong_is_named(path: Path, text: str, problem: str) -> None:
    path.write_text(text)
    with pytest.raises(ConfigError, match=problem) as caught:
        read_policy(path)
    assert str(caught.value).startswith(f"{path}: ")


def test_a_file_must_be_there(path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        read_policy(path)


def test_a_name_that_does_not_exist_is_found_at_start() -> None:
    policy = Policy((Rule(allow=("tests.payload.marks:Nobody",)),))
    with pytest.raises(ConfigError, match=r"topics \['#'\].*Nobody"):
        policy.check(Codec())


def test_the_first_rule_that_covers_a_topic_applies() -> None:
    one, two, rest = Rule(("compute",)), Rule(("compute.#",)), Rule(("#",), exchanges=("*",))
    policy = Policy((one, two, rest))
    assert policy.rule_for("", "compute") is one
    assert policy.rule_for("", "compute.node-7") is two
    assert policy.rule_for("nova", "compute") is rest
    assert policy.rule_for("", "image") is rest
    assert Policy((one,)).rule_for("", "image") == Rule()


WORDS = st.lists(st.sampled_from(["a", "b", "*", "#", "a+"]), min_size=1, max_size=6).map(".".join)


@given(WORDS, WORDS)
def test_patterns_are_those_of_rights(pattern: str, topic: str) -> None:
    assert Rule((pattern,)).covers("", topic) == matches(pattern, topic)


# --- codecs --------------------------------------------------------------------------------------


def test_a_rule_never_widens_what_the_process_accepts() -> None:
    base = Codec(max_bytes=10_000)
    made = Rule(formats=JSON | DILL, max_bytes=1 << 30).codec(base)
    assert (made.accepted, made.prefer, made.max_bytes) == (JSON, Format.JSON, 10_000)
    assert Rule().codec(base) == base


def test_size_and_depth() -> None:
    codec = Rule(max_bytes=4096, max_depth=8).codec(Codec())
    with pytest.raises(PayloadRefused, match="larger than max_bytes"):
        codec.decode(Format.JSON, b" " * 5000)
    with pytest.raises(PayloadRefused):
        codec.decode(Format.JSON, b"[" * 9 + b"]" * 9)
    assert codec.decode(Format.JSON, b"[" * 8 + b"]" * 8)


def test_globals_of_a_topic_are_beside_those_of_the_process_or_all_of_them() -> None:
    MARKS.clear()
    base = Codec()
    with pytest.raises(PayloadRefused):
        base.decode(Format.PICKLE, marked())
    assert isinstance(Rule(allow=(MARK,)).codec(base).decode(Format.PICKLE, marked())["payload"], Mark)
    assert MARKS == ["decoded"]
    allowing = Codec(allow=AllowList([MARK]))
    with pytest.raises(PayloadRefused, match=re.escape(MARK)):
        Rule(only=True).codec(allowing).decode(Format.PICKLE, marked())
    assert MARKS == ["decoded"]


def test_a_restricted_list_keeps_the_form_of_its_entries() -> None:
    base = Codec().allow
    narrow = base.restricted_to("datetime:datetime", MARK)
    assert narrow.names == ("datetime:datetime", MARK)
    assert narrow.find("datetime", "datetime") is base.find("datetime", "datetime")
    with pytest.raises(PayloadRefused):
        narrow.find("decimal", "Decimal")
    with pytest.raises(UsageError, match="run code"):
        base.restricted_to("os:system")


def test_every_standard_value_still_loads_under_a_list_of_all_names() -> None:
    from datetime import UTC, datetime
    from decimal import Decimal
    from uuid import UUID

    codec = Codec()
    value = [datetime(2026, 1, 1, tzinfo=UTC), Decimal(1), UUID(int=5), {1}, frozenset([2])]
    rule = Rule(only=True, allow=codec.allow.names)
    form, data = codec.encode(value)
    assert rule.codec(codec).decode(form, data) == value
