"""Forks a process in which a router, a direct service and a client live; parent and children go on.

fork_beside_a_router.py
"""

import logging
import os
import traceback

import gevent

import rpcmq
import rpcmq.testing
from rpcmq.errors import UsageError

# On a machine that stands still a direct link may come too late, which is logged.
logging.getLogger("rpcmq").addHandler(logging.NullHandler())


class Compute:
    def add(self, ctx: object, a: int) -> int:
        return a


def message(a: int) -> dict[str, object]:
    return {"method": "add", "args": {"a": a}}


def child(url: str) -> int:
    try:
        with rpcmq.Client(url) as client:
            assert [client.call(None, "compute", message(n), timeout=60) for n in range(200)] == list(range(200))
        gevent.sleep(0.3)
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def parent(url: str) -> None:
    def calls(direct: bool) -> None:
        while not done:
            try:
                assert client.call(None, "compute", message(1), timeout=60, direct=direct) == 1
            except UsageError:
                # A child has copies of these greenlets, one of which may have been about to run, and of this client,
                # which is closed there.
                if os.getpid() == me:
                    raise
                return

    me = os.getpid()
    client = rpcmq.Client(url)
    done: list[bool] = []
    callers = [gevent.spawn(calls, direct) for direct in (True, False)]
    gevent.sleep(0.05)
    pids = set()
    for _ in range(3):
        pid = os.fork()
        if pid == 0:
            os._exit(child(url))
        pids.add(pid)
    codes = []
    while pids:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid:
            pids.discard(pid)
            codes.append(os.waitstatus_to_exitcode(status))
        gevent.sleep(0.01)
    done.append(True)
    gevent.joinall(callers, raise_error=True)
    print("children", codes)
    print("wake-ups lost", client.process.connection.lost_wakeups, router.lost_wakeups)
    client.close()


with rpcmq.testing.router() as router, rpcmq.Service("compute", Compute(), router=router.url, direct=True):
    parent(router.url)
