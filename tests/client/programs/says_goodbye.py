"""Children that connect, close their client and end at once, in a way that gives nothing else time to run.

says_goodbye.py ROUTER gevent|threads
"""

import os
import sys

from rpcmq import Client


def child() -> None:
    client = Client(sys.argv[1], shell=sys.argv[2])  # type: ignore[arg-type]
    client.connect(20)
    client.close()
    os._exit(0)


codes = []
for _ in range(20):
    pid = os.fork()
    if pid == 0:
        child()
    codes.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
print("ended", codes == [0] * 20)
