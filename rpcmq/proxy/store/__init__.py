"""Stores of the caching proxy: memory, files, MongoDB, and a small memory before one of the others."""

from __future__ import annotations

from rpcmq.proxy.store.contract import STEP_BYTES, Body, Purged, Store, StoreStatistics, Writer
from rpcmq.proxy.store.files import FileStore
from rpcmq.proxy.store.memory import MemoryStore
from rpcmq.proxy.store.tiers import TieredStore

__all__ = [
    "STEP_BYTES",
    "Body",
    "FileStore",
    "MemoryStore",
    "Purged",
    "Store",
    "StoreStatistics",
    "TieredStore",
    "Writer",
]
