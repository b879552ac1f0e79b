from __future__ import annotations

import logging
import sys
import types
from typing import Any

import pytest


@pytest.fixture
def rpc(monkeypatch) -> Any:
    """A ``nova.rpc`` that keeps what is sent."""
    module: Any = types.ModuleType("nova.rpc")
    module.sent = []
    module.cast = lambda context, topic, msg: module.sent.append(("cast", context, topic, msg))
    module.notify = lambda context, topic, msg, **how: module.sent.append(("notify", context, topic, msg, how))
    monkeypatch.setitem(sys.modules, "nova.rpc", module)
    return module


def start(load: Any, *drivers: str) -> tuple[Any, Any]:
    api, flags = load("nova.notifier.api"), load("nova.flags").FLAGS
    api._reset_drivers()
    flags.set_override("notification_driver", [*drivers])
    return api, flags


def test_two_names_are_one_module(load):
    assert load("nova.notifier.api") is load("nova.openstack.common.notifier.api")
    assert load("nova.notifier.rabbit_notifier") is load("nova.openstack.common.notifier.rpc_notifier")


@pytest.mark.parametrize("context", [[], ["ctxt"]])
def test_a_notification(load, context):
    api, _ = start(load, "nova.notifier.test_notifier")
    api.notify(*context, "compute.h1", "compute.instance.create", api.INFO, {"at": {1, 2}})
    [message] = load("nova.notifier.test_notifier").NOTIFICATIONS
    assert set(message) == {"message_id", "publisher_id", "timestamp", "priority", "event_type", "payload"}
    assert (message["publisher_id"], message["event_type"], message["priority"]) == (
        "compute.h1", "compute.instance.create", "INFO",
    )  # fmt: skip
    assert message["payload"] == {"at": [1, 2]}


def test_arguments_by_name(load):
    api, _ = start(load, "nova.notifier.test_notifier")
    api.notify(publisher_id="p", event_type="e", priority="WARN", payload=1)
    api.notify(context=None, publisher_id="p", event_type="f", priority="WARN", payload=1)
    assert [each["event_type"] for each in load("nova.notifier.test_notifier").NOTIFICATIONS] == ["e", "f"]
    with pytest.raises(TypeError, match="payload"):
        api.notify("p", "e", "INFO")


def test_an_unknown_priority(load):
    api, _ = start(load)
    with pytest.raises(api.BadPriorityException):
        api.notify("p", "e", "URGENT", {})


def test_publisher_id(load):
    api, flags = start(load)
    flags.set_override("host", "h1")
    assert (api.publisher_id("compute"), api.publisher_id("compute", "h2")) == ("compute.h1", "compute.h2")


@pytest.mark.parametrize("era", ["diablo", "essex", "folsom", "havana"])
def test_the_rpc_driver(stand_in, rpc, era):
    load = stand_in(era)
    api, flags = start(load, "nova.notifier.rabbit_notifier")
    flags.set_override("notification_topics", ["notifications", "billing"])
    api.notify("ctxt", "p", "e", api.ERROR, {"a": 1})
    assert [each[0] for each in rpc.sent] == ["cast" if era == "diablo" else "notify"] * 2
    assert [each[1:3] for each in rpc.sent] == [("ctxt", "notifications.error"), ("ctxt", "billing.error")]
    assert rpc.sent[0][3]["payload"] == {"a": 1}


def test_the_single_topic_of_diablo(stand_in, rpc):
    api, flags = start(stand_in("diablo"), "nova.notifier.rabbit_notifier")
    flags.notification_topic = "mine"
    api.notify("p", "e", api.INFO, {})
    [(_, context, topic, _)] = rpc.sent
    assert topic == "mine.info" and context.is_admin


def test_with_an_envelope(stand_in, rpc):
    api, _ = start(stand_in("grizzly"), "nova.openstack.common.notifier.rpc_notifier2")
    api.notify("ctxt", "p", "e", api.INFO, {})
    assert rpc.sent[0][4] == {"envelope": True}


