"""Publishes and casts numbers as fast as it may until it is told to stop: publisher.py ROUTER."""

import sys

import gevent
from gevent.fileobject import FileObjectPosix

import rpcmq

client = rpcmq.Client(sys.argv[1], timeout=60)
stopping = False


def publish() -> int:
    sent = 0
    while not stopping:
        client.publish(None, "a.b", sent)
        sent += 1
        gevent.sleep(0.001)
    return sent


def cast() -> int:
    sent = 0
    while not stopping:
        client.cast(None, "compute", {"method": "run", "args": {"key": sent}})
        sent += 1
        gevent.sleep(0.002)
    return sent


events, casts = gevent.spawn(publish), gevent.spawn(cast)
print("started")
FileObjectPosix(0, "rb").readline()
stopping = True
gevent.joinall([events, casts], raise_error=True)
client.close(30)
print("sent", events.value, casts.value)
