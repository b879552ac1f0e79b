"""Responses that are kept ready for a second."""

from __future__ import annotations

from time import time

import pytest

from rpcmq.proxy.front import hot
from rpcmq.proxy.front.hot import HotResponses
from rpcmq.proxy.http.requests import Request


def request(target: bytes) -> Request:
    made = Request()
    made.host, made.target = b"a.example", target
    return made


def test_the_targets_of_requests_count_for_the_room(monkeypatch: pytest.MonkeyPatch) -> None:
    now = time()
    monkeypatch.setattr(hot, "time", lambda: now)
    kept = HotResponses(100_000)
    requests = [request(b"/" + b"%%%02x" % number + b"a" * 8000) for number in range(100)]
    for each in requests:
        kept.add("http", each, "http://a.example/", now, (b"a response", 200, 5))
    found = [kept.find("http", each) for each in requests]
    assert found[0] == (b"a response", 200, 5) and 10 <= sum(each is not None for each in found) <= 12
    kept.forget("http://a.example/")
    assert kept.find("http", requests[0]) is None
