"""The default client of asyncio."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from rpcmq import aio, rpc
from rpcmq.aio import default
from rpcmq.client import Client
from rpcmq.testing import InProcessRouter
from tests.from_threads import in_thread

#: Longest wait for anything (seconds).
LONG = 20.0


@pytest.fixture
def no_default(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As in a program that has used no default client yet."""
    monkeypatch.setattr(default, "_made", None)
    monkeypatch.setattr(rpc, "_client", None)
    yield
    if default._made is not None:
        in_thread(default._made.threads.close)


@pytest.mark.parametrize("shell", ["gevent", "threads"])
def test_threads_that_make_the_default_client_at_the_same_time_share_it(
    router: InProcessRouter, no_default: None, monkeypatch: pytest.MonkeyPatch, shell: Any
) -> None:
    plain = Client(router.url, shell=shell)
    rpc.configure(plain)
    both_make_one = threading.Barrier(2)

    class Slow(aio.Client):
        def __init__(self, *args: Any, **options: Any) -> None:
            both_make_one.wait(LONG)
            super().__init__(*args, **options)

    monkeypatch.setattr(default, "Client", Slow)
    chosen: list[aio.Client] = []
    threads = [threading.Thread(target=lambda: chosen.append(aio.client())) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        in_thread(thread.join, LONG)
    assert len(chosen) == 2 and chosen[0] is chosen[1] is aio.client()
    assert (chosen[0].threads is plain) is (shell == "threads")
    plain.close()
