"""Nodes are asked from every kind of client; what they answer late arrives, and what they refuse is an error."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import partial

import pytest

from rpcmq import Client
from rpcmq.aio import Client as AsyncClient
from rpcmq.config import load_router_config
from rpcmq.core.router.router import Router
from rpcmq.errors import CallError, CallTimeout
from rpcmq.nodes.loading import PlugIns
from rpcmq.server.embedded import EmbeddedRouter
from rpcmq.testing.nodes import node_of, plan_of
from tests.nodes import hostile
from tests.nodes.hostile import KIND

pytestmark = [pytest.mark.integration, pytest.mark.own_hub]


@pytest.fixture
def router() -> Iterator[EmbeddedRouter]:
    plug_ins = PlugIns([plan_of(hostile.Obedient)])
    config = load_router_config(flags={"router.listen": "tcp://127.0.0.1:0"})
    embedded = EmbeddedRouter(config, engine=partial(Router, plug_ins=plug_ins.makers))
    yield embedded
    embedded.close()


def test_a_client_in_the_hub_gets_large_answers_too(router: EmbeddedRouter) -> None:
    with Client(router.url) as client:
        for size in (0, 1, 1 << 20, 5 << 20):
            assert client.ask_node(KIND, bytes(size), timeout=30) == bytes(size)


def test_a_client_of_plain_threads_and_one_of_asyncio(router: EmbeddedRouter) -> None:
    from gevent import get_hub

    async def asks() -> tuple[bytes, dict[str, object], str]:
        async with AsyncClient(router.url) as client:
            answer = await client.ask_node(KIND, b"x", timeout=30)
            did = await client.control_node("obedient", "do", {"a": 1}, timeout=30)
            return answer, did, await client.restart_node("obedient", timeout=30)

    def in_thread() -> bytes:
        with Client(router.url, shell="threads") as client:
            return client.ask_node(KIND, b"threads", timeout=30)

    pool = get_hub().threadpool
    assert pool.apply(in_thread) == b"threads"
    assert pool.apply(lambda: asyncio.run(asks())) == (b"x", {"did": {"a": 1}}, "")


def test_an_answer_that_does_not_come_is_a_timeout(router: EmbeddedRouter, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hostile.Obedient, "take", lambda self, now, ask: setattr(self, "kept", ask))
    with Client(router.url) as client:
        with pytest.raises(CallTimeout, match="node kind 0x90"):
            client.ask_node(KIND, b"x", timeout=0.5)
        node_of(router.engine, "obedient").kept.refuse("too late anyhow")
        monkeypatch.setattr(hostile.Obedient, "take", lambda self, now, ask: ask.refuse("not today", why="rain"))
        with pytest.raises(CallError, match="not today") as refused:
            client.ask_node(KIND, b"x", timeout=30)
        assert refused.value.details["why"] == "rain"
