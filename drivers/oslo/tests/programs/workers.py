"""A service as oslo.service runs it: makes its transport, forks workers, and one anew for each that has ended.

Arguments: kind of process, url, file in which workers write what they begin and end. SIGTERM ends it, or one worker.
"""

import sys

import kinds

kind, url, path = sys.argv[1:]
kinds.become(kind)

import os
import signal
import threading
import time

import oslo_messaging
from journal import Endpoint

WORKERS, THREADS = 4, 4
endpoint = Endpoint(path)


transport = kinds.transport(url)
over = threading.Event()


def serve(topic, name):
    target = oslo_messaging.Target(topic=topic, server=name)
    server = oslo_messaging.get_rpc_server(transport, target, [endpoint])
    server.start(override_pool_size=THREADS)
    return server


def wait(look=lambda: None):
    """Unlike a wait for the event, this lets handlers of signals run in all kinds."""
    while not over.is_set():
        look()
        time.sleep(0.02)


def work():
    server = serve("faults", f"worker-{os.getpid()}")
    os.write(1, f"worker {os.getpid()}\n".encode())
    wait()
    server.stop()
    server.wait()
    transport.cleanup()


def fork():
    child = os.fork()
    if child == 0:
        code = 1
        kinds.begin_child(kind)
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    children.add(child)


def replace_ended():
    ended, status = os.waitpid(-1, os.WNOHANG)
    if ended:
        children.remove(ended)
        # The parent's connection is in use when it forks, and goes on.
        assert client.call({}, "pid") == os.getpid()
        os.write(1, f"ended {ended} {os.waitstatus_to_exitcode(status)}\n".encode())
        fork()


signal.signal(signal.SIGTERM, lambda *_: over.set())
children = set()
parent = serve("parent", "parent")
client = oslo_messaging.get_rpc_client(transport, oslo_messaging.Target(topic="parent"), timeout=60)
for _ in range(WORKERS):
    fork()
wait(replace_ended)
for child in children:
    os.kill(child, signal.SIGTERM)
codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
parent.stop()
parent.wait()
transport.cleanup()
os.write(1, f"codes {codes}\n".encode())
