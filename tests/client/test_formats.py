"""The payload formats used between callers and services, and refusals of others."""

from __future__ import annotations

import math
import uuid
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from rpcmq.client import Client, streaming_calls
from rpcmq.errors import PayloadError, PayloadRefused, RemoteError
from rpcmq.payload import Codec, Format
from rpcmq.testing import eventually
from tests.client.endpoints import Compute, message, topic

JSON_ONLY = Codec(prefer=Format.JSON, accepted=Format.JSON.bit)
VALUES = {
    "when": datetime(2024, 2, 29, tzinfo=UTC),
    "id": uuid.UUID(int=7),
    "amount": Decimal("1.50"),
    "raw": b"\0\xff",
    "set": {1, 2},
    "tuple": (1, (2, 3)),
    "float": math.pi,
    "nested": {"a": [None, True, "ü"]},
}


class Forbidden:
    """Nobody allows this class."""


@pytest.fixture
def formats(client) -> list[int]:
    """The formats of the requests that the service of ``spy`` received."""
    return []


def spy(service: Any, formats: list[int]) -> None:
    serving = service.client.process.tasks
    original = serving.accept

    def accept(now: float, message: bytes, *rest: Any) -> None:
        formats.append(message[10])
        original(now, message, *rest)

    serving.accept = accept


def test_pickle_between_two_who_know_it(client, serve, formats):
    spy(serve(Compute()), formats)
    assert client.call(None, "compute", message("echo", value=VALUES)) == VALUES
    assert formats == [Format.PICKLE]


@pytest.mark.parametrize("setting", ["argument", "environment"])
def test_json_where_it_is_configured(router, serve, formats, monkeypatch, setting):
    spy(serve(Compute()), formats)
    if setting == "environment":
        monkeypatch.setenv("RPCMQ_FORMAT", "json")
    settings: dict[str, Any] = {"format": "json"} if setting == "argument" else {}
    with Client(router.url, **settings) as client:
        assert client.call(None, "compute", message("echo", value=VALUES)) == VALUES
    assert formats == [Format.JSON]


def test_json_to_a_consumer_that_accepts_nothing_else(client, serve, formats):
    compute = Compute()
    spy(serve(compute, codec=JSON_ONLY), formats)
    assert client.call({"user": "u"}, "compute", message("echo", value=VALUES)) == VALUES
    client.cast(None, "compute", message("note", value=VALUES), confirm=True)
    client.cast(None, "compute", message("note", value=VALUES))
    eventually(lambda: compute.seen == [VALUES, VALUES])
    assert list(client.multicall(None, "compute", message("count", n=30))) == list(range(30))
    assert set(formats) == {Format.JSON}


def test_formats_are_remembered_of_a_bounded_number_of_topics(client, serve, monkeypatch):
    monkeypatch.setattr(streaming_calls, "_MOST_TOPICS", 3)
    serve(Compute(), codec=JSON_ONLY)
    for n in range(5):
        serve(Compute(), topic=f"compute-{n}", codec=JSON_ONLY)
        client.cast(None, f"compute-{n}", message("note", value=n), confirm=True)
        assert len(client.process.accepted_formats) <= 3
    assert client.call(None, "compute", message("echo", value=VALUES)) == VALUES


def test_a_first_cast_to_a_consumer_that_accepts_json_only_is_sent_again_as_json(client, serve, formats):
    compute = Compute()
    spy(serve(compute, codec=JSON_ONLY), formats)
    for n in range(50):
        client.cast(None, "compute", message("note", value=n))
    eventually(lambda: sorted(compute.seen) == list(range(50)))
    assert set(formats) == {Format.JSON}


def test_a_first_confirmed_cast_to_a_consumer_that_accepts_json_only(client, serve):
    compute = Compute()
    serve(compute, codec=JSON_ONLY)
    client.cast(None, "compute", message("note", value=VALUES), confirm=True)
    eventually(lambda: compute.seen == [VALUES])


