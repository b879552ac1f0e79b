"""Calls and casts from threads until SIGTERM. Arguments: kind of process, url."""

import sys

import kinds

kind, url = sys.argv[1:]
kinds.become(kind)

import signal
import threading
import time

import oslo_messaging

CALLERS, CASTERS = 4, 4
_MOST = 1_000_000

transport = kinds.transport(url)
client = oslo_messaging.get_rpc_client(transport, oslo_messaging.Target(topic="faults"), timeout=90)
over = threading.Event()
answered, failed = [], []
counts = [0] * CASTERS


def call():
    while not over.is_set():
        try:
            answered.append(client.call({}, "pid"))
        except oslo_messaging.MessagingTimeout as error:
            failed.append(str(error))
        time.sleep(0.01)


def cast(number):
    while not over.is_set():
        # What is raised here ends the thread, and its casts are fewer than are expected.
        client.cast({}, "note", n=number * _MOST + counts[number])
        counts[number] += 1
        time.sleep(0.005)


signal.signal(signal.SIGTERM, lambda *_: over.set())
threads = [threading.Thread(target=call) for _ in range(CALLERS)]
threads += [threading.Thread(target=cast, args=(number,)) for number in range(CASTERS)]
for thread in threads:
    thread.start()
print("loading", flush=True)
seen = 0
while not over.is_set():
    if (now := min(len(answered), *counts)) >= seen + 20:
        seen = now
        print("more", flush=True)
    time.sleep(0.02)
for thread in threads:
    thread.join()
for text in failed:
    print("failed:", text, flush=True)
print("casts", *counts, flush=True)
print("calls", len(answered), len(failed), flush=True)
transport.cleanup()
