"""The program in docs/typed-stubs.md is right for mypy --strict, and runs."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from gevent import subprocess

from rpcmq.testing import eventually
from tests.from_threads import in_thread

PAGE = Path(__file__).parent.parent.parent / "docs" / "typed-stubs.md"
PROGRAM = "\n".join(re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL))


class Compute:
    def __init__(self) -> None:
        self.refreshed = 0

    def reboot(self, ctx: Any, instance_id: str, hard: bool = False) -> str:
        return f"{instance_id} {hard}"

    def list_instances(self, ctx: Any) -> Iterator[str]:
        yield from ("i-1", "i-2")

    def refresh(self, ctx: Any) -> None:
        self.refreshed += 1


def test_the_page_runs(router, serve):
    compute = Compute()
    serve(compute)
    page: dict[str, Any] = {"__name__": "page"}
    in_thread(exec, PROGRAM, page)
    assert in_thread(page["restart_all"], None) == ["i-1 True", "i-2 True"]
    eventually(lambda: compute.refreshed == 2)
    assert in_thread(page["migrate"], None, "node-7") == "i-1 False"
    assert in_thread(lambda: asyncio.run(page["restart_first"]({"user": "u"}))) == "i-1 False"


@pytest.mark.long
@pytest.mark.timeout(400)
def test_the_page_is_right_for_mypy(tmp_path):
    (tmp_path / "page.py").write_text(PROGRAM)
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", "page.py"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    assert ended.returncode == 0, ended.stdout
