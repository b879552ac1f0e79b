"""``rpcmq call``, ``cast``, ``fanout``: arguments, output, exit codes."""

from __future__ import annotations

import json
import signal
import socket
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from gevent import subprocess

from rpcmq import Client, Service
from rpcmq.transport import gevent_names
from tests.server.daemons import COMMAND, SECONDS, environment, eventually, router, run, started

pytestmark = pytest.mark.integration

Invoke = Callable[..., SimpleNamespace]


@pytest.mark.parametrize(
    ("arguments", "printed"),
    [
        (["a=1", "b=3"], "4\n"),
        (["a=1.5"], "3.5\n"),
        (["a=x", "b=y=z"], '"xy=z"\n'),
        (["a=[1]", 'b=["x", null]'], '[\n  1,\n  "x",\n  null\n]\n'),
        (["--args", '{"a": "x", "b": "y"}'], '"xy"\n'),
        (["--args", '{"a": "x"}', "b=y", "--json"], '"xy"\n'),
        (["--json", "a=[1]", "b=[2]"], "[1, 2]\n"),
        (["a=NaN", "b= "], '"NaN "\n'),
    ],
)
def test_values_are_json_or_text(invoke: Invoke, system: SimpleNamespace, arguments: list[str], printed: str) -> None:
    ended = invoke("call", "compute", "add", *arguments, env=system.env)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, printed, "")


def test_what_json_has_no_form_for_is_printed_as_typed_json(invoke: Invoke, system: SimpleNamespace) -> None:
    ended = invoke("call", "compute.node-7", "started", "--json", env=system.env)
    assert json.loads(ended.stdout) == {"at": {"$": "datetime", "v": "2026-01-31T12:00:00+00:00"}}


def test_context_travels(system: SimpleNamespace) -> None:
    ended = run("call", "compute", "context", "--ctx", '{"user": "u"}', "--json", env=system.env)
    assert ended.stdout == '{"user": "u"}\n'


def test_items_are_printed_one_a_line(invoke: Invoke, system: SimpleNamespace) -> None:
    ended = invoke("call", "compute", "items", "n=3", "--multi", env=system.env)
    assert (ended.returncode, ended.stdout) == (0, "0\n1\n2\n")


def test_a_file_is_sent_as_a_stream(invoke: Invoke, system: SimpleNamespace, tmp_path: Path) -> None:
    file = tmp_path / "big.bin"
    file.write_bytes(bytes(600_000))
    ended = invoke("call", "compute", "size", "factor=2", "--stream", f"body=@{file}", env=system.env)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "1200000\n", "")
    ended = invoke("call", "compute", "sizes", "--multi", "--stream", f"body=@{file}", env=system.env)
    assert (ended.returncode, ended.stdout) == (0, "262144\n262144\n75712\n")


def test_the_standard_input_is_sent_as_it_comes(system: SimpleNamespace) -> None:
    with subprocess.Popen(
        [*COMMAND, "call", "compute", "sizes", "--multi", "--stream", "body=@-"],
        env=environment(**system.env), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    ) as calling:  # fmt: skip
        assert calling.stdin is not None and calling.stdout is not None
        for size in (3, 5):
            calling.stdin.write(b"x" * size)
            calling.stdin.flush()
            assert calling.stdout.readline() == b"%d\n" % size
        calling.stdin.close()
        assert calling.wait(SECONDS) == 0


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("body", "expected name=@file"), ("=@x", "expected name=@file"), ("body=@", "expected name=@file"),
        ("body=@/nowhere", "/nowhere: No such file"), ("factor=@x", "argument 'factor' is given twice"),
    ],
)  # fmt: skip
def test_a_wrong_stream_is_named(invoke: Invoke, system: SimpleNamespace, given: str, said: str) -> None:
    ended = invoke("call", "compute", "size", "factor=2", "--stream", given, env=system.env)
    assert ended.returncode == 2 and said in ended.stderr


def test_a_second_stream_is_refused(invoke: Invoke, system: SimpleNamespace, tmp_path: Path) -> None:
    file = tmp_path / "body"
    file.write_bytes(b"x")
    streams = ("--stream", f"body=@{file}", "--stream", f"other=@{file}")
    ended = invoke("call", "compute", "size", "factor=2", *streams, env=system.env)
    assert ended.returncode == 2 and "a call takes one stream" in ended.stderr


def test_items_of_nobody_are_not_waited_for(invoke: Invoke, system: SimpleNamespace) -> None:
    ended = invoke("call", "nobody", "items", "--multi", "--mandatory", env=system.env)
    assert (ended.returncode, ended.stdout) == (5, "") and "no consumer on 'nobody'" in ended.stderr


