"""Clients that come, use every kind of link and leave, half of them without a word.

churn.py ROUTER COUNT
"""

import os
import sys

import rpcmq

router, count = sys.argv[1], int(sys.argv[2])
for n in range(count):
    client = rpcmq.Client(router)
    assert client.call(None, "compute", {"method": "add", "args": {"a": n}}, 20) == n
    client.cast(None, f"nobody-{n % 3}", {"method": "run"}, ttl=0.5)
    subscription = client.subscribe(f"events.{n}.#", print)
    client.publish(None, "events.other", n)
    if n % 2:
        client.close()
# The other half ends here, all at once.
os._exit(0)
