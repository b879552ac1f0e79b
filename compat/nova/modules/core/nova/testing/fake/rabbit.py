"""The broker in the process that ``fake_rabbit`` stood for; the fake backend is in its place.

Test bases call ``reset_all`` after each test. A tree's own copy would need carrot.
"""

from __future__ import annotations

import sys
from typing import Any

EXCHANGES: dict[str, Any] = {}
QUEUES: dict[str, Any] = {}
CONSUMERS: dict[str, Any] = {}


def reset_all() -> None:
    """Forget all consumers of the fake backend."""
    fake = sys.modules.get("nova.rpc.impl_fake")
    if fake is not None:
        fake.CONSUMERS.clear()
