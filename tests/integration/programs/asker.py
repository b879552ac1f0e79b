"""A service whose method asks another service, over its own client and over another by turns: asker.py ROUTER."""

import sys
from itertools import cycle

import rpcmq


class Asker:
    def ask(self, ctx: object, topic: str, method: str, timeout: float) -> object:
        return next(clients).call(ctx, topic, {"method": method, "args": {}}, timeout)


service = rpcmq.Service("asker", Asker(), host="asker", router=sys.argv[1])
service.start()
other = rpcmq.Client(sys.argv[1])
other.connect()
clients = cycle((service.client, other))
print("serving")
service.wait()
