"""The rules of a shared HTTP cache: no I/O, and the time is an argument.

:func:`decide` says whether stored responses answer a request or the origin is asked, :func:`receive` how the origin's
response is treated, and :func:`fail` what is done without one.
"""

from __future__ import annotations

from rpcmq.proxy.caching.decisions import (
    Answer,
    BodyPlan,
    Decision,
    Deliver,
    Forward,
    ForwardReason,
    Outcome,
    Refresh,
    Resend,
    Serve,
    Span,
    plan_size,
)
from rpcmq.proxy.caching.entry import MalformedEntry, StoredResponse
from rpcmq.proxy.caching.keys import cache_key, key_prefix, url_key
from rpcmq.proxy.caching.lookup import decide, follow
from rpcmq.proxy.caching.policy import CachePolicy
from rpcmq.proxy.caching.purge import MalformedPurge, Purge, PurgeKind
from rpcmq.proxy.caching.receiving import fail, receive

__all__ = [
    "Answer",
    "BodyPlan",
    "CachePolicy",
    "Decision",
    "Deliver",
    "Forward",
    "ForwardReason",
    "MalformedEntry",
    "MalformedPurge",
    "Outcome",
    "Purge",
    "PurgeKind",
    "Refresh",
    "Resend",
    "Serve",
    "Span",
    "StoredResponse",
    "cache_key",
    "decide",
    "fail",
    "follow",
    "key_prefix",
    "plan_size",
    "receive",
    "url_key",
]
