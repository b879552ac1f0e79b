"""Serves, or calls, casts and fans out numbers, until it is told to end. Arguments: kind of process, url, role.

On a line of input it prints what it has done: a server the numbers that it was told, by method; a client what came of
those that it has sent. "owe" is cast to one server, with ``at_least_once``.
"""

import sys

import kinds

kind, url, role = sys.argv[1:]
kinds.become(kind)

import json
import threading
import time

import oslo_messaging

seen = {"ask": [], "tell": [], "spread": [], "owe": []}
failed, undeliverable = [], []
slowest = dict.fromkeys(seen, 0.0)
ends = threading.Event()


class Endpoint:
    def ask(self, ctxt, n):
        seen["ask"].append(n)
        return n

    def tell(self, ctxt, n):
        seen["tell"].append(n)

    def spread(self, ctxt, n):
        seen["spread"].append(n)

    def owe(self, ctxt, n):
        seen["owe"].append(n)


def send(method, use):
    n = 0
    while not ends.is_set():
        began = time.monotonic()
        try:
            answer = use({}, method, n=n)
            assert method != "ask" or answer == n
            seen[method].append(n)
        except oslo_messaging.MessageUndeliverable:
            undeliverable.append(n)
        except Exception as error:
            failed.append(f"{method} {n}: {error!r}")
        slowest[method] = max(slowest[method], time.monotonic() - began)
        n += 1
        time.sleep(0.01)


transport = kinds.transport(url)
threads = []
if role == "client":
    client = oslo_messaging.get_rpc_client(transport, oslo_messaging.Target(topic="meshed"), timeout=60)
    target = oslo_messaging.Target(topic="meshed", server="node-0")
    sure = oslo_messaging.TransportOptions(at_least_once=True)
    owed = oslo_messaging.get_rpc_client(transport, target, transport_options=sure)
    uses = {"ask": client.call, "tell": client.cast, "spread": client.prepare(fanout=True).cast, "owe": owed.cast}
    threads = [threading.Thread(target=send, args=each) for each in uses.items()]
    for thread in threads:
        thread.start()
else:
    target = oslo_messaging.Target(topic="meshed", server=role)
    server = oslo_messaging.get_rpc_server(transport, target, [Endpoint()])
    server.start()
print("began", flush=True)


def lines():
    """Lines of input; another thread of the system reads them, and what is patched waits for its file descriptor."""
    import select

    while select.select([sys.stdin], [], [])[0]:
        yield sys.stdin.buffer.raw.readline().decode().strip()


for line in lines():
    if line == "end":
        ends.set()
        for thread in threads:
            thread.join()
    done = {"seen": seen, "failed": failed, "undeliverable": undeliverable, "slowest": slowest}
    print("done", json.dumps(done), flush=True)
