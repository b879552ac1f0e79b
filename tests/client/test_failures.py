"""A service says in its log which calls fail, whose they are, and no more of it than a reader needs."""

from __future__ import annotations

import json
import logging
from typing import Any

import gevent
import pytest

from rpcmq.client import Client
from rpcmq.errors import RemoteError, UnknownMethod
from rpcmq.testing import eventually
from tests.client.endpoints import message


class Failing:
    def fail(self, ctx: Any, password: str, text: str = "broken") -> None:
        raise ValueError(text)

    def other(self, ctx: Any) -> None:
        raise KeyError("other")

    def times_out(self, ctx: Any) -> None:
        with gevent.Timeout(0.001):
            gevent.sleep(5)


def lines(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    return [record for record in caplog.records if record.name == "rpcmq.service"]


def fail(client: Client, times: int = 1, **args: Any) -> None:
    for _ in range(times):
        with pytest.raises(ValueError, match="broken"):
            client.call(None, "compute", message("fail", password="hunter2", **args))


@pytest.mark.parametrize("direct", [False, True])
def test_a_call_that_raises_is_a_line_with_topic_method_caller_and_error(client, serve, caplog, direct: bool):
    serve(Failing(), direct=True)
    with pytest.raises(ValueError, match="broken"):
        client.call(None, "compute", message("fail", password="hunter2", text="broken\nin two"), direct=direct)
    eventually(lambda: lines(caplog))
    [record] = lines(caplog)
    assert record.levelname == "WARNING" and record.exc_info is None
    assert record.getMessage() == (
        f"call fail to compute.node-7 failed: ValueError: broken in two (from {client.identity})"
    )
    assert record.__dict__["fields"] == {
        "topic": "compute.node-7", "method": "fail", "error": "ValueError", "text": "broken in two", "suppressed": 0,
        "caller": client.identity,
    }  # fmt: skip
    assert "hunter2" not in json.dumps(caplog.text)


def test_at_level_debug_it_has_the_traceback(client, serve, caplog):
    caplog.set_level(logging.DEBUG, "rpcmq.service")
    serve(Failing())
    fail(client)
    eventually(lambda: lines(caplog))
    assert "Traceback" in caplog.text and "in fail" in caplog.text


def test_a_cast_that_raises_is_an_error_with_its_traceback_and_sender(client, serve, caplog):
    serve(Failing())
    client.cast(None, "compute", message("fail", password="hunter2"))
    eventually(lambda: lines(caplog))
    [record] = lines(caplog)
    assert record.levelname == "ERROR" and record.exc_info is not None
    assert record.getMessage().endswith(f"ValueError: broken (from {client.identity})")


def test_failures_of_one_kind_take_few_lines_and_their_number_is_told(client, serve, caplog, monkeypatch):
    now = [100.0]
    monkeypatch.setattr("rpcmq.client.failures.monotonic", lambda: now[0])
    serve(Failing())
    fail(client, 50)
    with pytest.raises(KeyError):
        client.call(None, "compute", message("other"))
    eventually(lambda: len(lines(caplog)) == 6)
    now[0] += 61
    fail(client)
    eventually(lambda: len(lines(caplog)) == 7)
    assert lines(caplog)[-1].getMessage().endswith("; 45 more like it were not logged")
    assert lines(caplog)[-1].__dict__["fields"]["suppressed"] == 45


def test_methods_that_a_caller_invents_take_bounded_memory_and_lines(serve, client, caplog):
    service = serve(Failing())
    for number in range(1100):
        with pytest.raises(UnknownMethod):
            client.call(None, "compute", message(f"nothing_{number}"))
    eventually(lambda: len(lines(caplog)) == 50)
    fail(client)
    assert len(service._consumer.answers._failures._limit) <= 1000 and len(lines(caplog)) == 50


def test_what_is_no_exception_is_logged_as_well(client, serve, caplog):
    serve(Failing())
    with pytest.raises(RemoteError):
        client.call(None, "compute", message("times_out"))
    eventually(lambda: any("times_out" in record.getMessage() for record in lines(caplog)))


def test_a_subscriber_whose_handler_fails_without_end_logs_few_lines(client, caplog):
    seen: list[int] = []

    def handler(ctx: Any, topic: str, payload: int) -> None:
        seen.append(payload)
        raise ValueError(payload)

    client.subscribe("alerts.#", handler)
    for number in range(200):
        client.publish(None, "alerts.disk", number, confirm=True)
    eventually(lambda: len(seen) == 200)
    assert len([r for r in caplog.records if "handler of alerts.# failed" in r.getMessage()]) == 5


def test_casts_that_are_refused_without_end_log_few_lines(client, caplog):
    for _ in range(200):
        client.cast(None, "nobody", message("note"), mandatory=True)
    eventually(lambda: client.statistics()["dropped"] == {"cast": {"no consumer": 200}})
    assert len([r for r in caplog.records if "cast not delivered: no consumer on 'nobody'" in r.getMessage()]) == 5


def test_a_method_name_cannot_break_a_line_of_the_log(client, serve, caplog):
    serve(Failing())
    with pytest.raises(UnknownMethod):
        client.call(None, "compute", message("no\nsuch\x1b[31m"))
    eventually(lambda: lines(caplog))
    assert lines(caplog)[0].getMessage().startswith("call no?such?[31m to compute.node-7 failed: UnknownMethod: ")
    assert lines(caplog)[0].getMessage().isprintable()


@pytest.mark.parametrize("direct", [False, True])
def test_what_cannot_be_begun_is_answered_at_once_and_gives_its_credit_back(
    client, serve, monkeypatch, capsys, caplog, direct: bool
):
    service = serve(Failing(), direct=True, concurrency=1)
    [registration] = service.client.process.tasks.registrations.values()
    begin = registration.on_task

    def cannot(task: Any) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(registration, "on_task", cannot)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="not begun: RuntimeError: can't start new thread"):
            client.call(None, "compute", message("fail", password=""), 20, direct=direct)
    client.cast(None, "compute", message("fail", password=""))
    eventually(lambda: sum("not begun" in record.getMessage() for record in lines(caplog)) >= 2)
    registration.on_task = begin
    with pytest.raises(ValueError, match="broken"):
        client.call(None, "compute", message("fail", password=""), 20, direct=direct)
    assert "can't start new thread" in capsys.readouterr().err
