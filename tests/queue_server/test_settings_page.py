"""The table of settings in docs/queues.md is that of the code."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

from rpcmq.core.queue.policy import ON_LOST, Policy

PAGE = (Path(__file__).parents[2] / "docs" / "queues.md").read_text(encoding="utf-8")


def test_each_setting_stands_there_with_its_default() -> None:
    section = PAGE[PAGE.index("\n## Settings") : PAGE.index("\n## Dead items")]
    rows = dict(re.findall(r"^\| `(\w+)` \| (\S+) \|", section, re.MULTILINE))
    assert rows == {field.name: str(field.default) for field in fields(Policy)}
    assert all(f"`{choice}`" in section for choice in ON_LOST)
