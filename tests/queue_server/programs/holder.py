"""A worker that holds its item until a line comes, and says when its lease is lost."""

from __future__ import annotations

import sys
from typing import Any

import gevent
from gevent.fileobject import FileObjectPosix

import rpcmq
from rpcmq.errors import LeaseLost


class Holder:
    """Holds items."""

    def __init__(self) -> None:
        self.is_told = False

    def hold(self, ctx: Any, invoice: Any) -> None:
        """Go on until a line has come."""
        item = rpcmq.current_item()
        assert item is not None
        print(f"began {invoice} attempt {item.attempt}", flush=True)
        try:
            while not self.is_told:
                gevent.sleep(0.02)
                item.check()
        except LeaseLost as error:
            print(f"lost {invoice}: {error}", flush=True)
            raise
        print(f"ended {invoice}", flush=True)

    def check(self, ctx: Any, invoice: Any) -> None:
        """Say whether the lease goes on."""
        item = rpcmq.current_item()
        assert item is not None
        print(f"checked {invoice} attempt {item.attempt}: {'held' if item.remaining() > 0 else 'lost'}", flush=True)


def main(url: str) -> None:
    """Work until standard input ends."""
    holder = Holder()
    with rpcmq.Worker("billing", holder, router=url, concurrency=1):
        print("works", flush=True)
        for _ in FileObjectPosix(sys.stdin.fileno(), "r"):
            holder.is_told = True


if __name__ == "__main__":
    main(sys.argv[1])
