"""A child takes up what its parent has begun: a stream and a subscription.

forked_stream.py ROUTER rpc|patched
"""

import sys

if sys.argv[2] == "patched":
    from gevent import monkey

    monkey.patch_all()

import os
import time

from rpcmq import Client
from rpcmq.errors import UsageError

client = Client(sys.argv[1], linger_seconds=30)
items = client.multicall(None, "compute", {"method": "count", "args": {"n": 300}}, timeout=20)
subscription = client.subscribe("a", lambda ctx, topic, payload: None)
print("parent", next(items))
time.sleep(0.2)  # items come in that the child must not have
pid = os.fork()
if pid == 0:
    for _ in range(2):
        try:
            print("child", next(items))
        except UsageError as error:
            print("child", error)
    items.close()  # type: ignore[attr-defined]
    subscription.close()
    del items
    print("child", client.call(None, "compute", {"method": "add", "args": {"a": 1}}, timeout=20))
    client.close()
    sys.stdout.flush()
    os._exit(0)
print("ended", os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
print("parent", list(items) == list(range(1, 300)), client.publish(None, "a", 1, confirm=True))
