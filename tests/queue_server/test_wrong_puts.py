"""Wrong items, options and names are refused before anything is sent: here is no queue server."""

from __future__ import annotations

import re
from typing import Any

import pytest

from rpcmq.errors import PayloadError, UsageError
from tests.from_threads import each_shell_at_length as client_shell  # noqa: F401
from tests.queue_server.billing import message


def charge(invoice: Any) -> dict[str, Any]:
    return message("charge", invoice=invoice)


def test_an_item_that_cannot_be_encoded_is_refused(client):
    with open(__file__) as file, pytest.raises(PayloadError, match="cannot"):
        client.put(None, "billing", charge(file))
    with pytest.raises(PayloadError):
        client.put_many(None, "billing", [charge(1), charge(lambda: 1)])


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"id": ""}, "id must be a text of 1 to 255 bytes, not ''"),
        ({"id": 7}, "id must be a text"),
        ({"id": "x" * 256}, "id must be a text"),
        ({"key": ""}, "key must be a text"),
        ({"priority": 10}, "priority must be an integer from 0 to 9, not 10"),
        ({"priority": True}, "priority must be"),
        ({"delay": -1.0}, "delay must be a positive number"),
        ({"delay": "1"}, "delay must be a positive number"),
        ({"delay": 4_000_000}, "delay must be a positive number of seconds below 4,000,000, not 4000000"),
        ({"expires": 5e6}, "expires must be a positive number of seconds below 4,000,000, not 5000000.0"),
        ({"expires": float("nan")}, "expires must be a positive number"),
        ({"keep_result": -1}, "keep_result must be a positive number"),
        ({"keep_result": None}, "keep_result must be a positive number of seconds below 4,000,000, not None"),
        ({"delay": ""}, "delay must be a positive number"),
        ({"expires": False}, "expires must be a positive number"),
        ({"id": "\ud800"}, "id must be a text"),
        ({"timeout": -1}, "timeout must be"),
    ],
)
def test_a_wrong_option_is_refused(client, options, text):
    with pytest.raises(UsageError, match=re.escape(text)):
        client.put(None, "billing", charge(1), **options)


@pytest.mark.parametrize("name", ["", "x" * 201, 7, None])
def test_a_wrong_name_of_a_queue_is_refused(client, name):
    with pytest.raises(UsageError, match="a queue's name is a text of 1 to 200 bytes"):
        client.put(None, name, charge(1))


@pytest.mark.parametrize("option", ["name", "cron", "zone", "missed"])
def test_what_is_no_text_of_a_periodic_item_is_refused_by_its_name(client, option):
    options = {"name": "nightly", "cron": "* * * * *", "zone": "UTC", "missed": "last", option: b"UTC"}
    with pytest.raises(UsageError, match=f"{option} must be a text, not b'UTC'"):
        client.declare_periodic(None, "billing", msg=charge(1), **options)


def test_the_name_by_which_all_queues_are_found_is_not_that_of_one(client):
    with pytest.raises(UsageError, match=r"a queue cannot be named 'rpcmq\.queues'"):
        client.put(None, "rpcmq.queues", charge(1))


def test_wrong_items_are_refused(client):
    with pytest.raises(UsageError, match="msg must be"):
        client.put(None, "billing", "charge")
    with pytest.raises(UsageError, match="ids must be one for each of the 2 items"):
        client.put_many(None, "billing", [charge(1), charge(2)], ids=["a"])
    with pytest.raises(UsageError, match="ids must be one for each"):
        client.put_many(None, "billing", [charge(1), charge(2)], ids=["a", "a"])
    with pytest.raises(UsageError, match="10000 items at a time, not 10001"):
        client.put_many(None, "billing", [charge(1)] * 10_001)
    with pytest.raises(UsageError, match="uniques must be one for each of the 2 items, not 'ab'"):
        client.put_many(None, "billing", [charge(1), charge(2)], uniques="ab")
