"""An endpoint for workers that remembers what it was given."""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any

import gevent

from rpcmq.client import Item, Reject, RetryLater, current_item
from tests.from_threads import new_event

__all__ = ["Billing", "message"]


def message(method: str, **args: Any) -> dict[str, Any]:
    return {"method": method, "args": args}


class Billing:
    """Charges invoices."""

    def __init__(self) -> None:
        self.charged: list[Any] = []
        self.contexts: list[Any] = []
        self.items: list[Item] = []
        self.attempts: Counter[Any] = Counter()
        self.running: Counter[Any] = Counter()
        self.most: Counter[Any] = Counter()
        self.started = new_event()
        self.go_on = new_event()

    def _seen(self, invoice: Any) -> Item:
        item = current_item()
        assert item is not None
        self.items.append(item)
        self.attempts[invoice] += 1
        return item

    def charge(self, ctx: Any, invoice: Any) -> Any:
        """Charge it, and return it."""
        self.contexts.append(ctx)
        self._seen(invoice)
        self.charged.append(invoice)
        return invoice

    def wait(self, ctx: Any, invoice: Any) -> None:
        """Charge it when the test says so."""
        self._seen(invoice)
        self.started.set()
        self.go_on.wait(60)
        self.charged.append(invoice)

    def in_series(self, ctx: Any, key: Any, invoice: Any) -> None:
        """Charge it, and count how many of ``key`` do so at once."""
        self.running[key] += 1
        self.most[key] = max(self.most[key], self.running[key])
        gevent.sleep(0.01)
        self.charged.append((key, invoice))
        self.running[key] -= 1

    def fail(self, ctx: Any, invoice: Any, times: int = 1000, seconds: float = 0.0) -> None:
        """Fail so many times, then charge it."""
        item = self._seen(invoice)
        if item.attempt <= times:
            if seconds:
                raise RetryLater(seconds)
            raise LookupError(f"no invoice {invoice}")
        self.charged.append(invoice)

    def reject(self, ctx: Any, invoice: Any) -> None:
        self._seen(invoice)
        raise Reject(f"{invoice} was paid")

    def end(self, ctx: Any, invoice: Any, how: str) -> Any:
        """End the first attempt in an unusual way."""
        item = self._seen(invoice)
        if item.attempt > 1:
            self.charged.append(invoice)
            return None
        if how == "SystemExit":
            sys.exit(3)
        if how == "KeyboardInterrupt":
            raise KeyboardInterrupt
        if how == "Timeout":
            raise gevent.Timeout(1)
        if how == "GreenletExit":
            raise gevent.GreenletExit
        if how == "generator":
            return self._generator()
        return threading.Lock()

    def _generator(self) -> Iterator[int]:
        yield 1
