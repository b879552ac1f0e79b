"""Serves a topic with some workers, which hold what they begin.

Arguments: kind of process, url, topic, server, number of workers (one if it is not said), "hoards" if it is to be
delivered more than these can run.

It lets go of that on SIGUSR1, and holds nothing more.
"""

import sys

import kinds

kinds.become(sys.argv[1])

import signal
import threading
import time

import oslo_messaging
from hoarding import HoardingServer
from oslo_messaging.rpc.server import RPCServer


class Endpoint:
    def hold(self, ctxt, n):
        print(f"began {n}\n", end="", flush=True)
        go_on.wait()


go_on = threading.Event()
told = []
signal.signal(signal.SIGUSR1, lambda *_: told.append(True))
url, topic, name, *options = sys.argv[2:]
workers, *hoards = options or ["1"]
target = oslo_messaging.Target(topic=topic, server=name)
server = oslo_messaging.get_rpc_server(
    kinds.transport(url), target, [Endpoint()], server_cls=HoardingServer if hoards else RPCServer
)
server.start(override_pool_size=int(workers))
print("listening", flush=True)
while True:
    # Unlike a wait for an event, it lets handlers of signals run in all kinds.
    time.sleep(0.02)
    if told:
        go_on.set()
