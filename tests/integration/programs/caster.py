"""Sends numbered casts, as many as it is told, and says how it went.

    caster.py ROUTER COUNT WINDOW [PAUSE]

PAUSE is in seconds, after every tenth cast.
"""

import sys

import gevent

import rpcmq

router, count, window = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
pause = float(sys.argv[4]) if len(sys.argv) > 4 else 0.0
client = rpcmq.Client(router, "caster", cast_window=window, timeout=120)
most = 0
for n in range(count):
    client.cast(None, "compute", {"method": "run", "args": {"key": n}})
    most = max(most, client.process.casts.open)
    if pause and n % 10 == 0:
        gevent.sleep(pause)
    if n % 1000 == 0:
        print("sent", n)
print("done", most)
client.close(30)
print("closed", client.process.casts.open)
