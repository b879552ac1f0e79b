"""``rpcmq sub`` and ``rpcmq publish``, in pipes and at a terminal's Ctrl-C."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from gevent import subprocess

from rpcmq import Client
from tests.server.daemons import COMMAND, SECONDS, environment, eventually, run

pytestmark = pytest.mark.integration

Invoke = Callable[..., SimpleNamespace]


@contextmanager
def subscribed(
    system: SimpleNamespace, *arguments: str, stdout: int = subprocess.PIPE
) -> Iterator[subprocess.Popen[str]]:
    """``rpcmq sub``, once the router has its subscription."""
    process = subprocess.Popen(
        [*COMMAND, "sub", *arguments], env=environment(**system.env), stdout=stdout, stderr=subprocess.PIPE,
        text=True,
    )  # fmt: skip
    patterns = {each for each in arguments if not each.startswith("-") and not each.isdigit()}
    try:
        with Client(system.url) as client:
            eventually(lambda: patterns <= {p for row in rows(client) for p in row.get("patterns", ())})
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def rows(client: Client) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = client.query("processes")["processes"]
    return found


def test_what_is_published_is_printed(invoke: Invoke, system: SimpleNamespace) -> None:
    with subscribed(system, "disk.#", "cpu.*", "--count", "3") as sub:
        ended = run("publish", "disk.node-3.sda", '{"free": 3}', env=system.env)
        assert (ended.returncode, ended.stdout, ended.stderr) == (0, "sent 1 event to 1 subscriber\n", "")
        assert invoke("publish", "cpu.node-3.load", "5", env=system.env).stdout == (
            "sent 1 event to nobody: no pattern matches 'cpu.node-3.load'\n"
        )
        assert invoke("publish", "cpu.node-3", "hot", "--json", env=system.env).stdout == (
            '{"events": 1, "confirmed": true, "subscribers": 1}\n'
        )
        assert invoke("publish", "disk", "5", "--no-confirm", env=system.env).stdout == ""
        output, errors = sub.communicate(timeout=SECONDS)
    assert (sub.returncode, errors) == (0, "")
    assert output == 'disk.node-3.sda {"free": 3}\ncpu.node-3 "hot"\ndisk 5\n'


def test_no_input_is_not_told_as_events_that_nobody_wants(system: SimpleNamespace) -> None:
    ended = run("publish", "lines", "-", env=system.env)
    assert (ended.returncode, ended.stdout) == (0, "sent nothing: standard input has no lines\n")


def test_lines_of_standard_input_are_published_and_printed_as_json(system: SimpleNamespace) -> None:
    with subscribed(system, "lines", "--count", "3", "--json") as sub:
        ended = subprocess.run(
            [*COMMAND, "publish", "lines", "-", "--ctx", '{"user": "u"}'], input='1\n"two"\nthree\n',
            env=environment(**system.env), capture_output=True, text=True, timeout=30, check=True,
        )  # fmt: skip
        assert ended.stdout == "sent 3 events to 1 subscriber\n"
        output, _ = sub.communicate(timeout=SECONDS)
    printed = [json.loads(line) for line in output.splitlines()]
    assert printed == [{"topic": "lines", "context": {"user": "u"}, "payload": p} for p in (1, "two", "three")]


def test_a_notification_is_matched_with_its_priority_before_its_type(system: SimpleNamespace) -> None:
    """``subscribe("compute.#")`` gets nothing of ``notify("compute.x")``."""
    with (
        subscribed(system, "compute.#", "notifications.*.compute.#", "--count", "1", "--json") as sub,
        Client(system.url) as client,
    ):
        assert client.publish(None, "compute.x", 1, confirm=True) == 1
        printed = json.loads(sub.communicate(timeout=SECONDS)[0])
        assert printed["topic"] == "compute.x"
    with (
        subscribed(system, "compute.#", "notifications.*.compute.#", "--count", "1", "--json") as sub,
        Client(system.url) as client,
    ):
        assert client.notify(None, "compute.x", {"id": 1}, confirm=True) == 1
        assert client.notify(None, "volume.x", {"id": 1}, confirm=True) == 0
        printed = json.loads(sub.communicate(timeout=SECONDS)[0])
        assert (printed["topic"], printed["payload"]["payload"]) == ("notifications.info.compute.x", {"id": 1})


def test_a_reader_that_goes_ends_it(invoke: Invoke, system: SimpleNamespace) -> None:
    reader, writer = os.pipe()
    with subscribed(system, "pipe", stdout=writer) as sub:
        os.close(writer)
        os.close(reader)
        invoke("publish", "pipe", "1", env=system.env)
        _, errors = sub.communicate(timeout=SECONDS)
    assert (sub.returncode, errors) == (141, "")


@pytest.mark.parametrize("arguments", [(), ("--json",)])
def test_ctrl_c_ends_it_without_a_word(system: SimpleNamespace, arguments: tuple[str, ...]) -> None:
    with subscribed(system, "quiet.#", *arguments) as sub:
        sub.send_signal(signal.SIGINT)
        output, errors = sub.communicate(timeout=SECONDS)
    assert (sub.returncode, output, errors.strip()) == (130, "", "")


def test_what_a_terminal_would_obey_is_escaped(invoke: Invoke, system: SimpleNamespace) -> None:
    with subscribed(system, "escape.#", "--count", "1") as sub:
        invoke("publish", "escape.x", '"\\u001b[31m"', env=system.env)
        output, _ = sub.communicate(timeout=SECONDS)
    assert output == 'escape.x "\\u001b[31m"\n'


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["sub"], "Missing argument 'PATTERN...'"),
        (["sub", "a..b"], "a..b"),
        (["publish", "a"], "Missing argument 'PAYLOAD'"),
        (["publish", "", "1"], "has an empty word"),
        (["publish", "a", "1", "--ctx", "[]"], "expected a JSON object"),
    ],
)
def test_wrong_usage_is_code_2(
    invoke: Callable[..., SimpleNamespace], system: SimpleNamespace, arguments: list[str], complaint: str
) -> None:
    ended = invoke(*arguments, env=system.env)
    assert ended.returncode == 2 and complaint in ended.stderr and "Traceback" not in ended.stderr


@pytest.mark.parametrize("arguments", [("sub", "#"), ("publish", "a", "1"), ("purge", "a"), ("kick", "a")])
def test_an_absent_router_is_one_line_and_code_3(
    invoke: Callable[..., SimpleNamespace], arguments: tuple[str, ...]
) -> None:
    ended = invoke(*arguments, "--timeout", "0.5", env={"RPCMQ_ROUTER": "tcp://127.0.0.1:1"})
    assert (ended.returncode, ended.stdout) == (3, "") and len(ended.stderr.splitlines()) == 1