def test_a_caller_that_accepts_json_only_gets_json(router, serve):
    serve(Compute())
    with Client(router.url, codec=JSON_ONLY) as client:
        assert client.call(None, "compute", message("echo", value=VALUES)) == VALUES
        with pytest.raises(ValueError, match="x"):
            client.call(None, "compute", message("fail"))
        assert list(client.multicall(None, "compute", message("count", n=3))) == [0, 1, 2]


def test_among_mixed_consumers_a_call_goes_to_one_that_can_read_it(client, serve):
    new, old = Compute(), Compute()
    serve(new, host="new")
    serve(old, host="old", codec=JSON_ONLY)
    for n in range(20):
        assert client.call(None, "compute", message("echo", value=n)) == n
    assert client.call(None, "compute.old", message("echo", value=VALUES)) == VALUES


def test_what_json_cannot_carry_fails_in_the_caller_with_its_path(client, serve):
    serve(Compute(), codec=JSON_ONLY)
    with pytest.raises(PayloadError, match="value"):
        client.call(None, "compute", message("echo", value={"bad": Forbidden()}))


def test_a_forbidden_global_is_refused_by_who_receives_it(router, client, serve):
    compute = Compute()
    serve(compute)
    with pytest.raises(PayloadRefused, match="Forbidden"):
        client.call(None, "compute", message("echo", value=Forbidden()))
    client.cast(None, "compute", message("note", value=Forbidden()), confirm=True)
    eventually(lambda: topic(router)["in_flight"] == 0)
    assert compute.seen == []
    assert client.call(None, "compute", message("add", a=1)) == 1


# --- dill ---------------------------------------------------------------------------------------


def test_dill_where_both_ends_have_it_on(connect, serve):
    serve(Compute(), accept_dill=True)
    client = connect(accept_dill=True)
    offset = 10
    returned = client.call(None, "compute", message("echo", value=lambda n: n + offset))
    assert returned(1) == 11


def test_dill_for_results_streams_and_casts(connect, serve):
    compute = Compute()

    class Maker(Compute):
        def adder(self, ctx: Any, n: int) -> Any:
            return lambda m: n + m

        def adders(self, ctx: Any) -> Any:
            for n in range(3):
                yield self.adder(ctx, n)

    serve(Maker(), "maker", accept_dill=True)
    serve(compute, accept_dill=True)
    client = connect(accept_dill=True)
    assert client.call(None, "maker", message("adder", n=1))(2) == 3
    assert [f(10) for f in client.multicall(None, "maker", message("adders"))] == [10, 11, 12]
    client.cast(None, "compute", message("note", value=lambda: 7), confirm=True)
    eventually(lambda: [f() for f in compute.seen] == [7])


@pytest.mark.parametrize(("caller", "callee"), [(True, False), (False, True), (False, False)])
def test_dill_is_not_used_unless_both_ends_have_it_on(connect, serve, caller, callee):
    class Maker(Compute):
        def adder(self, ctx: Any, n: int) -> Any:
            return lambda m: n + m

    serve(Maker(), accept_dill=callee)
    client = connect(accept_dill=caller)
    with pytest.raises(PayloadError, match="value"):
        client.call(None, "compute", message("echo", value=lambda: 0))
    with pytest.raises(RemoteError, match="PayloadError"):
        client.call(None, "compute", message("adder", n=1))
    assert client.call(None, "compute", message("add", a=1)) == 1


def test_a_result_that_json_cannot_carry_goes_back_as_pickle_to_a_request_in_dill(connect, serve):
    class Maker:
        def make(self, ctx: Any, which: Any) -> Any:
            return which()

    serve(Maker(), accept_dill=True)
    client = connect(accept_dill=True, allow=["builtins:range"])
    answer = client.call(None, "compute", message("make", which=lambda: range(3)))
    assert list(answer) == [0, 1, 2]
