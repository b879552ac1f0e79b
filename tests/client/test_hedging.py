"""``first_of`` and ``hedge_after``: several back ends have a call, and the first answer counts; in each shell."""

from __future__ import annotations

from time import monotonic
from typing import Any

import pytest

import rpcmq
from rpcmq import CallOptions
from rpcmq.errors import UsageError
from rpcmq.testing import eventually
from tests.client.endpoints import Compute, message, topic
from tests.from_threads import each_shell, new_event

client_shell = each_shell


class Backend:
    """Answers with its name; when told to, not before it is released."""

    def __init__(self, name: str, stalls: bool = False) -> None:
        self.name = name
        self.stalls = stalls
        self.go_on = new_event()
        self.begun = 0
        self.ended = 0

    def who(self, ctx: Any) -> str:
        self.begun += 1
        if self.stalls:
            self.go_on.wait()
        self.ended += 1
        return self.name

    def fail(self, ctx: Any) -> str:
        self.begun += 1
        if self.stalls:
            self.go_on.wait()
            return self.name
        raise ValueError(self.name)


@pytest.fixture
def backends(serve: Any) -> Any:
    """A back end that stalls, and one that does not, which gets its calls second."""
    both = Backend("slow", True), Backend("fast")
    for backend in both:
        serve(backend, host=backend.name)
    yield both
    both[0].go_on.set()


WHO = message("who")


def deliveries(router: Any) -> int:
    """How many the router has made beside the first of a call."""
    rows = [row["hedges"] for row in router.query("methods")["methods"] if row["hedges"]]
    return sum(row["deliveries"] for row in rows)


def test_the_first_of_two_answers_counts(client, backends):
    slow, fast = backends
    started = monotonic()
    for number in range(1, 4):
        assert client.call(None, "compute", WHO, 30, idempotent=True, first_of=2) == "fast"
        # One that is told before it has begun never begins.
        assert fast.begun == number and slow.begun <= number
    assert monotonic() - started < 25 and not slow.ended


def test_a_second_back_end_is_asked_when_the_first_takes_long(client, backends):
    slow, fast = backends
    for _ in range(4):
        assert client.call(None, "compute", WHO, 30, idempotent=True, hedge_after=0.2) == "fast"
    assert fast.begun == 4 and slow.begun < 4


def test_what_is_quick_is_asked_once(client, serve):
    backends = [Backend("one"), Backend("two")]
    for backend in backends:
        serve(backend, host=backend.name)
    for _ in range(20):
        client.call(None, "compute", WHO, 30, idempotent=True, hedge_after=20)
    assert sum(backend.begun for backend in backends) == 20


def test_an_exception_wins_unless_it_is_told_not_to(client, backends):
    slow, _ = backends
    fail = message("fail")
    with pytest.raises(ValueError, match="fast"):
        client.call(None, "compute", fail, 30, idempotent=True, first_of=2)
    slow.go_on.set()
    assert client.call(None, "compute", fail, 30, idempotent=True, first_of=2, exception_wins=False) == "slow"


@pytest.mark.parametrize("options", [{"first_of": 2}, {"hedge_after": 0.1}, {"hedge_after": "p95"}])
def test_a_call_that_is_not_idempotent_is_refused(client, serve, options):
    compute = Compute()
    serve(compute)
    with pytest.raises(UsageError, match="not idempotent; say idempotent=True"):
        client.call(None, "compute", message("note", value=1), 30, **options)
    with pytest.raises(UsageError, match="not idempotent"):
        client.call(None, "compute", message("note", value=1), 30, idempotent=False, **options)
    with pytest.raises(UsageError, match="direct call has one consumer"):
        client.call(None, "compute", message("note", value=1), 30, idempotent=True, direct=True, **options)
    assert not compute.seen


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"first_of": 0}, "first_of must be 1 to 8"),
        ({"first_of": 9}, "first_of must be 1 to 8"),
        ({"first_of": True}, "first_of must be 1 to 8"),
        ({"first_of": "2"}, "first_of must be 1 to 8"),
        ({"hedge_after": -1}, "hedge_after must be 0 to 4000 seconds, 'p50', 'p95', 'p99', or False, not -1"),
        ({"hedge_after": float("nan")}, "hedge_after must be"),
        ({"hedge_after": "p96"}, "hedge_after must be"),
        ({"hedge_after": True}, "hedge_after must be"),
        ({"hedge_after": [1]}, "hedge_after must be"),
        ({"first_of": 2, "exception_wins": 1}, "exception_wins must be True, False or None"),
    ],
)
def test_wrong_options_are_named(client, options, text):
    with pytest.raises(UsageError, match=text):
        client.call(None, "compute", WHO, 30, idempotent=True, **options)
    with pytest.raises(UsageError, match=text):
        CallOptions(**options)


def test_one_is_no_hedge_and_false_switches_a_default_off(router, connect, backends):
    slow, fast = backends
    client = connect(topic_options={"compute": CallOptions(first_of=2, idempotent=True)})
    assert client.call(None, "compute", WHO, 30) == "fast"
    slow.go_on.set()
    eventually(lambda: topic(router)["in_flight"] == 0)
    for options in ({"first_of": 1}, {"hedge_after": False}):
        begun = slow.begun + fast.begun
        client.call(None, "compute", WHO, 30, **options)
        assert slow.begun + fast.begun == begun + 1


def test_a_default_leaves_alone_what_is_not_idempotent(router, connect, backends):
    slow, fast = backends
    slow.go_on.set()
    client = connect(options=CallOptions(first_of=2))
    client.call(None, "compute", WHO, 30)
    assert slow.begun + fast.begun == 1
    client.call(None, "compute", WHO, 30, retry=3)
    eventually(lambda: deliveries(router) == 1)


def test_a_stub_has_the_options_too(router, client, backends, client_shell):
    if client_shell == "aio":
        pytest.skip("the methods of its stubs are async; the options go the same way")
    stub = client.stub(Backend, "compute", idempotent=True, first_of=2)
    assert stub.who(None) == "fast"
    assert deliveries(router) == 1
    with pytest.raises(UsageError, match="not idempotent"):
        client.stub(Backend, "compute", first_of=2).who(None)


def test_the_router_tells_what_it_has_hedged(router, client, backends):
    client.call(None, "compute", WHO, 30, idempotent=True, first_of=2)
    (row,) = [row for row in router.query("methods")["methods"] if row["method"] == "who"]
    hedges = row["hedges"]
    assert (hedges["calls"], hedges["deliveries"]) == (1, 1)
    assert hedges["cancelled"] + hedges["compared"] + hedges["won"] >= 1


def test_one_process_never_has_a_call_twice(client, serve):
    backend = Backend("only")
    service = serve(backend, host="a")
    serve(backend, host="b", client=service.client)
    assert client.call(None, "compute", WHO, 30, idempotent=True, first_of=8) == "only"
    assert client.call(None, "compute", WHO, 30, idempotent=True, first_of=8) == "only"
    assert backend.begun == 2


def test_it_is_exported():
    assert "hedge_after" in (rpcmq.rpc.call.__doc__ or "")
