"""Casts and events on their way into a client that another thread closes: each is sent, or its verb raises."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import rpcmq.threads
from rpcmq.errors import UsageError
from rpcmq.testing import eventually
from rpcmq.testing.processes import RouterProcess
from tests.client.endpoints import Compute, message

#: In seconds: the router is silent for less.
LINGER = 20.0


class Meanwhile:
    """A context that does something while it is encoded: when its verb has found the client open."""

    def __init__(self, act: Callable[[], object]) -> None:
        self._act = act

    def to_dict(self) -> dict[str, Any]:
        self._act()
        return {}


@pytest.fixture
def daemon() -> Iterator[RouterProcess]:
    with RouterProcess(router_recovery_seconds=0) as process:
        yield process


@pytest.fixture
def compute(daemon: RouterProcess) -> Iterator[Compute]:
    endpoint = Compute()
    with rpcmq.threads.Service("compute", endpoint, router=daemon.url):
        yield endpoint


def client_of(daemon: RouterProcess) -> rpcmq.threads.Client:
    client = rpcmq.threads.Client(daemon.url, linger_seconds=LINGER)
    client.connect(20)
    return client


def test_a_cast_that_comes_while_the_client_lingers_is_sent(daemon, compute):
    client = client_of(daemon)
    closing = threading.Thread(target=client.close)

    def begin_to_close() -> None:
        daemon.pause()
        client.cast(None, "compute", message("note", value="before"))
        closing.start()
        eventually(lambda: client.closed)

    try:
        client.cast(Meanwhile(begin_to_close), "compute", message("note", value="meanwhile"))
    finally:
        daemon.resume()
    closing.join(LINGER)
    eventually(lambda: sorted(compute.seen) == ["before", "meanwhile"])


@pytest.mark.parametrize("verb", ["cast", "fanout_cast"])
def test_a_cast_that_comes_when_the_client_has_closed_is_refused(daemon, compute, verb, caplog):
    client = client_of(daemon)

    def close() -> None:
        closing = threading.Thread(target=client.close)
        closing.start()
        closing.join(LINGER)

    with pytest.raises(UsageError, match="this client is closed"):
        getattr(client, verb)(Meanwhile(close), "compute", message("note", value=1))
    assert [record.getMessage() for record in caplog.records if "not sent" in record.getMessage()] == []


def test_an_event_that_comes_when_the_client_has_closed_is_refused(daemon):
    client = client_of(daemon)
    client.publish(None, "news.a", 0)

    def close() -> None:
        closing = threading.Thread(target=client.close)
        closing.start()
        closing.join(LINGER)

    process: Any = client.process
    post_message = process.post_message

    def closed_before(*args: Any) -> None:
        close()
        post_message(*args)

    process.post_message = closed_before
    with pytest.raises(UsageError, match="this client is closed"):
        client.publish(None, "news.a", 1)


def test_casts_of_a_daemon_thread_at_the_end_of_the_program_arrive_or_raise(daemon, compute):
    client = client_of(daemon)
    sent: list[int] = []
    refused: list[BaseException] = []
    begun = threading.Event()

    def cast_on() -> None:
        try:
            for number in range(10**9):
                client.cast(None, "compute", message("note", value=number))
                sent.append(number)
                begun.set()
        except BaseException as error:
            refused.append(error)

    casting = threading.Thread(target=cast_on, daemon=True)
    casting.start()
    assert begun.wait(20)
    # As the interpreter does it.
    shell, connection = client.shell, client.process.connection
    shell.run_at_exit(connection.close_and_wait)
    casting.join(20)
    assert [type(error) for error in refused] == [UsageError]
    eventually(lambda: len(compute.seen) >= len(sent))
    assert sorted(compute.seen) == sent
