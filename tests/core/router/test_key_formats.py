"""Formats that a key may send, at the router's edge."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from rpcmq.core.router.rights import EVERYTHING, Key, Right
from rpcmq.errors import Outcome
from rpcmq.payload.format import Format
from rpcmq.testing.network import Network
from rpcmq.wire import Address, Flag, Kind
from rpcmq.wire.stream_grant import grant_payload

JSON_ONLY = Key("web", "WEB", (EVERYTHING,), formats=Format.JSON.bit)
SOME_RIGHTS = replace(JSON_ONLY, rights=(Right(frozenset(["call", "cast", "fanout", "publish", "serve"]), ("#",)),))
ROOT = Key("root", "ROOT", (EVERYTHING,))
ADDRESS = Address("compute").encode()


@pytest.fixture(params=[JSON_ONLY, SOME_RIGHTS, replace(SOME_RIGHTS, messages_per_second=1000.0)])
def guarded(net: Network, request: pytest.FixtureRequest) -> Network:
    net.router.set_authorized_keys(net.now, [request.param, ROOT])
    return net


@pytest.mark.parametrize("kind", [Kind.REQUEST, Kind.CAST, Kind.PUBLISH], ids=lambda kind: kind.name)
def test_a_request_in_another_format_is_refused_with_those_that_it_may_have(guarded: Network, kind: Kind) -> None:
    web, node = guarded.process("web", user="WEB"), guarded.process("root", user="ROOT")
    node.register("compute", credit=10)
    for form in (Format.PICKLE, Format.DILL):
        (answer,) = web.send(kind, b"x", address=ADDRESS, format=form).answers
        assert answer.kind is Kind.ERROR and answer.outcome is Outcome.PROTOCOL
        assert answer.body["details"] == {"accepts": Format.JSON.bit, "key": "web"}
        for named in ("'web'", form.label, "'compute'"):
            assert named in answer.body["text"]
        assert guarded.router.refused[f"denied {form.label}"] == guarded.link(web).counters[f"denied {form.label}"] == 1
    assert not node.got(kind)
    web.send(kind, b"1", address=ADDRESS, format=Format.JSON)
    assert len(node.got(kind)) == (kind is not Kind.PUBLISH)


def test_other_keys_send_what_they_like(guarded: Network) -> None:
    root = guarded.process("root", user="ROOT")
    root.register("compute", credit=10)
    root.send(Kind.REQUEST, b"x", address=ADDRESS, format=Format.PICKLE)
    assert [message.payload for message in root.got(Kind.REQUEST)] == [b"x"]


@pytest.mark.parametrize("kind", [Kind.REPLY, Kind.FAULT, Kind.ITEM], ids=lambda kind: kind.name)
def test_the_caller_of_who_answers_in_another_format_is_told(guarded: Network, kind: Kind) -> None:
    web, root = guarded.process("web", user="WEB"), guarded.process("root", user="ROOT")
    consumer = web.register("compute", credit=10)
    call = root.send(Kind.REQUEST, b"1", address=ADDRESS, format=Format.JSON)
    (request,) = web.got(Kind.REQUEST)
    web.send(kind, b"x", key=request.message[16:36], format=Format.PICKLE, consumer=request.message[11])
    (answer,) = call.answers
    assert answer.kind is Kind.FAULT and answer.message[10] == Format.JSON
    assert "key 'web' may not answer in pickle" in json.loads(answer.payload)["text"]
    assert guarded.router.refused["denied pickle"] == 1
    assert consumer is not None


def test_items_of_a_request_stream_in_another_format_end_the_call_and_bytes_pass(guarded: Network) -> None:
    web = guarded.process("web", user="WEB")
    node = guarded.process("root:2", user="ROOT", accepts=("json", "pickle", "request-streams"))
    node.register("compute", credit=10)
    for form, passes in ((0, True), (Format.JSON, True), (Format.PICKLE, False)):
        call = web.send(Kind.REQUEST, b"1", address=ADDRESS, format=4, flags=Flag.STREAM)
        request = node.take(Kind.REQUEST)
        node.send(Kind.REQUEST_GRANT, grant_payload(5, 500), key=request.key, consumer=request.header.consumer)
        web.send(Kind.REQUEST_ITEM, b"x", key=call.key, format=form)
        assert bool(node.got(Kind.REQUEST_ITEM)) is passes
        if not passes:
            assert call.end.outcome is Outcome.DENIED and "may not send pickle" in call.end.body["text"]
            assert node.take(Kind.CANCEL).key == call.key
    refused = web.send(Kind.REQUEST, b"1", address=ADDRESS, format=5, flags=Flag.STREAM)
    assert refused.end.body["details"]["accepts"] == Format.JSON.bit | Format.JSON.bit << 3
