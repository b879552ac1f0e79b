"""Casts to a router that is cut off by then, and ends: what is lost is said, and nothing hangs.

    exit_late.py ROUTER

It is told by a line on its standard input when the router has gone.
"""

import sys

from rpcmq.client import Client

client = Client(sys.argv[1])
client.connect()
print("ready")
sys.stdin.readline()
client.cast(None, "compute", {"method": "note"})
