"""The example of README.md is run, and prints what README.md says."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from rpcmq.testing.processes import Program, RouterProcess

README = (Path(__file__).parents[2] / "README.md").read_text()


def block(language: str, containing: str) -> str:
    """The code block of the README in ``language`` that contains ``containing``."""
    blocks = re.findall(rf"```{language}\n(.*?)```", README, flags=re.DOTALL)
    found: list[str] = [text for text in blocks if containing in text]
    assert len(found) == 1, f"{len(found)} blocks in {language} of README.md contain {containing!r}"
    return found[0]


def without_durations(text: str) -> list[str]:
    """Its lines; a busy machine may take a little longer than README.md says."""
    return re.sub(r"\d+\.\d s", "some s", text).splitlines()


@pytest.mark.integration
def test_example_prints_what_the_readme_says(tmp_path: Path) -> None:
    example = tmp_path / "hello.py"
    example.write_text(block("python", "# hello.py"))
    command = [sys.executable, "-W", "error", str(example)]
    with RouterProcess() as router, Program(command, {"RPCMQ_ROUTER": router.url}) as program:
        assert program.wait(60) == 0, program.said()
        printed = "\n".join(program.lines)
    assert without_durations(printed) == without_durations(block("text", "rebooted for"))


def test_example_is_short() -> None:
    lines = [line for line in block("python", "# hello.py").splitlines() if line.strip()]
    assert len(lines) <= 20


def test_files_that_the_readme_links_to_exist() -> None:
    checkout = Path(__file__).parents[2]
    links = re.findall(r"\]\(([^)#:]+)\)", README)
    assert links
    assert [link for link in links if not (checkout / link).exists()] == []
