"""The commands that read a dispatch log, where there is none."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from rpcmq.cli.exit_codes import ExitCode
from tests.latency.spools import many, spooled

COMMANDS = [
    ("latency", "report", "--log", "{}", "--out", "out"),
    ("latency", "why", "--log", "{}"),
    ("latency", "trace", "00f067aa0ba902b700f067aa0ba902b7", "--log", "{}"),
    ("latency", "policy", "--log", "{}", "--out", "policy.json"),
    ("latency", "compare", "{}", "{}"),
    ("latency", "stream", "--log", "{}", "--out", "out", "--once"),
    ("ship", "--log", "{}", "--once"),
]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: " ".join(command[:2]))
def test_every_command_says_that_there_is_no_log_before_it_starts_anything(
    tmp_path: Path, invoke: Callable[..., SimpleNamespace], monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    wrong = tmp_path / "wrong"
    wrong.mkdir()
    monkeypatch.chdir(tmp_path)

    done = invoke(*(part.format(wrong) for part in command))

    assert done.returncode == ExitCode.USAGE
    assert done.stderr.splitlines()[-1].startswith(f"rpcmq: {wrong}: no dispatch log here")
    assert not list(wrong.iterdir())


@pytest.mark.parametrize("command", COMMANDS[:5], ids=lambda command: " ".join(command[:2]))
def test_every_command_says_that_a_spool_waits(
    tmp_path: Path, invoke: Callable[..., SimpleNamespace], monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    spooled(tmp_path / "log", many(1, 10))
    monkeypatch.chdir(tmp_path)

    done = invoke(*(part.format(tmp_path / "log") for part in command))

    assert done.returncode == ExitCode.USAGE
    assert "nothing was shipped yet, 1 spool file waits: run `rpcmq ship --log" in done.stderr
