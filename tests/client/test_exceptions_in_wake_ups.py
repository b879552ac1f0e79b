"""An exception in a wake-up of a process, a peer socket or the router costs nothing but what raised it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gevent
import pytest

from rpcmq.client import Client, Service
from rpcmq.core.process.call import Call
from rpcmq.testing import InProcessRouter, eventually
from rpcmq.transport.batches import BatchSocket
from rpcmq.transport.router_shell import RouterShell
from tests.client.endpoints import Compute, message
from tests.from_threads import ordered


@pytest.fixture
def fail_once(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any, str], list[int]]:
    """Has a method of an object raise when it is called next; gives the list in which that is noted."""

    def fail_once(owner: Any, name: str) -> list[int]:
        original, raised = getattr(owner, name), list[int]()

        def failing(*args: Any, **options: Any) -> Any:
            if raised:
                return original(*args, **options)
            raised.append(1)
            raise RuntimeError("on purpose")

        monkeypatch.setattr(owner, name, failing)
        return raised

    return fail_once


@pytest.mark.parametrize(
    "where",
    [
        ("uplink", "tick"),
        ("calls", "tick"),
        ("calls", "next_deadline"),
        ("tasks", "flush"),
        ("connection._loop", "_after_receive"),
        ("connection._dialed.socket", "send"),
        ("connection._dialed.socket", "receive"),
        ("connection._dialed.socket", "readable"),
    ],
    ids="-".join,
)
def test_of_a_process(client: Client, serve: Callable[..., Service], fail_once: Any, where: tuple[str, str]) -> None:
    compute = Compute()
    serve(compute)
    add = message("add", a=1, b=2)
    assert client.call(None, "compute", add, timeout=20) == 3
    owner: Any = client.process
    for name in where[0].split("."):
        owner = getattr(owner, name)
    raised = fail_once(owner, where[1])
    calls = [gevent.spawn(client.call, None, "compute", add, 60) for _ in range(20)]
    for n in range(20):
        client.cast(None, "compute", message("note", value=n))
    if where[1] == "tick":
        client.process.connection._loop._tick()
    # No call waits for its deadline, and each cast runs once and in its place.
    assert [call.get(timeout=20) for call in calls] == [3] * 20
    eventually(lambda: len(compute.seen) == 20)
    assert ordered(compute.seen) == list(range(20))
    assert raised
    assert client.call(None, "compute", add, timeout=20) == 3


@pytest.mark.own_hub
def test_of_the_router_s_socket_costs_one_connection_and_no_message(
    router: InProcessRouter, client: Client, serve: Callable[..., Service], monkeypatch: pytest.MonkeyPatch
) -> None:
    compute = Compute()
    serve(compute)
    add = message("add", a=1, b=2)
    assert client.call(None, "compute", add) == 3
    shell = shell_of(router)
    original, raised = shell._socket.send, list[bytes]()

    def send(route: bytes, messages: Any, *rest: Any) -> int:
        # When all but the last frame has left.
        if not raised and len(messages[0]) > 60:
            raised.append(route)
            shell._socket._send(route, 3)
            shell._socket._torn = 1
            shell._socket._complete_partial_send()
            raise RuntimeError("on purpose")
        return original(route, messages, *rest)

    monkeypatch.setattr(shell._socket, "send", send)
    calls = [gevent.spawn(client.call, None, "compute", add, 60) for _ in range(20)]
    for n in range(20):
        client.cast(None, "compute", message("note", value=n))
    assert [call.get(timeout=20) for call in calls] == [3] * 20
    eventually(lambda: len(compute.seen) == 20)
    assert compute.seen == list(range(20)) and raised
    shell.router.refused.pop("internal error")


@pytest.mark.own_hub
def test_of_a_peer_socket(client: Client, serve: Callable[..., Service], fail_once: Any) -> None:
    serve(Compute(), direct=True)
    add = message("add", a=1, b=2)
    eventually(lambda: client.call(None, "compute.node-7", add, direct=True) == 3)
    socket: Any = client.process.direct._socket
    raised = fail_once(socket._peers, "receive")
    with pytest.raises(Exception, match="direct"):
        client.call(None, "compute.node-7", add, timeout=0.3, direct=True)
    assert raised
    assert client.call(None, "compute.node-7", add, timeout=20, direct=True) == 3


def shell_of(router: InProcessRouter) -> RouterShell:
    shell = router._embedded.shell
    assert isinstance(shell, RouterShell) and isinstance(shell._socket, BatchSocket)
    return shell


@pytest.mark.own_hub
@pytest.mark.parametrize("was_sent", [True, False])
def test_an_interrupt_while_a_cast_is_sent_loses_and_doubles_nothing(client, serve, router, monkeypatch, was_sent):
    compute = Compute()
    serve(compute)
    client.cast(None, "compute", message("note", value=0), confirm=True)
    socket = client.process.connection._dialed.socket
    original = socket.send

    def interrupted(*args: Any, **options: Any) -> int:
        if was_sent:
            original(*args, **options)
        raise KeyboardInterrupt

    monkeypatch.setattr(socket, "send", interrupted)
    with pytest.raises(KeyboardInterrupt):
        client.cast(None, "compute", message("note", value=1))
    client.cast(None, "compute", message("note", value=2))
    eventually(lambda: len(compute.seen) >= 3)
    assert client.call(None, "compute", message("add", a=1)) == 1
    assert compute.seen == [0, 1, 2]
    assert router.query("summary")["refused"] == {}


def test_ctrl_c_while_an_acknowledgement_is_handled_leaves_the_cast_window_right(
    router: InProcessRouter, serve: Callable[..., Service]
) -> None:
    compute = Compute()
    serve(compute)
    sent = 0
    with Client(router.url) as client:
        client.call(None, "compute", message("add", a=1))
        uplink, reconnects = client.process.uplink, client.process.connection.reconnects
        acknowledged = uplink.on_acknowledged

        def interrupted(messages: list[bytes]) -> None:
            uplink.on_acknowledged = acknowledged
            raise KeyboardInterrupt

        uplink.on_acknowledged = interrupted

        def send() -> None:
            nonlocal sent
            for sent in range(1, 2001):
                client.cast(None, "compute", message("note", value=sent))
                gevent.sleep(0)

        with pytest.raises(KeyboardInterrupt):
            send()
        eventually(lambda: client.process.casts.open == 0 and client.process.connection.connected)
        assert client.process.connection.reconnects == reconnects + 1
        client.cast(None, "compute", message("note", value=0))
        eventually(lambda: {0, *range(1, sent)} <= set(compute.seen) and client.process.casts.open == 0)
        assert len(compute.seen) == len(set(compute.seen))
        assert client.call(None, "compute", message("add", a=2)) == 2


def test_an_exception_of_a_signals_handler_before_a_waiter_is_resumed_loses_no_answer(
    router: InProcessRouter, serve: Callable[..., Service], monkeypatch: pytest.MonkeyPatch
) -> None:
    serve(Compute())
    with Client(router.url) as client:
        client.call(None, "compute", message("add", a=1))
        resume = client.process._resume
        raised: list[list[Call]] = []

        def interrupted(calls: list[Call]) -> None:
            if calls and not raised:
                raised.append(calls)
                raise TimeoutError("as a handler of SIGALRM may raise it")
            resume(calls)

        monkeypatch.setattr(client.process, "_resume", interrupted)
        with gevent.Timeout(20):
            assert client.call(None, "compute", message("add", a=2), timeout=10) == 2
        assert raised
