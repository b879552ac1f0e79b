"""Serves and calls itself in one process, while the rest of it goes on. Arguments: kind of process, url."""

import sys

import kinds

kind, url = sys.argv[1:]
kinds.become(kind)

import threading
import time

import oslo_messaging


class Endpoint:
    def wait(self, ctxt, seconds):
        time.sleep(seconds)
        return seconds

    def see_ticks(self, ctxt):
        """Wait until the rest of the process has gone on for a while."""
        before, deadline = ticks, time.monotonic() + 30
        while ticks < before + 5 and time.monotonic() < deadline:
            time.sleep(0.01)
        return ticks >= before + 5

    def nested(self, ctxt, n):
        return client.call({}, "double", n=n) + 1

    def double(self, ctxt, n):
        return 2 * n


ticks = 0
done = threading.Event()


def tick():
    global ticks
    while not done.is_set():
        ticks += 1
        time.sleep(0.01)


transport = kinds.transport(url)
target = oslo_messaging.Target(topic="kind-" + kind, server="node-1")
server = oslo_messaging.get_rpc_server(transport, target, [Endpoint()])
server.start()
client = oslo_messaging.get_rpc_client(transport, target, timeout=60)
ticker = threading.Thread(target=tick)
ticker.start()

print(client.call({}, "see_ticks"), flush=True)

answers = []
callers = [threading.Thread(target=lambda n=n: answers.append(client.call({}, "nested", n=n))) for n in range(20)]
for caller in callers:
    caller.start()
for caller in callers:
    caller.join()
print(sorted(answers) == [2 * n + 1 for n in range(20)], flush=True)
print(kinds.in_thread_of_the_system(kind, lambda: client.call({}, "nested", n=4)), flush=True)
kinds.in_thread_of_the_system(kind, lambda: client.cast({}, "double", n=4))
monitored = client.prepare(call_monitor_timeout=2)
print(kinds.unless_held_up(lambda: monitored.call({}, "wait", seconds=3), "no sign of life"), flush=True)
before = ticks
try:
    client.prepare(server="nobody", timeout=1).call({}, "double", n=1)
except oslo_messaging.MessagingTimeout as error:
    print("no consumer" in str(error), ticks > before, flush=True)
done.set()
ticker.join()
server.stop()
server.wait()
transport.cleanup()
print("ended", flush=True)
