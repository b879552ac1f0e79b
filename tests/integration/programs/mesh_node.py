"""A service that writes down what it starts before it runs it: mesh_node.py ROUTER FILE

Each start is a line of FILE, written in one call, so that nothing but the end of the machine loses it.
"""

import sys

import gevent

import rpcmq


class Node:
    def work(self, ctx: object, key: str, seconds: float) -> str:
        started.write(key.encode() + b"\n")
        gevent.sleep(seconds)
        return key


router, file = sys.argv[1:]
with (
    open(file, "ab", buffering=0) as started,
    rpcmq.Service("compute", Node(), router=router, concurrency=8) as service,
):
    print("serving")
    service.wait()
