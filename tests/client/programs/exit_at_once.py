"""Casts and ends.

exit_at_once.py ROUTER COUNT return|exit|raise|interrupt
"""

import os
import signal
import sys

from rpcmq import rpc

os.environ["RPCMQ_ROUTER"] = sys.argv[1]
for n in range(int(sys.argv[2])):
    rpc.cast(None, "compute", {"method": "note", "args": {"value": n}})
rpc.publish(None, "a.b", "last")
match sys.argv[3]:
    case "exit":
        sys.exit(3)
    case "raise":
        raise ValueError("on purpose")
    case "interrupt":
        os.kill(os.getpid(), signal.SIGINT)
