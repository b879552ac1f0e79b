"""``rpcmq ls``, ``describe``, ``ping``, ``top``, ``version``, ``--help``: what they show."""

from __future__ import annotations

import json
import os
import pty
import signal
import sys
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import click
import pytest
from gevent import subprocess

from rpcmq import Client, Service, __version__
from rpcmq.cli import listing
from rpcmq.cli.commands import COMMANDS, group
from rpcmq.cli.exit_codes import EXIT_CODES
from rpcmq.client.served_methods import ServedMethods
from tests.server.daemons import COMMAND, SECONDS, environment, eventually, router, run
from tests.views import VIEWS

pytestmark = pytest.mark.integration

Invoke = Callable[..., SimpleNamespace]


def json_of(invoke: Invoke, *arguments: str, env: dict[str, str]) -> Any:
    ended = invoke(*arguments, "--json", env=env)
    assert (ended.returncode, ended.stderr) == (0, "")
    [line] = ended.stdout.splitlines()
    return json.loads(line)


def test_the_version_is_an_option_too(invoke: Invoke) -> None:
    assert invoke("--version").stdout == f"rpcmq, version {__version__}\n"


def test_help_lists_the_commands_and_exit_codes_and_loads_nothing() -> None:
    ended = run("--help")
    assert ended.returncode == 0
    words = [line.split()[0] for line in ended.stdout.splitlines() if line.strip()]
    assert set(COMMANDS) <= set(words)
    assert {str(int(code)) for code in EXIT_CODES} <= set(words)
    program = "import sys, atexit; atexit.register(lambda: print(*sys.modules)); from rpcmq.cli import main; main()"
    command = [sys.executable, "-c", program, "--help"]
    loaded = subprocess.run(command, capture_output=True, text=True, timeout=30, env=environment(), check=True)
    assert not {"gevent", "zmq", "rich", "dill"} & set(loaded.stdout.split())


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_has_help(invoke: Invoke, command: str) -> None:
    ended = invoke(command, "--help")
    assert ended.returncode == 0 and ended.stdout.startswith(f"Usage: rpcmq {command} ")


def helps(command: click.Command, name: str, parent: click.Context | None = None) -> Iterator[tuple[str, str]]:
    """The help of ``command`` and those below it, by name, on a terminal of 80 columns."""
    context = click.Context(command, info_name=name.split()[-1], parent=parent, terminal_width=80)
    yield name, command.get_help(context)
    if isinstance(command, click.Group):
        for each in command.list_commands(context):
            below = command.get_command(context, each)
            assert below is not None
            yield from helps(below, f"{name} {each}", context)


def test_help_fits_80_columns() -> None:
    found = dict(helps(group, "rpcmq"))
    assert len(found) > len(COMMANDS) and "rpcmq keys add" in found
    long = [f"{name}: {line}" for name, text in found.items() for line in text.splitlines() if len(line) > 80]
    assert not long, "\n".join(long)


def test_an_unknown_command_is_code_2(invoke: Invoke) -> None:
    ended = invoke("lss")
    assert ended.returncode == 2 and "No such command 'lss'" in ended.stderr


def test_version(invoke: Invoke) -> None:
    from rpcmq import __version__

    assert json_of(invoke, "version", env={})["rpcmq"] == __version__
    assert invoke("version").stdout.splitlines()[0].split() == ["rpcmq", __version__]


def test_ls_shows_processes_topics_and_consumers(invoke: Invoke, system: SimpleNamespace) -> None:
    view = json_of(invoke, "ls", env=system.env)
    assert system.identity in {row["identity"] for row in view["processes"]}
    [topic] = [row for row in view["topics"] if row["topic"] == "compute"]
    [consumer] = topic["consumers"]
    assert (consumer["server"], consumer["credit"], consumer["identity"]) == ("node-7", 64, system.identity)

    ended = invoke("ls", env=system.env)
    assert (ended.returncode, ended.stderr) == (0, "")
    lines = ended.stdout.splitlines()
    [row] = [line.split() for line in lines if line.startswith("compute") and system.identity in line]
    assert row[:4] == ["compute", "node-7", system.identity, "64"]
    assert any(line.startswith("Processes") for line in lines) and any(line.startswith("Topics") for line in lines)