def test_the_router_may_be_named_before_or_after_the_command(invoke: Invoke, system: SimpleNamespace) -> None:
    wrong = {"RPCMQ_ROUTER": "tcp://127.0.0.1:1"}
    assert invoke("--router", system.url, "call", "compute", "add", "a=1", env=wrong).stdout == "3\n"
    assert invoke("call", "--router", system.url, "compute", "add", "a=1", env=wrong).stdout == "3\n"


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["compute", "add", "a"], "'a': expected name=value"),
        (["compute", "add", "=1"], "'=1': expected name=value"),
        (["compute", "add", "a=1", "--args", '{"a": 1}'], "argument 'a' is given twice"),
        (["compute", "add", "--args", "[1]"], "expected a JSON object"),
        (["compute", "add", "--ctx", "{"], "is not JSON"),
        (["compute", "add", "--timeout", "0"], "0.0 is not in the range"),
        (["compute"], "Missing argument 'METHOD'"),
        (["", "add"], "topic is empty"),
    ],
)
def test_wrong_usage_is_code_2(invoke: Invoke, system: SimpleNamespace, arguments: list[str], complaint: str) -> None:
    ended = invoke("call", *arguments, env=system.env)
    assert ended.returncode == 2 and ended.stdout == ""
    assert complaint in ended.stderr and "Traceback" not in ended.stderr


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["call", "compute", "--json"], "Missing argument 'METHOD'"),
        (["call", "--json", "compute", "add", "--timeout", "0"], "0.0 is not in the range"),
        (["call", "compute", "add", "--nope", "--json"], "No such option"),
        (["ls", "--json", "--view", "nope"], "'nope' is not one of"),
        (["nope", "--json"], "No such command 'nope'"),
        (["call", "compute", "add", "--json", "--args", "[1]"], "expected a JSON object"),
    ],
)
def test_wrong_arguments_are_json_for_programs(invoke: Invoke, arguments: list[str], text: str) -> None:
    ended = invoke(*arguments)
    assert (ended.returncode, ended.stdout) == (2, "")
    answer = json.loads(ended.stderr)
    assert (answer["error"], answer["exit_code"]) == ("UsageError", 2) and text in answer["text"]


def test_json_after_two_dashes_is_an_argument(invoke: Invoke) -> None:
    ended = invoke("call", "--", "--json")
    assert ended.returncode == 2 and ended.stderr.startswith("Usage: rpcmq call")


def test_a_wrong_variable_is_code_2(invoke: Invoke) -> None:
    ended = invoke("call", "compute", "add", env={"RPCMQ_ROUTER": "nowhere"})
    assert ended.returncode == 2
    assert ended.stderr.startswith("rpcmq: environment: RPCMQ_ROUTER = 'nowhere': expected a URL")


def explained(invoke: Invoke, system: SimpleNamespace, text: str, *arguments: str) -> SimpleNamespace:
    """Call, and again where the machine stood still before the call had begun, or the router said why it timed out."""
    for _ in range(5):
        ended = invoke("call", *arguments, env=system.env)
        if text in ended.stderr:
            break
    return ended


@pytest.mark.parametrize(
    ("arguments", "code", "error", "text"),
    [
        (["compute", "sleep", "seconds=60", "--timeout", "0.3"], 4, "CallTimeout", "running"),
        (["nobody", "add", "--timeout", "0.3"], 4, "CallTimeout", "no consumer on 'nobody' (never seen)"),
        (["nobody", "add", "--mandatory"], 5, "NoConsumer", "no consumer on 'nobody' (never seen)"),
        (["compute", "fail", "text=broken"], 6, "ValueError", "broken"),
        (["compute", "nope"], 9, "rpcmq.errors.UnknownMethod", "'compute' has no public method 'nope'"),
        (["compute", "add"], 6, "TypeError", "missing 1 required positional argument: 'a'"),
    ],
)
def test_failures_have_a_line_an_object_and_a_code(
    invoke: Invoke, system: SimpleNamespace, arguments: list[str], code: int, error: str, text: str
) -> None:
    ended = explained(invoke, system, text, *arguments)
    assert (ended.returncode, ended.stdout) == (code, "")
    assert ended.stderr.startswith("rpcmq: ") and text in ended.stderr and len(ended.stderr.splitlines()) == 1

    ended = explained(invoke, system, text, *arguments, "--json")
    answer = json.loads(ended.stderr)
    assert (ended.returncode, answer["exit_code"], answer["error"]) == (code, code, error)
    assert text in answer["text"]
    assert ("traceback" in answer) == (code in (6, 9)) and ("details" in answer) == (code not in (6, 9))


