"""A service whose method asks another service: asker.py ROUTER."""

import sys

import rpcmq


class Asker:
    def ask(self, ctx: object, topic: str, method: str, timeout: float) -> object:
        return service.client.call(ctx, topic, {"method": method, "args": {}}, timeout)


service = rpcmq.Service("asker", Asker(), host="asker", router=sys.argv[1])
service.start()
print("serving")
service.wait()
