"""Serves a topic with some workers, which hold what they begin.

Arguments: kind of process, url, topic, server, number of workers (one if it is not said).

One of native threads lets go of that on a line of input, and holds nothing more.
"""

import sys

import kinds

kinds.become(sys.argv[1])

import threading

import oslo_messaging


class Endpoint:
    def hold(self, ctxt, n):
        print(f"began {n}\n", end="", flush=True)
        go_on.wait()


go_on = threading.Event()
url, topic, name, *workers = sys.argv[2:]
target = oslo_messaging.Target(topic=topic, server=name)
oslo_messaging.get_rpc_server(kinds.transport(url), target, [Endpoint()]).start(override_pool_size=int(*workers or [1]))
print("listening", flush=True)
if sys.argv[1] == "native" and sys.stdin.readline():
    go_on.set()
while True:
    threading.Event().wait(1)
