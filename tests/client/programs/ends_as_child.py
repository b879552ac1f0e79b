"""Casts as the last act of children that multiprocessing has made.

ends_as_child.py ROUTER rpc|patched process|thread|pool|executor|forkserver|spawn
"""

import sys

if sys.argv[2] == "patched":
    from gevent import monkey

    monkey.patch_all()

import multiprocessing
import os
import threading
import time
from concurrent.futures import ProcessPoolExecutor
from typing import Any

os.environ["RPCMQ_ROUTER"] = sys.argv[1]

from rpcmq import rpc


def add() -> None:
    rpc.call(None, "compute", {"method": "add", "args": {"a": 1}}, timeout=10)


def note(value: int) -> None:
    rpc.cast(None, "compute", {"method": "note", "args": {"value": value}})


def note_in_thread(value: int) -> None:
    """Cast in a thread that outlives the function that the child was made for."""

    def later() -> None:
        time.sleep(0.2)  # until the function is over, and the child begins to end
        note(value)

    add()
    threading.Thread(target=later).start()


def run(how: str) -> list[int]:
    """The exit codes of the children."""
    if how == "pool":
        with multiprocessing.get_context("fork").Pool(2) as pool:
            pool.map(note, range(3))
            pool.close()
            pool.join()
        return []
    if how == "executor":
        with ProcessPoolExecutor(2, multiprocessing.get_context("fork")) as executor:
            list(executor.map(note, range(3)))
        return []
    context: Any = multiprocessing.get_context(how if how in ("forkserver", "spawn") else "fork")
    target = note_in_thread if how == "thread" else note
    children = [context.Process(target=target, args=(value,)) for value in range(3)]
    for child in children:
        child.start()
    for child in children:
        child.join()
    return [child.exitcode for child in children]


if __name__ == "__main__":
    add()
    print("ended", run(sys.argv[3]), flush=True)
