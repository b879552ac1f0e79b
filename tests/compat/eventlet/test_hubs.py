from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from typing import Any

import gevent
import pytest
from gevent import socket


@pytest.fixture
def hub(eventlet: Any) -> Any:
    return eventlet.hubs.get_hub()


def test_there_is_one_hub_and_it_is_gevents(eventlet: Any, hub: Any):
    assert eventlet.hubs.get_hub() is hub and hub.greenlet is gevent.get_hub()
    assert eventlet.spawn(lambda: eventlet.getcurrent().parent).wait() is gevent.get_hub()
    eventlet.hubs.use_hub("poll")
    assert eventlet.hubs.get_hub() is hub


def test_calls_are_scheduled_and_cancelled(eventlet: Any, hub: Any):
    calls: list[Any] = []
    hub.schedule_call_global(0.002, calls.append, "later")
    hub.schedule_call_global(0, calls.append, "now")
    hub.schedule_call_global(0, calls.append, "never").cancel()
    hub.schedule_call_global(0.001, calls.append, "never").cancel()
    eventlet.spawn(hub.schedule_call_local, 0.001, calls.append, "whose thread is dead").wait()
    hub.schedule_call_local(0.001, calls.append, "mine")
    eventlet.sleep(0.01)
    assert calls == ["now", "mine", "later"]


def test_switching_by_hand(eventlet: Any, hub: Any):
    current = eventlet.getcurrent()
    hub.schedule_call_global(0, current.switch, "back")
    assert hub.switch() == "back"


def test_trampoline_waits_for_a_socket(eventlet: Any):
    left, right = socket.socketpair()
    with left, right:
        eventlet.hubs.trampoline(left, write=True)
        eventlet.spawn_after(0.001, right.send, b"x")
        eventlet.hubs.trampoline(left.fileno(), read=True, timeout=5)
        assert left.recv(1) == b"x"
        with pytest.raises(eventlet.Timeout):
            eventlet.hubs.trampoline(left, read=True, timeout=0.001)
        with pytest.raises(KeyError):
            eventlet.hubs.trampoline(left, read=True, timeout=0.001, timeout_exc=KeyError)
        with pytest.raises(AssertionError):
            eventlet.hubs.trampoline(left, read=True, write=True)


def test_listeners(eventlet: Any, hub: Any):
    left, right = socket.socketpair()
    with left, right:
        ready: list[int] = []

        def read(fileno: int) -> None:
            ready.append(fileno)
            os.read(fileno, 10)

        listener = hub.add(hub.READ, left.fileno(), read)
        for _ in range(2):
            right.send(b"x")
            eventlet.sleep(0.002)
        hub.remove(listener)
        right.send(b"x")
        eventlet.sleep(0.002)
        assert ready == [left.fileno()] * 2


def test_a_forked_child_with_a_new_hub_leaves_its_parents_threads(program: Callable[..., str]):
    """As services of several processes do: fork, use_hub(), serve; and a pipe tells of the parent's end.

    What was due at the moment of the fork does not run in the child either.
    """
    printed = program(
        """
        import os, time
        from gevent import monkey; monkey.patch_all()
        import eventlet, eventlet.greenio

        def tick():
            while True:
                eventlet.sleep(0.01)
                os.write(1, b"tick %d\\n" % (os.getpid() == parent))

        def hold_up():
            eventlet.sleep(0.001)
            until = time.monotonic() + 0.05
            while time.monotonic() < until:
                pass

        parent = os.getpid()
        eventlet.spawn(hold_up)
        eventlet.spawn(tick)
        eventlet.sleep(0.005)  # so that at the fork the first tick is due, too
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            eventlet.hubs.use_hub()
            os.close(writer)
            pipe = eventlet.greenio.GreenPipe(reader, "r")
            gone = eventlet.spawn(pipe.read)
            assert eventlet.spawn_after(0.05, lambda: "child").wait() == "child"
            assert gone.wait() == ""
            os.write(1, b"child done\\n")
            os._exit(0)
        os.close(reader)
        eventlet.sleep(0.1)
        os.close(writer)
        assert os.waitpid(pid, 0) == (pid, 0)
        """
    )
    assert "child done" in printed and "tick 1" in printed and "tick 0" not in printed


def test_green_pipes_and_sockets(eventlet: Any):
    greenio = importlib.import_module("eventlet.greenio")
    reader, writer = os.pipe()
    with greenio.GreenPipe(reader, "r", 0) as text, greenio.GreenPipe(os.fdopen(writer, "wb"), "wb", 0) as binary:
        line = eventlet.spawn(text.readline)
        eventlet.sleep(0)
        binary.write(b"a line\n")
        assert line.wait() == "a line\n"
    original = eventlet.patcher.original("socket")
    left, right = original.socketpair()
    with greenio.GreenSocket(left) as green, right:
        received = eventlet.spawn(green.recv, 5)
        eventlet.sleep(0)
        right.send(b"hello")
        assert received.wait() == b"hello"
        greenio.shutdown_safe(green)
        greenio.shutdown_safe(green)


def test_local_data_is_of_a_thread(eventlet: Any):
    corolocal = importlib.import_module("eventlet.corolocal")
    data = corolocal.local()
    data.name = "main"
    assert eventlet.spawn(lambda: (hasattr(data, "name"), corolocal.get_ident())).wait()[0] is False
    assert data.name == "main"


def test_a_backdoor(eventlet: Any):
    backdoor = importlib.import_module("eventlet.backdoor")
    server = eventlet.listen(("127.0.0.1", 0))
    thread = eventlet.spawn(backdoor.backdoor_server, server, locals={"answer": 6 * 7})
    with eventlet.connect(server.getsockname()) as client, eventlet.Timeout(10):
        client.sendall(b"print('it is', answer)\n")
        received = b""
        while b"it is 42" not in received:
            received += client.recv(1000)
    thread.kill()
