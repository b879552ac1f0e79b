"""Limits on what peers of a front end do without bound: messages a second, and lines in the log."""

from __future__ import annotations

from rpcmq.client.limited_log import RateLimitedLog
from rpcmq.core.common.token_bucket import TokenBucket

__all__ = ["RateLimitedLog", "TokenBucket"]
