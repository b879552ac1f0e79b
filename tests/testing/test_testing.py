"""The router for tests and the bounded wait."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import Any

import gevent
import pytest
from gevent import subprocess

import rpcmq
from rpcmq import rpc
from rpcmq.client import Client
from rpcmq.errors import ConfigError, UsageError
from rpcmq.testing import eventually


class Calculator:
    def add(self, ctx: object, a: int, b: int) -> int:
        return a + b


def test_the_example_of_the_docstring():
    with rpcmq.testing.router() as router, rpcmq.Service("calculator", Calculator(), router=router.url):
        assert rpc.call(None, "calculator", {"method": "add", "args": {"a": 1, "b": 2}}) == 3


def test_environment_and_default_client_are_as_before(monkeypatch):
    monkeypatch.setenv("RPCMQ_ROUTER", "tcp://127.0.0.1:1")
    with Client() as mine:
        before = rpc.configure(mine)
        with rpcmq.testing.router() as router:
            assert os.environ["RPCMQ_ROUTER"] == router.url
            assert rpc.client().config.router == (router.url,)
            used = rpc.client()
            used.connect()
        assert rpc.configure(before) is mine
        assert os.environ["RPCMQ_ROUTER"] == "tcp://127.0.0.1:1"
        with pytest.raises(UsageError, match="closed"):
            used.connect()


def test_without_a_variable_there_is_none_afterwards(monkeypatch):
    monkeypatch.delenv("RPCMQ_ROUTER", raising=False)
    with pytest.raises(KeyError), rpcmq.testing.router():
        raise KeyError
    assert "RPCMQ_ROUTER" not in os.environ


def test_routers_can_be_nested():
    with rpcmq.testing.router() as outer:
        with rpcmq.testing.router() as inner:
            assert os.environ["RPCMQ_ROUTER"] == inner.url != outer.url
        assert os.environ["RPCMQ_ROUTER"] == outer.url


def test_settings():
    with rpcmq.testing.router(queue_max_messages=7, link_heartbeat_seconds="250ms") as router:
        assert router.config.queue.max_messages == 7
        assert router.config.link.heartbeat_seconds == 0.25


@pytest.mark.parametrize(
    ("settings", "names"),
    [
        ({"nonsense": 1}, "nonsense: unknown"),
        ({"queue_max_mesages": 1}, "did you mean queue.max_messages"),
        ({"queue_max_messages": 0}, "expected an integer >= 1"),
        ({"link_lost_seconds": 1}, "expected more than link.unresponsive_seconds"),
    ],
)
def test_wrong_settings_are_refused(settings, names):
    with pytest.raises(ConfigError, match=f"rpcmq.testing.router: .*{names}"), rpcmq.testing.router(**settings):
        pass


def test_query():
    with rpcmq.testing.router() as router:
        assert router.query()["processes"] == []
        assert router.query("summary")["links"] == 0
        with pytest.raises(UsageError, match="view 'nonsense' is unknown"):
            router.query("nonsense")
        router.check()
        assert router.lost_wakeups == 0


def test_importing_it_loads_neither_gevent_nor_zeromq():
    code = (
        "import sys, rpcmq.testing.plugin\n"
        "print({'gevent', 'zmq', 'dill', 'tenacity', 'greenlet'} & {m.split('.')[0] for m in sys.modules})"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert shown.stdout.strip() == "set()"


# --- eventually ---------------------------------------------------------------------------------


def test_eventually_returns_what_came_true():
    values: Iterator[Any] = iter([None, 0, [], "yes"])
    assert eventually(lambda: next(values)) == "yes"


def test_eventually_lets_others_run():
    seen: list[int] = []
    gevent.spawn_later(0.02, seen.append, 1)
    assert eventually(lambda: seen) == [1]


def test_eventually_gives_up_and_says_what_it_saw():
    with pytest.raises(AssertionError, match=r"not within 0.02 s: the moon; last seen: 0"):
        eventually(lambda: 0, 0.02, "the moon")


def test_an_assertion_is_not_yet():
    seen: list[int] = []
    gevent.spawn_later(0.02, seen.append, 1)

    def look() -> bool:
        assert seen, "nothing seen"
        return True

    assert eventually(look)
    with pytest.raises(AssertionError, match=r"last seen: never"):
        eventually(never, 0.02)


def never() -> bool:
    raise AssertionError("never")


def test_other_exceptions_are_not_hidden():
    with pytest.raises(ZeroDivisionError):
        eventually(lambda: 1 / 0)