def test_a_driver_that_fails_is_logged(load, rpc, monkeypatch, caplog):
    def fail(*args: Any) -> None:
        raise LookupError("gone")

    monkeypatch.setattr(rpc, "notify", fail)
    api, _ = start(load, "nova.notifier.rabbit_notifier", "nova.nobodys_driver", "nova.notifier.test_notifier")
    api.notify("p", "e", api.INFO, {})
    assert "gone" in caplog.text and "nova.nobodys_driver" in caplog.text
    assert load("nova.notifier.test_notifier").NOTIFICATIONS


def test_a_driver_as_a_string(load, caplog):
    api, flags = start(load)
    flags.set_override("notification_driver", "nova.notifier.log_notifier")
    with caplog.at_level(logging.INFO):
        api.notify("p", "compute.create", api.WARN, {"a": 1})
    [record] = [each for each in caplog.records if each.name == "nova.notification.compute.create"]
    assert record.levelname == "WARNING" and '"a": 1' in record.getMessage()


def test_a_list_of_drivers(load):
    api, flags = start(load, "nova.notifier.list_notifier")
    flags.set_override("list_notifier_drivers", ["nova.nobodys", "nova.notifier.test_notifier"])
    api.notify("ctxt", "p", "e", api.INFO, {})
    assert len(load("nova.notifier.test_notifier").NOTIFICATIONS) == 1


def test_without_a_driver_nothing_is_sent(load, rpc):
    api, _ = start(load)
    api.notify("p", "e", api.INFO, {})
    assert rpc.sent == []


def test_what_each_call_is_notified_as(stand_in):
    load = stand_in("folsom")
    api, _ = start(load, "nova.notifier.test_notifier")
    double = api.notify_decorator("math.double", lambda value: 2 * value)
    assert double(4) == 8
    [message] = load("nova.notifier.test_notifier").NOTIFICATIONS
    assert (message["event_type"], message["payload"]) == ("math.double", {"args": [4], "kwarg": {}})


def test_a_decorated_call_without_a_context_has_none(stand_in):
    load = stand_in("folsom")
    api, _ = start(load)
    context = load("nova.context").get_admin_context()
    api.add_driver(driver := Driver())
    api.notify_decorator("math.double", lambda value, **_: 2 * value)(4)
    api.notify_decorator("math.double", lambda value, **_: 2 * value)(4, context=context)
    assert driver.contexts == [None, context]


class Driver:
    """Keeps the contexts that it is given."""

    def __init__(self) -> None:
        self.contexts: list[Any] = []

    def notify(self, context: Any, message: Any) -> None:
        self.contexts.append(context)


def test_the_driver_with_envelopes_has_topics_of_its_own(stand_in, rpc):
    load = stand_in("grizzly")
    api, flags = start(load, "nova.openstack.common.notifier.rpc_notifier2")
    load("nova.openstack.common.notifier.rpc_notifier2")
    flags.set_override("topics", ["billing"], "rpc_notifier2")
    api.notify("ctxt", "p", "e", api.INFO, {})
    assert [each[2] for each in rpc.sent] == ["billing.info"]


def test_the_driver_of_essex_is_the_one_named_now(stand_in):
    load = stand_in("essex")
    api, flags = load("nova.notifier.api"), load("nova.flags").FLAGS
    api._reset_drivers()
    quiet, loud = load("nova.notifier.no_op_notifier"), load("nova.notifier.test_notifier")
    seen: list[Any] = []
    quiet.notify = seen.append
    api.notify("p", "first", api.INFO, {})
    flags.set_override("notification_driver", "nova.notifier.test_notifier")
    api.notify("p", "second", api.INFO, {})
    assert [each["event_type"] for each in seen] == ["first"]
    assert [each["event_type"] for each in loud.NOTIFICATIONS] == ["second"]