def test_an_unknown_method_is_said_to_be_where_it_is_once(invoke: Invoke, system: SimpleNamespace) -> None:
    ended = invoke("call", "compute", "nope", env=system.env)
    assert ended.stderr == "rpcmq: UnknownMethod: 'compute' has no public method 'nope' (on compute.node-7)\n"


def test_a_result_that_is_not_decoded_here_is_no_exception_of_the_method(
    invoke: Invoke, system: SimpleNamespace
) -> None:
    ended = invoke("call", "compute", "own", env=system.env)
    assert (ended.returncode, ended.stdout) == (12, "")
    assert ended.stderr.startswith(
        "rpcmq: PayloadRefused: the method ran, but the reply from 'compute' was not decoded"
    )
    assert "RPCMQ_ALLOW" in ended.stderr and len(ended.stderr.splitlines()) == 1


def test_what_a_terminal_would_obey_is_printed_escaped(invoke: Invoke, system: SimpleNamespace) -> None:
    ended = invoke("call", "compute", "fail", 'text="\\u001b[31m"', env=system.env)
    assert "\\x1b[31m" in ended.stderr and "\x1b" not in ended.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["call", "compute", "add", "a=1"],
        ["cast", "compute", "add", "a=1"],
        ["fanout", "compute", "add", "--no-confirm"],
        ["ls"],
        ["describe", "compute"],
        ["ping"],
        ["top", "--once"],
        ["serve", "tests.cli.endpoints:Compute", "--topic", "compute"],
        ["bench"],
    ],
)
def test_an_absent_router_is_one_line_and_code_3(invoke: Invoke, arguments: list[str]) -> None:
    ended = invoke(*arguments, "--timeout", "0.5", env={"RPCMQ_ROUTER": "tcp://127.0.0.1:1"})
    assert ended.returncode == 3 and ended.stdout == ""
    [line] = ended.stderr.splitlines()
    assert line.startswith("rpcmq: router tcp://127.0.0.1:1 not reachable within ")
    assert line.endswith(" s: nothing listens there")


def test_a_host_name_that_does_not_resolve_is_one_line_and_code_3(
    monkeypatch: pytest.MonkeyPatch, invoke: Invoke
) -> None:
    def getaddrinfo(*args: Any) -> Any:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(gevent_names, "getaddrinfo", getaddrinfo)
    url = "tcp://no-such-host.invalid:7700"
    ended = invoke("--router", url, "ls", "--timeout", "2")
    assert ended.returncode == 3 and ended.stdout == ""
    reason = "the host name 'no-such-host.invalid' does not resolve (Name or service not known)"
    assert ended.stderr == f"rpcmq: router {url} not reachable within 2 s: {reason}\n"


def test_a_full_queue_is_code_7_and_a_lost_consumer_code_8() -> None:
    with router("--queue-max-messages", "1") as daemon:
        env = {"RPCMQ_ROUTER": daemon.url}
        assert run("cast", "volume", "x", env=env).returncode == 0
        full = run("cast", "volume", "x", "--json", env=env)
        assert full.returncode == 7 and json.loads(full.stderr)["error"] == "Overloaded"

        serve = [*COMMAND, "serve", "tests.cli.endpoints:Compute", "--topic", "compute", "--log-format", "json"]
        with (
            Client(daemon.url) as client,
            subprocess.Popen(serve, env=environment(**env), stderr=subprocess.PIPE) as service,
        ):
            assert service.stderr is not None and b"serving" in service.stderr.readline()
            call = subprocess.Popen(
                [*COMMAND, "call", "compute", "sleep", "seconds=60"],
                env=environment(**env),
                stderr=subprocess.PIPE,
                text=True,
            )
            eventually(lambda: [c for c in client.query("calls")["calls"] if c["state"] == "in flight"])
            service.kill()
            _, text = call.communicate(timeout=SECONDS)
        assert call.returncode == 8 and text.startswith("rpcmq: ")


def test_ctrl_c_is_code_130_and_says_nothing(system: SimpleNamespace) -> None:
    call = subprocess.Popen(
        [*COMMAND, "call", "compute", "sleep", "seconds=0.111"],
        env=environment(**system.env),
        stderr=subprocess.PIPE,
        text=True,
    )
    call.communicate(timeout=SECONDS)
    assert call.returncode == 0
    call = subprocess.Popen(
        [*COMMAND, "call", "compute", "sleep", "seconds=30.5"],
        env=environment(**system.env),
        stderr=subprocess.PIPE,
        text=True,
    )
    with Client(system.url) as client:
        eventually(
            lambda: any(c["method"] == "sleep" and c["state"] == "in flight" for c in client.query("calls")["calls"])
        )
    call.send_signal(signal.SIGINT)
    _, text = call.communicate(timeout=SECONDS)
    assert (call.returncode, text.strip()) == (130, "")


