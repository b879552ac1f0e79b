"""Counts the events that it gets: subscriber.py ROUTER PATTERN."""

import sys
from collections import Counter

from gevent.fileobject import FileObjectPosix

import rpcmq

router, pattern = sys.argv[1:]
got: Counter[object] = Counter()
with rpcmq.Client(router, timeout=60) as client:
    client.subscribe(pattern, lambda ctx, topic, payload: got.update([payload]))
    print("subscribed")
    for _ in FileObjectPosix(0, "rb"):
        print("got", len(got), "doubled", sum(times > 1 for times in got.values()))
