"""Serves a topic with one worker. Arguments: kind of process, url, topic, server."""

import sys

import kinds

kinds.become(sys.argv[1])

import threading

import oslo_messaging


class Endpoint:
    def hold(self, ctxt, n):
        print("began", n, flush=True)
        threading.Event().wait()


url, topic, name = sys.argv[2:]
target = oslo_messaging.Target(topic=topic, server=name)
oslo_messaging.get_rpc_server(kinds.transport(url), target, [Endpoint()]).start(override_pool_size=1)
print("listening", flush=True)
while True:
    threading.Event().wait(1)
