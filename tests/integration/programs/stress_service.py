"""The far end of the stress test: answers calls, streams, and casts back.

stress_service.py ROUTER
"""

import faulthandler
import signal
import sys
from random import Random

import rpcmq

faulthandler.register(signal.SIGUSR1, all_threads=False)
SIZES = Random(7).randbytes(2_000_000)


class Far:
    def __init__(self) -> None:
        self.casts = 0

    def echo(self, ctx: object, payload: bytes, size: int) -> bytes:
        return SIZES[:size]

    def back(self, ctx: object, payload: bytes, size: int, number: int) -> None:
        """Casts to the near end."""
        self.casts += 1
        service.client.cast(None, "near", {"method": "back", "args": {"payload": SIZES[:size], "number": number}})

    def stream(self, ctx: object, sizes: list[int]) -> object:
        for size in sizes:
            yield SIZES[:size]

    def health(self, ctx: object) -> dict[str, int]:
        return {"lost_wakeups": service.client.process.connection.lost_wakeups, "casts": self.casts}


service = rpcmq.Service("far", Far(), host="far", router=sys.argv[1], identity="far", concurrency=200)
service.start()
print("serving")
service.wait()
