"""Endpoints that several files of tests serve."""

from __future__ import annotations

import threading
from typing import Any

__all__ = ["Endpoint"]


class Endpoint:
    """Notes the numbers that it is told; those that it holds are held until it is told to go on."""

    def __init__(self) -> None:
        self.seen: list[int] = []
        self.go_on = threading.Event()

    def tell(self, ctxt: Any, n: int) -> int:
        self.seen.append(n)
        return n

    def hold(self, ctxt: Any, n: int) -> int:
        self.seen.append(n)
        self.go_on.wait(60)
        return n
