"""The broker in the process that ``fake_rabbit`` stood for: a router in it, and the fake backend, are in its place.

Test bases call ``reset_all`` after each test. A tree's own copy would need carrot.
"""

from __future__ import annotations

import sys
from typing import Any

from compat.nova import transport

EXCHANGES: dict[str, Any] = {}
QUEUES: dict[str, Any] = {}
CONSUMERS: dict[str, Any] = {}


def reset_all() -> None:
    """Forget all consumers, of the fake backend too, and the queues of a router in this process."""
    transport.reset()
    fake = sys.modules.get("nova.rpc.impl_fake")
    if fake is not None:
        fake.CONSUMERS.clear()
