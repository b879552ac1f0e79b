"""Shadow mode: the second backend is compared, and never felt."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import gevent
import pytest
from gevent.event import Event

from compat.nova import shadow
from compat.nova.shadow import Shadow
from rpcmq.testing import eventually

MESSAGE = {"method": "get_instance", "args": {"uuid": "u"}}


@pytest.fixture
def make(caplog: pytest.LogCaptureFixture) -> Callable[..., Shadow]:
    caplog.set_level(logging.WARNING, "compat.nova.shadow")
    return lambda second: Shadow("there", second)


def call(beside: Shadow, first: Callable[[], Any], message: Any = MESSAGE) -> Any:
    return beside.call(first, None, "compute", message, 5)


def fails() -> Any:
    raise KeyError("first")


@pytest.mark.parametrize("reply", [None, 7, {"a": [1, {"b": None}]}, (1, 2)])
def test_equal_replies_are_counted_and_not_told(make, caplog, reply):
    beside = make(lambda *call: list(reply) if isinstance(reply, tuple) else reply)
    assert call(beside, lambda: reply) == reply
    eventually(lambda: beside.counts == {"same": 1})
    assert caplog.text == ""


def test_a_difference_is_told_with_its_path(make, caplog):
    beside = make(lambda *call: {"state": "active", "ports": [1, 2], "extra": 1})
    assert call(beside, lambda: {"state": "error", "ports": [1, 3]}) == {"state": "error", "ports": [1, 3]}
    eventually(lambda: beside.counts == {"different": 1})
    assert "compute:get_instance differs" in caplog.text
    for text in (
        "reply.state is 'error', there 'active'",
        "reply.ports[1] is 3, there 2",
        "reply.extra is missing, there 1",
    ):
        assert text in caplog.text


def test_what_only_the_second_raises_is_told_and_not_raised(make, caplog):
    def second(*call: Any) -> Any:
        raise OSError("broken pipe")

    beside = make(second)
    assert call(beside, lambda: "fine") == "fine"
    eventually(lambda: beside.counts == {"failed": 1})
    assert "OSError: broken pipe" in caplog.text


def test_the_first_ones_error_reaches_the_caller_and_is_compared(make):
    def second(*call: Any) -> Any:
        raise KeyError("the same")

    beside = make(second)
    with pytest.raises(KeyError, match="first"):
        call(beside, fails)
    eventually(lambda: beside.counts == {"same": 1})
    other = make(lambda *call: "a value")
    with pytest.raises(KeyError):
        call(other, fails)
    eventually(lambda: other.counts == {"different": 1})


def test_a_second_that_hangs_is_not_waited_for_and_in_the_end_left_out(make):
    release = Event()
    beside = make(lambda *call: release.wait(30))
    assert [call(beside, lambda: "fine") for _ in range(150)] == ["fine"] * 150
    assert beside.counts == {"left out": 50}
    release.set()
    eventually(lambda: sum(beside.counts.values()) == 150)
    assert call(beside, lambda: 1) == 1
    eventually(lambda: sum(beside.counts.values()) == 151)
    assert beside.counts["left out"] == 50


def test_the_second_cannot_change_the_message(make):
    def second(context: Any, topic: str, message: dict[str, Any], timeout: Any) -> None:
        message["args"]["uuid"] = "changed"

    message = {"method": "get_instance", "args": {"uuid": "u"}}
    beside = make(second)
    call(beside, lambda: gevent.sleep(0), message)
    eventually(lambda: sum(beside.counts.values()) == 1)
    assert message == {"method": "get_instance", "args": {"uuid": "u"}}


def test_what_cannot_be_copied_is_called_on_the_first_only(make):
    beside = make(lambda *call: None)
    assert call(beside, lambda: "fine", {"method": "get_x", "args": {"o": object()}}) == "fine"
    assert beside.counts == {"failed": 1}


@pytest.mark.parametrize(
    ("topic", "method", "wanted"),
    [
        ("compute", "get_instance", True),
        ("compute", "reboot_instance", False),
        ("compute", "forget_all", False),
        ("network", "list_", True),
    ],
)
def test_only_what_reads_is_shadowed(topic, method, wanted):
    assert Shadow.wants(topic, {"method": method}) is wanted


def test_patterns_may_name_the_topic(monkeypatch):
    monkeypatch.setattr(shadow, "_patterns", lambda: ["compute.*:ping"])
    assert Shadow.wants("compute.node-7", {"method": "ping"})
    assert not Shadow.wants("network", {"method": "ping"})
    assert not Shadow.wants("compute.node-7", "no message")
