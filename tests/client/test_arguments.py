from __future__ import annotations

import pytest

from rpcmq.client.arguments import LegacyMessage, request_body
from rpcmq.errors import UsageError


def test_further_keys_of_a_message_travel_beside_its_args():
    message = {"method": "reboot", "args": {"a": 1}, "version": "1.2", "namespace": None}
    assert request_body({"user": "u"}, message) == (
        b"reboot",
        {"context": {"user": "u"}, "args": {"a": 1}, "version": "1.2", "namespace": None},
    )


@pytest.mark.parametrize("key", ["context", "keepalive"])
def test_a_message_must_not_have_what_rpcmq_adds_itself(key):
    with pytest.raises(UsageError, match=f"key '{key}'"):
        request_body(None, {"method": "reboot", "args": {}, key: 1})


@pytest.mark.parametrize(
    "message",
    [
        {"method": "reboot", "arg": {"a": 1}},
        {"method": "reboot", "args": {"a": 1}, "kwargs": {}},
        {"method": "reboot", "args": None, "Args": {}},
        {"method": "reboot", 7: 1},
    ],
)
def test_a_misspelt_key_of_a_message_is_refused_by_name(message):
    wrong = list(message)[-1]
    with pytest.raises(UsageError, match=rf"unknown key {wrong!r}; its keys are 'method' and 'args'"):
        request_body(None, message)


@pytest.mark.parametrize("method", ["", "x" * 256, "\ud800", 5, None], ids=ascii)
def test_a_method_that_has_no_name_is_refused(method):
    with pytest.raises(UsageError, match="method must be a name of 1 to 255 bytes, not "):
        request_body(None, {"method": method})


def test_keys_of_nova_messages_are_taken():
    further = {"namespace": "base", "version": "1.1", "_unique_id": "7", "_context_user": "u"}
    assert request_body(None, {"method": "reboot", **further})[1] == {"context": None, "args": {}, **further}


def test_a_legacy_message_has_any_keys():
    body = request_body(None, LegacyMessage(method="reboot", arg={"a": 1}))[1]
    assert body == {"context": None, "args": {}, "arg": {"a": 1}}
