"""Casts, and ends by os._exit at once.

ends_by_os_exit.py ROUTER rpc|patched confirm|close
"""

import sys

if sys.argv[2] == "patched":
    from gevent import monkey

    monkey.patch_all()

import os

from rpcmq import Client

client = Client(sys.argv[1])
client.cast(None, "compute", {"method": "note", "args": {"value": sys.argv[3]}}, confirm=sys.argv[3] == "confirm")
if sys.argv[3] == "close":
    client.close()
os._exit(0)
