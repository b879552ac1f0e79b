"""Log records: one line each, and offences that do not fill the log."""

from __future__ import annotations

import errno
import io
import json
import logging
import os
from collections import Counter
from collections.abc import Iterator

import gevent
import pytest
from gevent import get_hub
from gevent.event import Event

from rpcmq.core.router.actions import LogEvent
from rpcmq.server.log import EventLog, JsonFormatter, TextFormatter, log_event, log_hub_errors, start_logging


@pytest.fixture
def log() -> Iterator[logging.Logger]:
    """A logger of its own; the root logger is put back as it was."""
    root = logging.getLogger()
    handlers, level, raising = root.handlers[:], root.level, logging.raiseExceptions
    yield logging.getLogger("rpcmq.test")
    root.handlers[:], logging.raiseExceptions = handlers, raising
    root.setLevel(level)


def lines(stream: io.StringIO) -> list[str]:
    return stream.getvalue().splitlines()


def test_json_has_the_event_and_its_fields(log: logging.Logger) -> None:
    stream = io.StringIO()
    start_logging("json", "info", stream)
    log_event(log, logging.WARNING, "casts left", "3 casts", topic="compute", casts=3)
    [line] = lines(stream)
    record = json.loads(line)
    assert list(record) == ["time", "level", "logger", "event", "message", "topic", "casts"]
    assert record["time"].endswith("Z") and len(record["time"]) == len("2026-01-31T12:00:00.000Z")
    del record["time"]
    assert record == {
        "level": "warning",
        "logger": "rpcmq.test",
        "event": "casts left",
        "message": "3 casts",
        "topic": "compute",
        "casts": 3,
    }


def test_a_field_may_have_any_name(log: logging.Logger) -> None:
    stream = io.StringIO()
    start_logging("json", "info", stream)
    clashing = {"log": 1, "level": "mine", "event": "mine", "text": "of a file", "time": 0, "message": "mine"}
    log_event(log, logging.WARNING, "quarantine", "set aside", **clashing)
    record = json.loads(stream.getvalue())
    assert (record["level"], record["event"], record["message"]) == ("warning", "quarantine", "set aside")
    assert (record["log"], record["text"]) == (1, "of a file") and record["time"]


def test_less_severe_records_than_asked_for_are_not_written(log: logging.Logger) -> None:
    stream = io.StringIO()
    start_logging("text", "warning", stream)
    log_event(log, logging.INFO, "a", "not this")
    log_event(log, logging.WARNING, "a", "this")
    [line] = lines(stream)
    assert line.endswith(" WARNING this")


@pytest.mark.parametrize("formatter", [TextFormatter(), JsonFormatter()])
def test_a_record_is_one_line_whatever_is_in_it(formatter: logging.Formatter) -> None:
    try:
        raise ValueError("first\nsecond")
    except ValueError as error:
        record = logging.LogRecord(
            "rpcmq", logging.ERROR, "", 0, "bad \x1b[31m\r\n%s", ("x",), (ValueError, error, error.__traceback__)
        )
    line = formatter.format(record)
    assert line.isprintable()
    assert "ValueError: first" in line and "second" in line


def test_offences_of_one_identity_are_written_up_to_a_number_then_counted(log: logging.Logger) -> None:
    stream = io.StringIO()
    start_logging("text", "info", stream)
    notes = EventLog(log, offences=2)
    for number in range(7):
        notes(LogEvent("offence", f"bad: {number}", "bad"))
    notes(LogEvent("offence", "other: 0", "other"))
    notes(LogEvent("link ended", "bad (roundrobin): said goodbye", "bad"))
    notes.sweep()
    notes.sweep()
    notes(LogEvent("offence", "bad: 7", "bad"))
    assert [line.split(" ", 1)[1] for line in lines(stream)] == [
        "WARNING bad: 0",
        "WARNING bad: 1",
        "WARNING other: 0",
        "INFO    bad (roundrobin): said goodbye",
        "WARNING bad: 5 more protocol errors, not logged one by one",
        "WARNING bad: 7",
    ]


def test_offences_under_ever_new_identities_are_bounded_too(
    log: logging.Logger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rpcmq.server.log.monotonic", lambda: 100.0)
    stream = io.StringIO()
    start_logging("text", "info", stream)
    notes = EventLog(log, offences=1)
    for number in range(5000):
        notes(LogEvent("offence", f"bad-{number}", f"bad-{number}"))
    assert len(lines(stream)) == 1000
    notes.sweep()
    assert lines(stream)[-1].endswith("(others): 3999 more protocol errors, not logged one by one")


def test_lines_of_one_event_are_bounded_whoever_they_are_about(log: logging.Logger) -> None:
    """100,500 HELLOs under ever new identities wrote 46.8 MB."""
    stream = io.StringIO()
    start_logging("json", "info", stream)
    notes = EventLog(log)
    for number in range(20_000):
        for event in ("link away", "link ended"):
            notes(LogEvent(event, f"process-{number} (roundrobin) is away", f"process-{number}"))
    notes(LogEvent("keys", "keys: 3 authorised", ""))
    assert 2001 <= len(lines(stream)) <= 2001 + 2 * 10 * 20
    notes.sweep()
    told = [json.loads(line) for line in lines(stream)]
    assert [r["message"] for r in told if r["event"] == "keys"] == ["keys: 3 authorised"]
    left_out = {r["of"]: r["count"] for r in told if r["event"] == "left out"}
    written = Counter(r["event"] for r in told)
    assert {event: written[event] + left_out[event] for event in left_out} == dict.fromkeys(left_out, 20_000)
    notes.sweep()
    assert len(lines(stream)) == len(told)


def test_an_error_that_nobody_catches_is_logged_and_counted(log: logging.Logger) -> None:
    stream = io.StringIO()
    start_logging("json", "info", stream)
    hub = get_hub()
    errors = log_hub_errors(log)
    try:
        happened = Event()

        def fail() -> None:
            happened.set()
            raise KeyError("x")

        gevent.spawn(fail).join(20)
        hub.loop.run_callback(fail)
        happened.clear()
        assert happened.wait(20)
        gevent.sleep(0)
    finally:
        del hub.__dict__["print_exception"]
    assert errors == {"KeyError": 2}
    records = [json.loads(line) for line in lines(stream)]
    assert [record["event"] for record in records] == ["internal error"] * 2
    assert "KeyError: 'x'" in records[0]["exception"] and "callback" in records[1]["context"]


def test_that_no_more_files_can_be_had_is_no_internal_error_and_said_once(log: logging.Logger) -> None:
    stream = io.StringIO()
    start_logging("text", "info", stream)
    hub = get_hub()
    errors = log_hub_errors(log)
    try:
        for number in (errno.EMFILE, errno.ENFILE, errno.EMFILE):
            error = OSError(number, os.strerror(number))
            hub.handle_error("the HTTP views", type(error), error, None)
    finally:
        del hub.__dict__["print_exception"]
    assert not errors
    [line] = lines(stream)
    assert line.endswith("WARNING cannot accept a connection: Too many open files; raise LimitNOFILE= (or ulimit -n)")
