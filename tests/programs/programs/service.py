"""A service whose method ends when the program does: ``service.py SHELL URL``."""

from __future__ import annotations

import asyncio
import sys
from threading import Event
from typing import Any

import gevent.event

import rpcmq
import rpcmq.aio


class Held:
    """Runs for long."""

    def hold(self, ctx: Any) -> None:
        """Go on."""
        sys.stdout.write("runs\n")  # at once: another thread does so, too
        (gevent.event.Event() if sys.argv[1] == "gevent" else Event()).wait()


class HeldInTheLoop:
    """Runs for long in an event loop."""

    async def hold(self, ctx: Any) -> None:
        """Go on."""
        sys.stdout.write("runs\n")  # at once: another thread does so, too
        await asyncio.Event().wait()


async def in_the_loop(url: str) -> None:
    """Serve in an event loop."""
    async with rpcmq.aio.Service("held", HeldInTheLoop(), router=url) as service:
        print("serves", flush=True)
        await service.wait()


def main(shell: str, url: str) -> None:
    """Serve until a signal comes."""
    if shell == "asyncio":
        asyncio.run(in_the_loop(url))
        return
    settings: Any = {"shell": shell}
    with rpcmq.Service("held", Held(), router=url, **settings) as service:
        print("serves", flush=True)
        service.wait()


if __name__ == "__main__":
    main(*sys.argv[1:])
