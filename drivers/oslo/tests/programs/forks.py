"""Makes transports, calls, and forks workers that serve and call. Arguments: kind of process, url."""

import sys

import kinds

kind, url = sys.argv[1:]
kinds.become(kind)

import os
import select
import threading

import oslo_messaging


class Endpoint:
    def pid(self, ctxt):
        return os.getpid()


transport = kinds.transport(url)
topic = "forks-" + kind


def client(server):
    return oslo_messaging.get_rpc_client(transport, oslo_messaging.Target(topic=topic, server=server), timeout=60)


def work(number):
    target = oslo_messaging.Target(topic=topic, server=f"worker-{number}")
    server = oslo_messaging.get_rpc_server(transport, target, [Endpoint()])
    server.start()
    assert client("parent").call({}, "pid") == os.getppid()
    # Unlike os.read, it lets green threads run in both kinds.
    select.select([stop], [], [])
    os.read(stop, 1)
    server.stop()
    server.wait()
    transport.cleanup()


server = oslo_messaging.get_rpc_server(transport, oslo_messaging.Target(topic=topic, server="parent"), [Endpoint()])
server.start()
print(client("parent").call({}, "pid") == os.getpid(), flush=True)

under_way = []
caller = threading.Thread(target=lambda: under_way.append(client("worker-1").call({}, "pid")))
caller.start()

stop, go_on = os.pipe()
children = []
for number in range(3):
    child = os.fork()
    if child == 0:
        code = 1
        kinds.begin_child(kind)
        try:
            work(number)
            code = 0
        finally:
            os._exit(code)
    children.append(child)
print([client(f"worker-{number}").call({}, "pid") for number in range(3)] == children, flush=True)
caller.join(60)
print(under_way == children[1:2], flush=True)
os.write(go_on, b"...")
print([os.waitpid(child, 0)[1] for child in children], flush=True)
print(client("parent").call({}, "pid") == os.getpid(), flush=True)
server.stop()
server.wait()
transport.cleanup()
print("ended", flush=True)
