from __future__ import annotations

import logging
from typing import Any

import pytest


@pytest.fixture
def log(stand_in) -> Any:
    return stand_in("essex")("nova.log")


@pytest.fixture(autouse=True)
def plain_root():
    root = logging.getLogger()
    handlers, level = [*root.handlers], root.level
    import sys

    hook = sys.excepthook
    yield
    sys.excepthook = hook
    for handler in set(root.handlers) - set(handlers):
        root.removeHandler(handler)
        handler.close()
    root.setLevel(level)


def test_two_names_are_one_module(log, load_other):
    assert load_other("nova.openstack.common.log") is log


@pytest.fixture
def load_other():
    import importlib

    return importlib.import_module


def test_every_level(log, caplog):
    logger = log.getLogger("nova.x")
    assert log.getLogger("nova.x") is logger
    with caplog.at_level(1, "nova.x"):
        for name in ("debug", "info", "audit", "warn", "warning", "error", "critical", "fatal"):
            getattr(logger, name)("said %s", name)
        try:
            raise LookupError("gone")
        except LookupError:
            logger.exception("caught")
    assert [r.levelname for r in caplog.records] == [
        "DEBUG", "INFO", "AUDIT", "WARNING", "WARNING", "ERROR", "CRITICAL", "CRITICAL", "ERROR",
    ]  # fmt: skip
    assert caplog.messages[2] == "said audit" and "LookupError: gone" in caplog.text
    assert {record.filename for record in caplog.records} == {"test_log.py"}


def test_the_module_is_used_as_logging(log, caplog):
    with caplog.at_level(logging.DEBUG):
        for name in ("debug", "info", "audit", "warn", "error"):
            getattr(log, name)("root %s", name)
    assert len(caplog.records) == 5
    assert {record.filename for record in caplog.records} == {"test_log.py"}
    assert (log.INFO, log.WARNING, log.AUDIT > log.INFO) == (logging.INFO, logging.WARNING, True)
    assert log.Formatter is logging.Formatter


def test_context_and_instance(log, load_other, caplog):
    context = load_other("nova.context").RequestContext("u1", "p1")
    logger = log.getLogger("nova.x")
    logger.warning("one", context=context, instance={"uuid": "i-1"})
    logger.warning("two", instance_uuid="i-2")
    logger.warning("three", extra={"mine": 1})
    shown = [log.ContextFormatter().format(record) for record in caplog.records]
    assert f"[{context.request_id} u1 p1] [instance: i-1] one" in shown[0]
    assert f"[{context.request_id} u1 p1] [instance: i-2] two" in shown[1], "the thread's own context"
    assert caplog.records[2].mine == 1


def test_without_a_context(log, caplog):
    log.getLogger("nova.y").warn("alone")
    logging.getLogger("other").warning("library")
    shown = [log.ContextFormatter().format(record) for record in caplog.records]
    assert "[-] alone" in shown[0] and "[-] library" in shown[1]


def test_setup_writes_where_the_options_say(log, load_other, tmp_path):
    flags = load_other("nova.flags").FLAGS
    flags.set_override("log_dir", str(tmp_path))
    flags.set_override("log_file", "x.log")
    flags.set_override("debug", True)
    log.setup("nova")
    log.setup("nova")
    log.getLogger("nova.x").debug("once")
    log.getLogger("sqlalchemy").info("never")
    text = (tmp_path / "x.log").read_text()
    assert text.count("once") == 1 and "never" not in text and "from (pid=" in text


def test_a_logger_as_a_file(log, caplog):
    with caplog.at_level(logging.INFO):
        log.WritableLogger(log.getLogger("wsgi")).write("a line\n")
    assert caplog.messages == ["a line"]


def test_the_end_of_a_program_is_logged(log, caplog):
    log.logging_excepthook(ValueError, ValueError("why"), None)
    assert caplog.records[0].levelname == "CRITICAL" and "why" in caplog.text


def test_errors_are_notified(log, load_other):
    load_other("nova.flags").FLAGS.set_override("notification_driver", ["nova.notifier.test_notifier"])
    load_other("nova.notifier.api")._reset_drivers()
    flags = load_other("nova.flags").FLAGS
    flags.set_override("publish_errors", True)
    log.setup()
    log.getLogger("nova.x").warning("a warning")
    log.getLogger("nova.x").error("an error")
    [message] = load_other("nova.notifier.test_notifier").NOTIFICATIONS
    assert (message["event_type"], message["priority"]) == ("error_notification", "ERROR")
    assert message["payload"] == {"error": "an error"}


def test_errors_are_not_notified_to_the_log(log, load_other):
    load_other("nova.flags").FLAGS.set_override("notification_driver", ["nova.notifier.log_notifier"])
    log.PublishErrorsHandler().emit(logging.makeLogRecord({"msg": "an error"}))


def test_setup_by_a_logger(log, monkeypatch):
    called = []
    monkeypatch.setattr(log, "setup", lambda: called.append(True))
    log.getLogger("nova").setup_from_flags()
    assert called == [True]
