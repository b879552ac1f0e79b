"""``nova.testing.fake.rabbit`` by its name up to Diablo."""

from __future__ import annotations

from nova.testing.fake.rabbit import CONSUMERS, EXCHANGES, QUEUES, reset_all

__all__ = ["CONSUMERS", "EXCHANGES", "QUEUES", "reset_all"]
