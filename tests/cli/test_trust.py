"""``rpcmq trust``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rpcmq.transport.mac_files import read_mac_keys


def test_keys_are_made_added_and_used(invoke: Any, tmp_path: Path) -> None:
    file = tmp_path / "mac.toml"
    assert "RPCMQ_MAC_FILE" in invoke("trust", "key", str(file), "2026-11").stdout
    assert f"rpcmq trust use {file} 2026-12" in invoke("trust", "key", str(file), "2026-12").stdout
    assert "2026-12 signs; still read: 2026-11" in invoke("trust", "use", str(file), "2026-12").stdout
    assert read_mac_keys(file).write == "2026-12"


def test_a_policy_is_shown_as_it_is_read(invoke: Any, tmp_path: Path) -> None:
    file = tmp_path / "trust.toml"
    file.write_text('[[topics]]\ntopics = ["compute"]\nformats = ["json"]\nrequire = true\n')
    assert "compute" in invoke("trust", "check", str(file)).stdout
    (row,) = json.loads(invoke("trust", "check", str(file), "--json").stdout)["topics"]
    assert (row["topics"], row["formats"], row["require"]) == (["compute"], ["json"], True)


@pytest.mark.parametrize("text", ["[[", '[[topics]]\ntopics = ["#"]\nallow = ["no.such.module:Name"]'])
def test_a_wrong_policy_is_an_error(invoke: Any, tmp_path: Path, text: str) -> None:
    file = tmp_path / "trust.toml"
    file.write_text(text)
    ended = invoke("trust", "check", str(file))
    assert ended.returncode != 0 and ("TOML" in ended.stderr or "no.such.module" in ended.stderr)
