"""TOML: texts that are quoted are read as they were, and shown harmlessly; errors name the file."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rpcmq.errors import ConfigError
from rpcmq.toml import parse_toml, quoted, read_toml


@given(st.text())
def test_a_quoted_text_is_read_as_it_was(text: str):
    shown = quoted(text)
    assert shown.isprintable()
    assert tomllib.loads(f"a = {shown}") == {"a": text}


def test_a_list_of_texts():
    assert quoted(('say "a"', "b\\", "\x7f\x1b\u202e\U000e0001é")) == (
        r'["say \"a\"", "b\\", "\u007f\u001b\u202e\U000e0001é"]'
    )
    assert quoted(()) == "[]"


def test_errors_name_the_file(tmp_path: Path):
    with pytest.raises(ConfigError, match=r"none\.toml: cannot be read: No such file"):
        read_toml(tmp_path / "none.toml")
    for content in (b"[[", b"a = '\xff'", b"a = " + b"[" * 100_000):
        with pytest.raises(ConfigError, match="policy: not valid TOML: "):
            parse_toml("policy", content)
