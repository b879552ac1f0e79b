"""Any bytes in, only defined results out: never an exception, and every invariant holds."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rpcmq.core.router.router import Router
from rpcmq.testing.invariants import check_router, left_behind
from rpcmq.testing.network import Network
from rpcmq.wire import Kind
from tests.fuzz.driver import Driver

pytestmark = pytest.mark.fuzz


def nothing_is_left(router: Router) -> bool:
    """But the one row of statistics that stands for all beyond the bound."""
    left = left_behind(router)
    if set(left.get("router.directory.statistics._rows", ())) <= {("(other)", "(other)")}:
        left.pop("router.directory.statistics._rows", None)
    assert left == {}
    return True


@given(st.lists(st.tuples(st.binary(max_size=200), st.lists(st.binary(max_size=20), max_size=2)), max_size=10))
def test_any_bytes_from_strangers_are_answered_and_leave_nothing(batches: list[tuple[bytes, list[bytes]]]):
    net = Network()
    for batch, payloads in batches:
        answers = net.inject(b"stranger", batch, payloads)
        assert [m.kind for m in answers] == [Kind.REFUSED]
    assert left_behind(net.router) == {}


@given(st.lists(st.tuples(st.binary(max_size=200), st.lists(st.binary(max_size=20), max_size=2)), max_size=10))
def test_any_bytes_on_a_link_are_counted_and_hurt_nobody(batches: list[tuple[bytes, list[bytes]]]):
    net = Network()
    mallory, api, node = (net.process(name) for name in ("mallory", "api", "node"))
    node.register("compute", credit=100)
    for batch, payloads in batches:
        before = net.router.refused.total()
        mallory.inject(batch, *payloads)
        assert net.router.refused.total() > before
        call = api.request("compute")
        node.reply(node.take(Kind.REQUEST), b"fine")
        assert call.end.payload == b"fine"
    assert net.link(mallory).counters.total() - 1 == net.router.refused.total(), "all attributed"
    check_router(net.router)


@pytest.mark.long
@settings(max_examples=100)
@given(st.integers(0, 2**64 - 1), st.integers(1, 200))
def test_frames_that_get_deep(seed: int, steps: int):
    """The seed cannot be made simpler, but the number of steps can: the last one is the culprit."""
    driver = Driver(Random(seed))
    for _ in range(steps):
        driver.step()
        check_router(driver.router)
    driver.finish()
    check_router(driver.router)
    assert nothing_is_left(driver.router)


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(2, 8))])
def test_long_histories(seed: int):
    """States that need time: full queues, forgotten topics, resumed links."""
    driver = Driver(Random(seed))
    for step in range(1500):
        driver.step()
        if step % 10 == 0:
            check_router(driver.router)
        if step % 300 == 299:
            driver.pass_time(driver.rng.choice((3.0, 30.0)))
            driver.flush()
    driver.router.begin_drain(driver.now)
    for _ in range(100):
        driver.step()
        check_router(driver.router)
    driver.finish()
    check_router(driver.router)
    assert nothing_is_left(driver.router)


def test_the_frames_do_get_deep():
    """The fuzz is worth something only if most of the router is reached by it."""
    driver = Driver(Random(1))
    for _ in range(20_000):
        driver.step()
    router_sends = {
        Kind.REQUEST, Kind.CAST, Kind.REPLY, Kind.FAULT, Kind.ERROR, Kind.ITEM, Kind.END, Kind.GRANT, Kind.ALIVE,
        Kind.CANCEL, Kind.CONFIRM, Kind.REGISTERED, Kind.SUBSCRIBED, Kind.PUBLISH, Kind.LOST, Kind.INTRODUCTION,
        Kind.ANSWER,
    }  # fmt: skip
    assert driver.sent == router_sends
    reasons = {
        "truncated", "length", "version", "detached", "kind", "address", "origin", "format", "duplicate", "credit",
        "body", "tag", "batch", "ack", "query", "too many topics", "patterns", "bad_pattern",
    }  # fmt: skip
    assert reasons - set(driver.router.refused) == set()
    counters = driver.router.dispatch.requests.counters + driver.router.links.counters
    assert {
        "reply for an unknown call", "settlement of an unknown cast", "item of an unknown call", "malformed reply",
        "late replies", "given back", "return of an unknown request", "credit of an unknown consumer",
        "links ended", "stranger", "refused identity-taken", "refused too-many-links",
    } - set(counters) == set()  # fmt: skip


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", range(4))
def test_a_million_random_frames(seed: int):
    """Half a million in each of four histories."""
    driver = Driver(Random(1_000_000 + seed))
    steps = 0
    while driver.frames.made < 500_000:
        driver.step()
        steps += 1
        if steps % 200 == 0:
            check_router(driver.router)
        if steps % 50_000 == 0:
            driver.finish()
            assert nothing_is_left(driver.router)
    driver.finish()
    assert nothing_is_left(driver.router)