@pytest.mark.parametrize("view", ["summary", "processes", "topics", "calls", "methods"])
def test_ls_shows_one_view(invoke: Invoke, system: SimpleNamespace, view: str) -> None:
    answer = json_of(invoke, "ls", "--view", view, env=system.env)
    assert ("boot" if view == "summary" else view) in answer
    ended = invoke("ls", "--view", view, env=system.env)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.startswith("Router" if view == "summary" else view.capitalize())


def test_ls_marks_what_is_stuck_or_has_no_consumer(invoke: Invoke, system: SimpleNamespace) -> None:
    assert invoke("cast", "orphan", "x", env=system.env).returncode == 0
    call = subprocess.Popen(
        [*COMMAND, "call", "compute", "sleep", "seconds=60.5"], env=environment(**system.env), stderr=subprocess.PIPE
    )
    try:
        with Client(system.url) as client:
            eventually(
                lambda: any(c["state"] == "in flight" and c["seconds"] > 0.1 for c in client.query("calls")["calls"])
            )
        lines = invoke("ls", "--mark-after", "0.1", env=system.env).stdout.splitlines()
        [row] = [line for line in lines if line.startswith("compute") and system.identity in line]
        assert row.split()[-1] == "stuck"
        [row] = [line for line in lines if line.startswith("orphan")]
        assert row.rstrip().endswith("no consumer, never seen")
        calls = invoke("ls", "--view", "calls", env=system.env).stdout
        assert "sleep" in calls and "in flight" in calls
    finally:
        call.send_signal(signal.SIGINT)
        call.communicate(timeout=SECONDS)


def test_describe(invoke: Invoke, system: SimpleNamespace) -> None:
    answer = json_of(invoke, "describe", "compute", env=system.env)
    methods = {method["name"]: method for method in answer["methods"]}
    assert methods["add"]["signature"].startswith("(ctx: ")
    printed = invoke("describe", "compute.node-7", env=system.env).stdout
    assert printed.startswith("compute: Compute on node-7\n")
    assert "\n      Add two values.\n\n      Of whatever type.\n" in printed


def test_describe_of_a_topic_that_nobody_consumes_says_so_at_once(invoke: Invoke, system: SimpleNamespace) -> None:
    """An answer after the ten seconds of its timeout would be a CallTimeout, code 4."""
    ended = invoke("describe", "nobody", env=system.env)
    assert ended.returncode == 5 and ended.stdout == ""
    assert ended.stderr == "rpcmq: no consumer on 'nobody' (never seen)\n"
    ended = invoke("describe", "compute.node-8", "--json", env=system.env)
    assert ended.returncode == 5
    told = json.loads(ended.stdout or ended.stderr)
    assert (told["error"], told["exit_code"]) == ("NoConsumer", 5) and "'compute.node-8'" in told["text"]


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (None, "a NoneType in place of a mapping"),
        ([1], "a list in place of a mapping"),
        ({"topic": "odd"}, "its 'server' is missing or no text"),
        ({"topic": "odd", "server": "s", "endpoint": "e", "methods": 5}, "its 'methods' is no list"),
        ({"topic": "odd", "server": "s", "endpoint": "e", "methods": [None]}, "a NoneType in place of a mapping"),
        (
            {"topic": "odd", "server": "s", "endpoint": "e", "methods": [{"name": "x", "signature": "()", "doc": 5}]},
            "its 'doc' is missing or no text",
        ),
    ],
)
def test_a_malformed_description_is_an_error_that_says_what_is_wrong(
    invoke: Invoke, system: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, answer: Any, says: str
) -> None:
    monkeypatch.setattr(ServedMethods, "_describe", lambda self, ctx: answer)
    monkeypatch.setattr(ServedMethods, "_ping", lambda self, ctx: answer)
    with Client(system.url) as client, Service("odd", SimpleNamespace(run=print), client=client):
        for arguments in (("describe", "odd"), ("describe", "odd", "--json")):
            ended = invoke(*arguments, env=system.env)
            assert (ended.returncode, ended.stdout) == (1, "")
            assert "'odd' answered 'rpcmq.describe' with something that is no description: " in ended.stderr
            assert says in ended.stderr and "Traceback" not in ended.stderr
        ended = invoke("ping", "odd", "--count", "1", env=system.env)
        assert (ended.returncode, ended.stdout) == (1, "")
        assert "'rpcmq.ping' with something that has no 'identity'" in ended.stderr


