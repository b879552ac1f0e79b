"""Children of multiprocessing that call and cast beside their parent.

    children.py fork|spawn|forkserver process|pool|executor

Each child reboots instances of its own; the last cast is the last that it does. The program goes on from step to step
when it reads a line.
"""

from __future__ import annotations

import multiprocessing
import sys
from concurrent.futures import ProcessPoolExecutor
from typing import Any

from examples.compute_service import Compute
from rpcmq import as_cast, rpc

CHILDREN = 3
compute = rpc.stub(Compute, "compute", timeout=20)


def child(number: int, called: Any, go_on: Any) -> None:
    reboot(number)
    called.release()
    go_on.wait(60)
    as_cast(compute.reboot)(None, f"last-{number}")


def reboot(number: int) -> str:
    for n in range(10):
        as_cast(compute.reboot)(None, f"i-{number}-{n}")
    return compute.show(None, f"i-{number}")


def processes(context: Any) -> None:
    called, go_on = context.Semaphore(0), context.Event()
    children = [context.Process(target=child, args=(number, called, go_on)) for number in range(CHILDREN)]
    for each in children:
        each.start()
    for _ in children:
        called.acquire()
    step("called")
    go_on.set()
    for each in children:
        each.join()
    step(f"ended {[each.exitcode for each in children]}")


def pool(context: Any) -> None:
    with context.Pool(CHILDREN) as workers:
        print(workers.map(reboot, range(CHILDREN)))
        step("called")
        workers.close()
        workers.join()
    step("ended")


def executor(context: Any) -> None:
    with ProcessPoolExecutor(CHILDREN, context) as workers:
        print(list(workers.map(reboot, range(CHILDREN))))
        step("called")
    step("ended")


def step(name: str) -> None:
    print(name, flush=True)
    sys.stdin.readline()


if __name__ == "__main__":
    print(compute.show(None, "i-1"))
    {"process": processes, "pool": pool, "executor": executor}[sys.argv[2]](multiprocessing.get_context(sys.argv[1]))
    print(compute.show(None, "i-2"))
    as_cast(compute.reboot)(None, "parent")
