"""A back end that counts the calls that it begins: catalogue.py ROUTER NAME SHELL SECONDS.

``show`` takes SECONDS; ``begun`` tells how many were begun; ``block`` lets nothing else run until a file is there, for
a minute at most. SHELL: gevent, threads or aio.
"""

import asyncio
import sys
import time
from pathlib import Path
from typing import Any

ROUTER, NAME, SHELL, SECONDS = sys.argv[1], sys.argv[2], sys.argv[3], float(sys.argv[4])


class Catalogue:
    def __init__(self) -> None:
        self.count = 0

    def show(self, ctx: object, item: int) -> str:
        self.count += 1
        pause(SECONDS)
        return NAME

    def block(self, ctx: object, path: str) -> bool:
        until = time.monotonic() + 60
        while not Path(path).exists() and time.monotonic() < until:
            time.sleep(0.01)
        return Path(path).exists()

    def begun(self, ctx: object) -> int:
        return self.count


class AsyncCatalogue(Catalogue):
    async def show(self, ctx: object, item: int) -> str:  # type: ignore[override]
        self.count += 1
        await asyncio.sleep(SECONDS)
        return NAME


async def serve() -> None:
    from rpcmq import aio

    async with aio.Service("catalogue", AsyncCatalogue(), host=NAME, router=ROUTER, identity=NAME, concurrency=64):
        print("serving")
        await asyncio.Event().wait()


pause: Any = time.sleep
if SHELL == "aio":
    asyncio.run(serve())
elif SHELL == "threads":
    from rpcmq import threads

    service = threads.Service("catalogue", Catalogue(), host=NAME, router=ROUTER, identity=NAME, concurrency=64)
    service.start()
    print("serving")
    service.wait()
else:
    import gevent

    import rpcmq

    pause = gevent.sleep
    green = rpcmq.Service("catalogue", Catalogue(), host=NAME, router=ROUTER, identity=NAME, concurrency=64)
    green.start()
    print("serving")
    green.wait()