def test_ping(invoke: Invoke, system: SimpleNamespace) -> None:
    [row] = json_of(invoke, "ping", "--count", "3", "--interval", "0", env=system.env)
    assert (row["target"], row["count"]) == ("router", 3)
    assert 0 < row["min_us"] <= row["avg_us"] <= row["max_us"]
    for topic in ("compute", "compute.node-7"):
        [row] = json_of(invoke, "ping", topic, "--count", "2", "--interval", "0", env=system.env)
        assert (row["target"], row["answered_by"], row["count"]) == ("compute.node-7", system.identity, 2)
    printed = invoke("ping", "compute", "--count", "1", env=system.env).stdout
    assert printed.startswith(f"compute.node-7 ({system.identity}): 1 round trips, min ")
    assert invoke("ping", "nobody", "--timeout", "1", env=system.env).returncode == 5


def test_top_shows_the_rates_of_an_interval(invoke: Invoke, system: SimpleNamespace) -> None:
    assert invoke("call", "compute", "add", "a=1", env=system.env).returncode == 0
    sample = json_of(invoke, "top", "--once", "--interval", "0.2", "--all", env=system.env)
    [row] = [row for row in sample["methods"] if (row["topic"], row["method"]) == ("compute", "add")]
    # It was called before, not in, the interval.
    assert row["calls_per_second"] == 0 and row["latency_us"] == {"p50": None, "p90": None, "p99": None}
    assert sample["interval_seconds"] >= 0.2
    printed = invoke("top", "--once", "--interval", "0.1", "--all", env=system.env)
    assert printed.returncode == 0 and printed.stdout.startswith("router ")
    assert any(line.split()[:2] == ["compute", "add"] for line in printed.stdout.splitlines())


def test_top_goes_on_for_a_program_until_it_is_interrupted(system: SimpleNamespace) -> None:
    with subprocess.Popen(
        [*COMMAND, "top", "--interval", "0.05", "--json"],
        env=environment(**system.env),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as top:
        assert top.stdout is not None and top.stderr is not None
        for _ in range(3):
            assert "methods" in json.loads(top.stdout.readline())
        top.send_signal(signal.SIGINT)
        assert top.wait(SECONDS) == 130
        assert top.stderr.read().strip() == ""


def test_top_draws_on_a_terminal(system: SimpleNamespace) -> None:
    main, terminal = pty.openpty()
    try:
        with subprocess.Popen(
            [*COMMAND, "top", "--interval", "0.05", "--all"],
            env=environment(**system.env, TERM="xterm", COLUMNS="100", LINES="30"),
            stdin=terminal,
            stdout=terminal,
            stderr=subprocess.PIPE,
        ) as top:
            drawn = b""
            while drawn.count(b"calls in flight") < 2:
                drawn += os.read(main, 10_000)
            top.send_signal(signal.SIGINT)
            assert top.wait(SECONDS) == 130
            assert top.stderr is not None and top.stderr.read().strip() == b""
    finally:
        os.close(main)
        os.close(terminal)
    assert b"calls/s" in drawn


def test_a_dispatch_log_that_loses_records_is_named():
    state = {"dropped": 0, "records": 7, "problem": ""}
    assert list(listing._log_problem({"dispatch_log": None})) == []
    assert list(listing._log_problem({"dispatch_log": state})) == []
    (line,) = listing._log_problem({"dispatch_log": state | {"dropped": 3, "problem": "No space left: /log"}})
    assert line == "dispatch log: 3 records dropped, 7 written: No space left: /log"


def test_ls_lists_what_is_stuck(invoke: Invoke) -> None:
    # Handlers of other tests may still run in the system's service.
    with router() as daemon:
        env = {"RPCMQ_ROUTER": daemon.url}
        assert json_of(invoke, "ls", "--stuck", env=env) == {"stuck": [], "truncated": 0}
        assert invoke("ls", "--stuck", env=env).stdout.startswith("Stuck")


@pytest.mark.parametrize("view", listing._VIEWS)
def test_each_view_is_printed(invoke: Invoke, system: SimpleNamespace, view: str) -> None:
    ended = invoke("ls", "--view", view, env=system.env)
    assert (ended.returncode, ended.stderr) == (0, "") and ended.stdout


def test_all_views_of_the_router_can_be_listed() -> None:
    assert set(listing._VIEWS) == set(VIEWS)
