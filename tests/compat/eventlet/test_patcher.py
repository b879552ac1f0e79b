"""Patching, each time in a process of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest


def test_a_patched_process_sleeps_and_reads_together(program: Callable[..., str]):
    printed = program(
        """
        import eventlet
        eventlet.monkey_patch()
        eventlet.monkey_patch()
        import os, socket, threading, time
        left, right = socket.socketpair()
        order = []
        def late():
            time.sleep(0.01)
            order.append("slept")
            right.send(b"x")
        threading.Thread(target=late).start()
        order.append("read" if left.recv(1) == b"x" else "?")
        left.close(), right.close()
        print(order)
        from eventlet import patcher
        print([patcher.is_monkey_patched(m) for m in ("os", "socket", "thread", "time", "select", socket)])
        from eventlet.green import socket as green, urllib2, threading as gt
        import urllib.request
        print(green is socket, gt is threading, urllib2.urlopen is urllib.request.urlopen)
        print(eventlet.import_patched("http.client") is __import__("http.client").client)
        """
    )
    assert printed.splitlines() == ["['slept', 'read']", str([True] * 6), "True True True", "True"]


@pytest.mark.parametrize(
    ("arguments", "patched"),
    [
        ("", "os select socket subprocess thread time"),
        ("all=True, thread=False", "os select socket subprocess time"),
        ("thread=False", "os select socket subprocess time"),
        ("time=True", "time"),
        ("all=False, socket=True, select=True", "select socket"),
        ("MySQLdb=True, psycopg=True", ""),
    ],
)
def test_what_is_patched(program: Callable[..., str], arguments: str, patched: str):
    printed = program(
        f"""
        import eventlet
        from eventlet import patcher
        eventlet.monkey_patch({arguments})
        names = ("os", "select", "socket", "subprocess", "thread", "time")
        print(*(name for name in names if patcher.is_monkey_patched(name)))
        """
    )
    assert printed.strip() == patched


def test_an_unknown_name_is_refused(eventlet: Any):
    with pytest.raises(TypeError, match="sockets"):
        eventlet.monkey_patch(sockets=True)


def test_originals_block(program: Callable[..., str]):
    """As the libvirt driver of 2013 uses them: a native thread feeds green ones through a pipe."""
    printed = program(
        """
        import eventlet
        eventlet.monkey_patch()
        import os, threading
        from eventlet import greenio, patcher, tpool
        native, queue = patcher.original("threading"), patcher.original("Queue")
        reader, writer = os.pipe()
        pipe, items = greenio.GreenPipe(reader, "rb", 0), queue.Queue()
        ids = []
        def produce():
            ids.append(threading.get_native_id())
            patcher.original("time").sleep(0.3)
            items.put("event")
            os.write(writer, b" ")
        thread = native.Thread(target=produce)
        thread.daemon = True
        thread.start()
        ticks = []
        def tick():
            while True:
                ticks.append(1)
                eventlet.sleep(0.001)
        eventlet.spawn(tick)
        pipe.read(1)
        print(items.get(), ids[0] != threading.get_native_id(), len(ticks) > 1)
        print(patcher.original("threading") is native, native is not threading)
        print(patcher.original("socket").socket.__module__, tpool.execute(lambda: 5))
        """
    )
    assert printed.splitlines() == ["event True True", "True True", "socket 5"]


def test_green_modules_in_an_unpatched_process(program: Callable[..., str]):
    printed = program(
        """
        import socket, http.client, threading, eventlet
        from eventlet.green import socket as green, httplib, threading as gt, time, Queue
        ticks = []
        def tick():
            while True:
                ticks.append(1)
                eventlet.sleep(0.001)
        eventlet.spawn(tick)
        time.sleep(0.3)
        print(len(ticks) > 2, green is not socket, httplib is not http.client, gt is not threading)
        print(socket.socket.__module__, green.socket.__module__, httplib.socket is green)
        thread = gt.Thread(target=lambda: time.sleep(0.001))
        thread.start(); thread.join()
        eventlet.spawn_after(0.001, (q := Queue.Queue()).put, "item")
        print(q.get(), threading.Lock is not gt.Lock)
        import sys
        print(sys.modules["http.client"] is http.client, sys.modules["threading"] is threading)
        """
    )
    # Python 3.13 has something to say when the second module named threading goes.
    assert printed.splitlines()[:4] == [
        "True True True True",
        "socket gevent._socket3 True",
        "item True",
        "True True",
    ]


def test_inject_and_patch_function(program: Callable[..., str]):
    printed = program(
        """
        import types, eventlet, sys
        from eventlet import patcher
        fake = types.ModuleType("socket"); fake.timeout = OSError; fake.has = "fake"
        fake.__dict__.update({k: v for k, v in vars(__import__("socket")).items() if k not in fake.__dict__})
        names = {}
        module = patcher.inject("ftplib", names, ("socket", fake))
        print(module.socket.has, names["FTP"] is module.FTP, "__name__" in names)
        import ftplib
        print(hasattr(ftplib.socket, "has"))
        def function():
            import socket
            return getattr(socket, "has", "real")
        print(patcher.patch_function(function, ("socket", fake))(), function())
        """
    )
    assert printed.splitlines() == ["fake True False", "False", "fake real"]