def test_a_reader_that_has_enough_gets_no_complaint(system: SimpleNamespace) -> None:
    with subprocess.Popen(
        [*COMMAND, "call", "compute", "items", "n=100000", "--multi"],
        env=environment(**system.env),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as call:
        assert call.stdout is not None and call.stderr is not None
        assert call.stdout.readline() == b"0\n"
        call.stdout.close()
        assert call.wait(SECONDS) == 141
        assert call.stderr.read() == b""


class _Notes:
    def __init__(self) -> None:
        self.got: list[int] = []

    def note(self, ctx: object, x: int) -> None:
        self.got.append(x)


def test_casts_and_fanouts_arrive(invoke: Invoke, system: SimpleNamespace) -> None:
    one, two = _Notes(), _Notes()
    with (
        Service("notes", one, host="a", router=system.url),
        Service("notes", two, host="b", router=system.url),
    ):
        process = run("cast", "notes.a", "note", "x=1", env=system.env)
        assert (process.returncode, process.stdout, process.stderr) == (0, "", "")
        ended = invoke("cast", "notes.a", "note", "x=2", "--json", env=system.env)
        assert ended.stdout == '{"confirmed": true}\n'
        ended = invoke("cast", "notes.a", "note", "x=3", "--no-confirm", "--json", env=system.env)
        assert ended.stdout == '{"confirmed": false}\n'
        ended = invoke("fanout", "notes", "note", "x=4", env=system.env)
        assert (ended.returncode, ended.stdout) == (0, "sent to 2 consumers\n")
        ended = invoke("fanout", "notes", "note", "x=5", "--json", env=system.env)
        assert ended.stdout == '{"confirmed": true, "consumers": 2}\n'
        ended = invoke("fanout", "notes", "note", "x=6", "--no-confirm", env=system.env)
        assert (ended.returncode, ended.stdout) == (0, "")
        eventually(lambda: (one.got, two.got) == ([1, 2, 3, 4, 5, 6], [4, 5, 6]))
    ended = invoke("cast", "nobody", "note", "--mandatory", env=system.env)
    assert (ended.returncode, ended.stderr) == (5, "rpcmq: no consumer on 'nobody' (never seen)\n")
    ended = invoke("cast", "nobody", "note", "--mandatory", "--no-confirm", env=system.env)
    assert ended.returncode == 2


def test_a_call_is_given_to_several_servers(invoke: Invoke, system: SimpleNamespace) -> None:
    serve = ("serve", "tests.cli.endpoints:Compute", "--topic", "compute", "--host", "node-8")
    with started(*serve, env=system.env) as second:
        second.wait_for("serving")
        for options in (("--first-of", "2"), ("--hedge-after", "0"), ("--hedge-after", "p95")):
            ended = invoke("call", "compute", "add", "a=1", "b=3", "--idempotent", *options, env=system.env)
            assert (ended.returncode, ended.stdout, ended.stderr) == (0, "4\n", "")
        rows = json.loads(invoke("ls", "--view", "methods", "--json", env=system.env).stdout)["methods"]
    (hedges,) = [row["hedges"] for row in rows if (row["topic"], row["method"]) == ("compute", "add")]
    assert (hedges["calls"], hedges["deliveries"]) == (3, 2)
    assert hedges["withheld"] == {"not in the latency policy": 1}


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--first-of", "2"], "add --idempotent if that does no harm"),
        (["--hedge-after", "0.1"], "add --idempotent if that does no harm"),
        (["--first-of", "9", "--idempotent"], "9 is not in the range 1<=x<=8"),
        (["--hedge-after", "soon", "--idempotent"], "hedge_after must be 0 to 4000 seconds, 'p50', 'p95', 'p99'"),
        (["--hedge-after", "-1", "--idempotent"], "hedge_after must be 0 to 4000 seconds"),
        (["--multi", "--idempotent", "--first-of", "2"], "--multi takes the items of one server"),
    ],
)
def test_hedges_that_cannot_be_are_refused(
    invoke: Invoke, system: SimpleNamespace, options: list[str], text: str
) -> None:
    ended = invoke("call", "compute", "add", "a=1", "b=3", *options, env=system.env)
    assert ended.returncode == 2 and ended.stdout == "" and text in " ".join(ended.stderr.split())
