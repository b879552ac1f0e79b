from __future__ import annotations

import pytest

from rpcmq.client.arguments import request_body
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
