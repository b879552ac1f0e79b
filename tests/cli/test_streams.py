"""Standard output that takes nothing: a full disk, a closed descriptor."""

from __future__ import annotations

import json
import shlex
from types import SimpleNamespace

import pytest
from gevent import subprocess

from tests.server.daemons import COMMAND, SECONDS, environment

pytestmark = pytest.mark.integration

#: All that write to standard output, each in its own way: the help, print, tables, JSON.
COMMANDS = ("--help", "version", "version --json", "ls", "call compute add a=1", "call compute items n=3 --multi")


def shell(line: str, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["sh", "-c", f"{shlex.join(COMMAND)} {line}"],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=SECONDS, env=environment(**env), check=False,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("redirection", "problem"), [(">/dev/full", "No space left on device"), (">&-", "Bad file descriptor")]
)
@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("buffered", [True, False])
def test_output_that_cannot_be_written_is_one_line_and_code_1(
    system: SimpleNamespace, command: str, redirection: str, problem: str, buffered: bool
) -> None:
    ended = shell(f"{command} {redirection}", {**system.env, "PYTHONUNBUFFERED": "" if buffered else "1"})
    text = f"standard output cannot be written: {problem}"
    if "--json" in command:
        assert json.loads(ended.stderr) == {"error": "RpcError", "text": text, "exit_code": 1}
    else:
        assert ended.stderr == f"rpcmq: {text}\n"
    assert ended.returncode == 1


def test_a_command_without_output_needs_none(system: SimpleNamespace) -> None:
    ended = shell("cast compute add a=1 <&- >&-", system.env)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_a_closed_standard_error_does_not_send_errors_to_the_output(system: SimpleNamespace) -> None:
    ended = shell("call compute fail text=x 2>&-", system.env)
    assert (ended.returncode, ended.stdout) == (6, "")
