"""Groups and declared topics, through a real router."""

from __future__ import annotations

from typing import Any

import pytest

from rpcmq.errors import CallError, UsageError
from rpcmq.testing import eventually
from rpcmq.wire import Address
from tests.from_threads import each_shell

client_shell = each_shell


class Notes:
    def __init__(self) -> None:
        self.got: list[Any] = []

    def note(self, ctx: Any, value: Any) -> str:
        self.got.append(value)
        return "noted"


def note(value: Any) -> dict[str, Any]:
    return {"method": "note", "args": {"value": value}}


@pytest.mark.in_order
def test_each_group_runs_every_message_once(client, serve):
    plain, one, two = Notes(), Notes(), Notes()
    serve(plain, "events")
    serve(one, "events", group="audit")
    serve(two, "events", group="audit")
    for n in range(10):
        client.cast(None, "events", note(n))
    assert client.call(None, "events", note(10)) == "noted"
    eventually(lambda: plain.got == list(range(11)))
    eventually(lambda: sorted(one.got + two.got) == list(range(11)))
    assert one.got and two.got


def test_what_is_sent_to_a_declared_topic_before_its_first_consumer_is_kept(client, serve):
    client.declare("events")
    client.declare("events", group="audit")
    client.cast(None, "events", note("early"), confirm=True)
    rows = {row["group"]: row for row in client.query("topics")["topics"]}
    assert {group: (row["registered"], row["queued"]) for group, row in rows.items()} == {
        "": (True, 1),
        "audit": (True, 1),
    }
    plain, audit = Notes(), Notes()
    serve(plain, "events")
    serve(audit, "events", group="audit")
    eventually(lambda: plain.got == audit.got == ["early"])


def test_what_cannot_be_declared_is_refused(client):
    with pytest.raises(CallError, match="not of the server"):
        client.declare(Address("events", "node-7"), group="audit")
    with pytest.raises(UsageError, match="topic is empty"):
        client.declare("")
