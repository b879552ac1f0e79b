"""Calls in a parent, in children and in the parent again; prints what came of it.

forks.py ROUTER fork|multiprocessing|patched-fork
"""

import sys

if sys.argv[2] == "patched-fork":
    from gevent import monkey

    monkey.patch_all()

import atexit
import multiprocessing
import os
import traceback

import gevent

from rpcmq import rpc

os.environ["RPCMQ_ROUTER"] = sys.argv[1]


def add(a: int, timeout: float = 10) -> object:
    return rpc.call(None, "compute", {"method": "add", "args": {"a": a}}, timeout=timeout)


def child() -> int:
    """Runs in the child; what its exit code will be."""
    try:
        assert rpc.client().identity != parent
        assert [add(n) for n in range(50)] == list(range(50))
        rpc.cast(None, "compute", {"method": "note", "args": {"value": "child"}}, confirm=True)
        got = []
        subscription = rpc.subscribe("child.#", lambda ctx, topic, payload: got.append(payload))
        rpc.publish(None, "child.a", 1, confirm=True)
        with gevent.Timeout(30):
            while not got:
                gevent.sleep(0.01)
        subscription.close()
        # os._exit() skips what closes clients at the end of a program.
        atexit._run_exitfuncs()
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def run_child() -> int:
    if sys.argv[2] == "multiprocessing":
        process = multiprocessing.get_context("fork").Process(target=lambda: os._exit(child()))
        process.start()
        while process.is_alive():
            gevent.sleep(0.01)
        return process.exitcode or 0
    pid = os.fork()
    if pid == 0:
        os._exit(child())
    while True:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        gevent.sleep(0.01)


assert add(1) == 1
parent = rpc.client().identity
rpc.subscribe("parent.#", lambda ctx, topic, payload: None)
# A call is in flight while the process forks; its answer is the parent's alone.
holding = gevent.spawn(rpc.call, None, "compute", {"method": "hold"}, timeout=30)
gevent.sleep(0.05)
print("children", [run_child() for _ in range(3)])
assert rpc.client().identity == parent
print("parent", [add(n) for n in range(5)])
rpc.cast(None, "compute", {"method": "release"}, confirm=True)
print("held", holding.get(timeout=20))
print("wake-ups lost", rpc.client().process.connection.lost_wakeups)
